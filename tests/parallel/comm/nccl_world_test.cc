// NCCL's Comms on emulated devices: what every Comm promises but for the order of additions, and
// what becomes of ranks where one does not come, dies or asks for something else.
#include "parallel/comm/nccl_world.h"

#include <gtest/gtest.h>
#include <nccl.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "parallel/mesh/mesh.h"
#include "tests/support/comm_contract.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/device_comm.h"
#include "tests/support/error.h"
#include "tests/support/rank_threads.h"

namespace mb {
namespace {

namespace emulation = cuda_emulation;
using test::DeviceComm;
using test::first_ranks;

// A rank on device `rank`, with one stream.
struct Place {
  World& world;
  int rank;
  NativeStream stream;

  cudaStream_t cuda() const { return static_cast<cudaStream_t>(stream.stream); }
  std::unique_ptr<Comm> comm(const std::string& name, const std::vector<int>& members) const {
    return std::make_unique<DeviceComm>(world.comm_on(stream, name, members, rank), cuda());
  }
};

struct Outcome {
  std::string first;   // error of a rank
  std::string reason;  // of the world
};

// body(place) on every rank of a new world of `n` devices.
Outcome in_world(int n, const std::function<void(const Place&)>& body,
                 emulation::Settings settings = {}, NcclOptions options = {.timeout_s = 20}) {
  settings.devices = n;
  emulation::reset(settings);
  ThreadWorld hosts(n);
  const auto world = make_nccl_world(hosts, options);
  Outcome outcome;
  outcome.first = test::on_ranks(*world, [&](int rank) {
    cudaSetDevice(rank);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    const std::unique_ptr<CUstream_st, cudaError_t (*)(cudaStream_t)> owner(stream,
                                                                            cudaStreamDestroy);
    body({*world, rank, {rank, stream}});
  });
  outcome.reason = world->reason();
  return outcome;
}

// body(comm) on the members of a group of all ranks; all has to go well.
void in_group(int n, const std::function<void(Comm&)>& body, emulation::Settings settings = {}) {
  const Outcome outcome = in_world(
      n,
      [&](const Place& place) {
        place.world.announce(place.stream, {{"g", first_ranks(n)}}, place.rank);
        body(*place.comm("g", first_ranks(n)));
      },
      settings);
  EXPECT_EQ(outcome.first, "");
  EXPECT_EQ(emulation::faults(), std::vector<std::string>{});
}

class NcclKinds : public testing::TestWithParam<int> {};

TEST_P(NcclKinds, HaveTheResultsOfASerialOneWhereOrderDoesNotMatter) {
  in_group(GetParam(), [](Comm& comm) {
    int salt = 0;
    for (const int count : {0, 1, 7, 513})
      test::exercise(comm, count, salt += 100, test::Numbers::whole);
  });
}
INSTANTIATE_TEST_SUITE_P(Members, NcclKinds, testing::Values(1, 2, 3, 8));

TEST(NcclComm, LetsBuffersBeUsedAgainInTheOrderOfTheStream) {
  in_group(4, [](Comm& comm) { test::reuse_buffers(comm, 5); }, {.most_delay_us = 100});
}

TEST(NcclComm, KeepsOrderAndSizesOfMessages) {
  in_group(2, [](Comm& comm) { test::ping_pong(comm, 50); });
}

// The library takes ranks to be on their way until it is asked.
TEST(NcclComm, AsksUntilItsRanksHaveCome) {
  in_group(3, [](Comm& comm) { test::reuse_buffers(comm, 5); }, {.nccl_polls = 3});
}

// In any order and rounded at every hop: as far apart as the hops may bring them.
TEST(NcclComm, AddsAsThreadsDoUpToOrderAndRounding) {
  constexpr std::int64_t kCount = 3000;
  constexpr int kMembers = 8;
  in_group(kMembers, [](Comm& comm) {
    const auto held_to_serial = [&](auto zero, double epsilon) {
      using T = decltype(zero);
      std::vector<T> data(kCount);
      std::vector<double> exact(kCount), magnitude(kCount);
      for (std::int64_t i = 0; i < kCount; ++i) {
        data[i] = test::draw<T>(test::Numbers::mixed, 1, comm.index(), i);
        for (int m = 0; m < kMembers; ++m) {
          const double x = test::draw<T>(test::Numbers::mixed, 1, m, i);
          exact[i] += x;
          magnitude[i] += std::abs(x);
        }
      }
      comm.all_reduce(data.data(), kCount, test::type_of<T>(), ReduceOp::sum);
      for (std::int64_t i = 0; i < kCount; ++i)
        ASSERT_NEAR(static_cast<double>(data[i]), exact[i], epsilon * kMembers * magnitude[i]) << i;
    };
    held_to_serial(float{}, 0x1p-24);
    held_to_serial(double{}, 0x1p-53);
    held_to_serial(Bf16{}, 0x1p-8);
  });
}

TEST(NcclWorld, DividesRanksIntoRowsColumnsAndPairs) {
  const Mesh mesh = Mesh::parse("dp2.tp4");
  const Outcome outcome = in_world(mesh.world(), [&](const Place& place) {
    const auto row = mesh.members(group_of(Axis::tp), place.rank);
    const auto column = mesh.members(group_of(Axis::dp), place.rank);
    std::vector<World::GroupName> groups = {{"tp", row}, {"dp", column}};
    // Sender first, and of these ranks alone.
    const std::vector<int> pair = {5, 2};
    const bool member = place.rank == 5 || place.rank == 2;
    if (member) groups.push_back({"5 to 2", pair});
    place.world.announce(place.stream, groups, place.rank);
    const auto tp = place.comm("tp", row), dp = place.comm("dp", column);
    EXPECT_EQ(tp->index(), mesh.coordinate(place.rank, Axis::tp));
    test::exercise(*tp, 5, place.rank / 4, test::Numbers::whole);
    test::exercise(*dp, 6, place.rank % 4, test::Numbers::whole);
    if (!member) return;
    const auto messages = place.comm("5 to 2", pair);
    std::int32_t value = place.rank;
    place.rank == 5 ? messages->send(&value, 4, 1) : messages->recv(&value, 4, 0);
    EXPECT_EQ(value, 5);
  });
  EXPECT_EQ(outcome.first, "");
  EXPECT_EQ(emulation::faults(), std::vector<std::string>{});
}

TEST(NcclWorld, RefusesGroupsThatNobodyAnnounced) {
  const Outcome outcome = in_world(1, [&](const Place& place) {
    place.world.announce(place.stream, {{"g", {0}}}, 0);
    const auto known = place.comm("g", {0});
    EXPECT_EQ(message_of([&] { place.comm("g", {0}); }),
              "group g: rank 0 has not announced it, or has its Comm already");
    EXPECT_EQ(message_of([&] { place.comm("h", {1}); }), "group h: rank 0 is not a member");
    EXPECT_EQ(message_of([&] { known->broadcast(nullptr, 0, DType::fp32, 1); }),
              "group g: broadcast from member 1 of 1");
  });
  EXPECT_EQ(outcome.first, "");
}

TEST(NcclWorld, TellsARankThatNeverCame) {
  std::atomic<bool> over{false};
  const Outcome outcome =
      in_world(3,
               [&](const Place& place) {
                 if (place.rank < 2) {
                   const std::string told =
                       message_of([&] { place.world.announce(place.stream, {}, place.rank); });
                   over = true;
                   over.notify_all();
                   throw Error(told);
                 }
                 // Meets the others as processes, and never joins NCCL's.
                 const auto control = place.world.comm("nccl", first_ranks(3), place.rank);
                 ncclUniqueId id;
                 control->broadcast(id.internal, sizeof id.internal, DType::uint8, 0);
                 over.wait(false);
               },
               {}, {.timeout_s = 0.2});
  EXPECT_NE(outcome.reason.find("is not through after 0.2 s: a rank has not come"),
            std::string::npos)
      << outcome.reason;
  EXPECT_NE(outcome.reason.find(", all ranks, device "), std::string::npos) << outcome.reason;
}

// Enqueues what can never end, as all ranks but one have it that waits for a rank that died.
void wait_in_all_reduce(const Place& place, int n) {
  const auto comm = place.world.comm_on(place.stream, "g", first_ranks(n), place.rank);
  void* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 40), cudaSuccess);
  comm->barrier();  // from here on they are connected
  comm->all_reduce(data, 10, DType::fp32, ReduceOp::sum);
  EXPECT_EQ(cudaStreamSynchronize(place.cuda()), cudaSuccess);
  EXPECT_EQ(message_of([&] { comm->barrier(); }), "rank 2 died");
}

