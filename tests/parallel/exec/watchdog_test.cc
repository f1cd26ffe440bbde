#include "parallel/exec/watchdog.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace mb {
namespace {

using std::chrono::milliseconds;

// Of two that hang, started half a patience apart, each asks whether the other hangs too.
TEST(Watchdog, TwoThatAskEachOtherBothComeToKnow) {
  constexpr double kPatience_s = 0.1;
  std::array<std::atomic<Watchdog*>, 2> watchdogs{};
  std::array<std::atomic<bool>, 2> knows{};
  const auto watch = [&](int own) {
    auto watchdog = std::make_unique<Watchdog>(
        kPatience_s, [] { return 7; },
        [&, own] {
          Watchdog* other = watchdogs[1 - own];
          if (other == nullptr || other->idle_s() < kPatience_s) return false;
          knows[own] = true;
          return true;
        });
    watchdogs[own] = watchdog.get();
    return watchdog;
  };
  const auto first = watch(0);
  std::this_thread::sleep_for(milliseconds(50));
  const auto second = watch(1);
  while (!knows[0] || !knows[1]) std::this_thread::sleep_for(milliseconds(5));
}

TEST(Watchdog, ProgressKeepsItQuiet) {
  std::atomic<int> progress = 0;
  std::atomic<bool> hung = false;
  const Watchdog watchdog(
      10, [&] { return progress++; },
      [&] {
        hung = true;
        return true;
      });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(hung);
}

}  // namespace
}  // namespace mb
