// Runs what all ranks do, each on a thread.
#pragma once

#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/comm.h"

namespace mb::test {

inline std::vector<int> first_ranks(int n) {
  std::vector<int> ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// body(rank) on a thread for each of `world`'s ranks; a rank that fails aborts the world. Returns
// the first message, "" if all is well.
inline std::string on_ranks(World& world, const std::function<void(int)>& body) {
  std::string first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        {
          const std::lock_guard lock(mutex);
          if (first.empty()) first = error.what();
        }
        world.abort(error.what());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return first;
}

}  // namespace mb::test
