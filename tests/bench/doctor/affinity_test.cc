#include "bench/doctor/affinity.h"

#include <gtest/gtest.h>

namespace mb {
namespace {

PciDevice device(std::vector<std::string> path, std::optional<std::int64_t> node) {
  return {.address = "x", .path = std::move(path), .numa_node = node, .local_cores = "0-3"};
}
NetworkCard card(std::string name, PciDevice pci, bool active = true) {
  return {.name = std::move(name), .active = active, .pci = std::move(pci)};
}

TEST(Affinity, TheCardBehindTheSameBridgeIsNearest) {
  const auto all = affinities({device({"a", "b"}, 0)},
                              {card("far", device({"c"}, 1)), card("node", device({}, 0)),
                               card("top", device({"a"}, 0)), card("near", device({"a", "b"}, 0))});
  EXPECT_EQ(all[0].card, "near");
  EXPECT_EQ(all[0].distance, Distance::bridge);
  EXPECT_EQ(all[0].numa_node, 0);
  EXPECT_EQ(all[0].cores, "0-3");
}

TEST(Affinity, ThenThatOfTheSameNode) {
  const auto all = affinities({device({"a"}, 1)},
                              {card("far", device({"b"}, 0)), card("near", device({"c"}, 1))});
  EXPECT_EQ(all[0].card, "near");
  EXPECT_EQ(all[0].distance, Distance::node);
}

TEST(Affinity, EquallyNearCardsAreShared) {
  const std::vector<PciDevice> gpus(4, device({}, 0));
  const auto all = affinities(gpus, {card("m0", device({}, 0)), card("m1", device({}, 0))});
  EXPECT_EQ(all[0].card, "m0");
  EXPECT_EQ(all[1].card, "m1");
  EXPECT_EQ(all[2].card, "m0");
  EXPECT_EQ(all[3].card, "m1");
}

TEST(Affinity, ACardThatIsDownIsTheLastChoice) {
  const auto all = affinities(
      {device({"a"}, 0)}, {card("down", device({"a"}, 0), false), card("up", device({"b"}, 1))});
  EXPECT_EQ(all[0].card, "up");
  EXPECT_EQ(all[0].distance, Distance::system);
}

TEST(Affinity, WithoutCardsOrNodesNothingIsSaidOfThem) {
  EXPECT_EQ(affinities({device({}, 0)}, {})[0].card, std::nullopt);
  EXPECT_EQ(affinities({device({}, {})}, {card("m", device({}, 0))})[0].distance,
            Distance::unknown);
}

}  // namespace
}  // namespace mb
