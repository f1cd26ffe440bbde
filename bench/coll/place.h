// Where a rank is in a run, for the watchdog.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace mb {

// In the order in which a rank passes them at every operation; `sharing` follows a batch.
enum class RankStep : std::uint8_t { working, meeting, delayed, operating, sharing, done };

class alignas(128) RankPlace {
 public:
  void set(std::int64_t operation, RankStep step) {
    at_.store(static_cast<std::uint64_t>(operation) * 8 + static_cast<std::uint64_t>(step),
              std::memory_order_relaxed);
  }
  std::int64_t operation() const { return static_cast<std::int64_t>(raw() / 8); }
  RankStep step() const { return static_cast<RankStep>(raw() % 8); }
  std::uint64_t raw() const { return at_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> at_{0};
};

std::string to_text(const RankPlace& place);  // "in operation 12"
// "operation 12: ranks 0, 2 arrived; not arrived: rank 1 (kept back by inject=), ..." for places of
// the ranks of this process.
std::string diagnosis(const std::vector<int>& ranks, const RankPlace* places);

}  // namespace mb
