// Groups of rank threads for the tests of thread_comm.cc.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "parallel/comm/comm.h"
#include "tests/support/rank_threads.h"
#include "workloads/base/rng.h"

namespace mb::test {

// Runs `body(rank)` on a thread per rank.
inline void on_ranks(int n, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back(body, rank);
  for (auto& thread : threads) thread.join();
}

// Runs `body(comm)` on all members of one group of `n` in a world of its own.
inline void in_group(int n, const std::function<void(Comm&)>& body, Delays delays = {}) {
  ThreadWorld world(n, delays);
  on_ranks(n, [&](int rank) { body(*world.comm("g", first_ranks(n), rank)); });
}

// A pause that differs from call to call: nothing, a yield, or some work.
inline void dawdle(int member, int call) {
  const std::uint64_t draw = random_bits(3, member, call);
  if (draw % 4 == 0) std::this_thread::yield();
  volatile double sink = 0;
  for (std::uint64_t i = 0; draw % 4 == 1 && i < draw % 5000; ++i) sink = sink + 1;
}

}  // namespace mb::test