TEST(NcclWorld, EndsWhatWaitsForARankThatDied) {
  const Outcome outcome = in_world(3, [&](const Place& place) {
    place.world.announce(place.stream, {{"g", first_ranks(3)}}, place.rank);
    if (place.rank == 2) {
      place.comm("g", first_ranks(3))->barrier();
      throw Error("rank 2 died");
    }
    wait_in_all_reduce(place, 3);
  });
  EXPECT_EQ(outcome.first, "rank 2 died");
}

// The first call between two ranks connects them, and holds the communicator meanwhile.
TEST(NcclWorld, EndsCallsThatWaitForARankThatDiedBeforeItCameToThem) {
  const Outcome outcome = in_world(3, [&](const Place& place) {
    place.world.announce(place.stream, {{"g", first_ranks(3)}}, place.rank);
    if (place.rank == 2) throw Error("rank 2 died");
    const auto comm = place.world.comm_on(place.stream, "g", first_ranks(3), place.rank);
    EXPECT_EQ(message_of([&] { comm->barrier(); }), "rank 2 died");
  });
  EXPECT_EQ(outcome.first, "rank 2 died");
}

TEST(NcclWorld, TellsErrorsThatComeUpAfterACall) {
  const Outcome outcome = in_world(2, [&](const Place& place) {
    place.world.announce(place.stream, {{"g", first_ranks(2)}}, place.rank);
    const auto comm = place.world.comm_on(place.stream, "g", first_ranks(2), place.rank);
    if (place.rank == 1) emulation::fail_communicators(1, ncclRemoteError);
    while (!place.world.aborted()) std::this_thread::yield();
    EXPECT_NE(message_of([&] { comm->barrier(); }), "no Error");
  });
  EXPECT_NE(
      outcome.reason.find("NCCL status 6, remote process exited or there was a network error; "
                          "a rank has ended, or the network between two has failed"),
      std::string::npos)
      << outcome.reason;
}

