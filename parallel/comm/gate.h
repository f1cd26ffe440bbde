// How threads of one process wait for each other: by looking a while, then by parking on a word,
// from which an abort wakes them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace mb {

using Word = std::atomic<std::uint32_t>;

// Bit 0 of every word that a thread parks on; the rest counts or names a state.
inline constexpr std::uint32_t aborted_bit = 1;

// A line of its own, with room for the pair of lines that processors prefetch together.
inline constexpr std::size_t line_bytes = 128;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The first value of `word` that is `done`. Looks `spins` times, soon leaving the core to others
// between two looks, as the one who is waited for may need this very core; then parks.
template <class Done>
std::uint32_t await(const Word& word, int spins, Done done) {
  std::uint32_t seen = word.load(std::memory_order_acquire);
  for (int spin = 0; spin < spins && !done(seen); ++spin) {
    spin < 32 ? relax() : std::this_thread::yield();
    seen = word.load(std::memory_order_acquire);
  }
  for (; !done(seen); seen = word.load(std::memory_order_acquire)) {
    word.wait(seen, std::memory_order_acquire);
  }
  return seen;
}

inline void set_aborted(Word& word) {
  word.fetch_or(aborted_bit);
  word.notify_all();
}

// A barrier that can be aborted. The word holds twice the number of arrivals, modulo 2^32. Nobody
// arrives after an abort, so either all members pass a given meeting or none does.
class Gate {
 public:
  // `target` belongs to the member and starts at 0. False: aborted before the last one came.
  bool pass(std::uint32_t& target, int members, int spins) {
    target += 2 * static_cast<std::uint32_t>(members);
    std::uint32_t seen = word_.load(std::memory_order_acquire);
    do {
      if (seen & aborted_bit) return false;
    } while (!word_.compare_exchange_weak(seen, seen + 2));
    const auto all_here = [target](std::uint32_t value) {
      return static_cast<std::int32_t>((value & ~aborted_bit) - target) >= 0;
    };
    if (all_here(seen + 2)) {
      word_.notify_all();
      return true;
    }
    return all_here(await(word_, spins, [&](std::uint32_t value) {
      return all_here(value) || (value & aborted_bit) != 0;
    }));
  }

  void abort() { set_aborted(word_); }

 private:
  alignas(line_bytes) Word word_{0};
};

// One direction between two members. The sender moves idle -> offered, the receiver moves
// offered -> claimed -> idle, or -> refused where the sizes differ. Nothing is claimed after an
// abort, and a sender does not leave while its buffer is claimed.
struct Channel {
  static constexpr std::uint32_t idle = 0, offered = 2, claimed = 4, refused = 6;

  alignas(line_bytes) Word state{idle};
  const void* data = nullptr;
  std::int64_t sent_bytes = 0, wanted_bytes = 0;

  void settle(std::uint32_t next) {
    state.fetch_xor(claimed ^ next);
    state.notify_all();
  }
};

}  // namespace mb