TEST(NcclWorld, TellsTheCallThatFails) {
  const Outcome outcome = in_world(1, [&](const Place& place) {
    place.world.announce(place.stream, {{"g", {0}}}, 0);
    const auto comm = place.comm("g", {0});
    emulation::fail("ncclAllReduce", 1, ncclSystemError);
    comm->barrier();
  });
  EXPECT_EQ(
      outcome.first,
      "rank 0, group g, device 0: ncclAllReduce of a barrier: NCCL status 2, unhandled system "
      "error (run with NCCL_DEBUG=INFO for details); NCCL_DEBUG=INFO makes NCCL tell more");
}

TEST(NcclWorld, RefusesTwoRanksOnOneDevice) {
  const Outcome outcome = in_world(2, [&](const Place& place) {
    place.world.announce({0, place.stream.stream}, {}, place.rank);
  });
  EXPECT_NE(outcome.reason.find("give each its own, or take mode=cuda+threads"), std::string::npos)
      << outcome.reason;
}

TEST(NcclWorld, RefusesALibraryThatDoesNotFitTheHeader) {
  for (const int version : {22005, 30000}) {
    emulation::reset({.nccl_version = version});
    ThreadWorld hosts(1);
    const std::string text = message_of([&] { make_nccl_world(hosts); });
    EXPECT_NE(text.find(version == 22005 ? "NCCL 2.20.5 is loaded" : "NCCL 3.0.0 is loaded"),
              std::string::npos)
        << text;
  }
  emulation::reset({.nccl_version = 22901});
  EXPECT_EQ(nccl_versions().library, "2.29.1");
}

}  // namespace
}  // namespace mb
