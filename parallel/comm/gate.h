// How threads of one process wait for each other: by looking a while, then by parking on a word,
// from which an abort wakes them.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>

namespace mb {

// Bit 0 of every word that a thread parks on; the rest counts or names a state.
inline constexpr std::uint32_t aborted_bit = 1;

// A line of its own, with room for the pair of lines that processors prefetch together.
inline constexpr std::size_t line_bytes = 128;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class Word {
 public:
  std::uint32_t load() const { return value_.load(std::memory_order_acquire); }
  // Sets `next` where the word is `seen`; else changes `seen` to what it is. Whoever has changed a
  // word wakes those who parked on it.
  bool change(std::uint32_t& seen, std::uint32_t next) {
    return value_.compare_exchange_strong(seen, next);
  }
  void flip(std::uint32_t bits) { value_.fetch_xor(bits); }
  void keep(std::uint32_t bits) { value_.fetch_and(bits); }

  // A thread counts itself before it looks a last time, and a waker looks after it has changed the
  // word: in the one order of all these, one of the two sees the other.
  void wake() {
    if (parked_.load() > 0) futex(FUTEX_WAKE_PRIVATE, INT_MAX);
  }

  void set_aborted() {
    value_.fetch_or(aborted_bit);
    wake();
  }

  // The first value that is `done`. Looks that often before it parks: never leaving the core, as
  // who yields to a thread that computes has it back after a time slice, but who parks is woken.
  template <class Done>
  std::uint32_t await(int looks, Done done) {
    std::uint32_t seen = load();
    for (int look = 0; look < looks && !done(seen); ++look) {
      relax();
      seen = load();
    }
    if (done(seen)) return seen;
    parked_.fetch_add(1);
    for (seen = value_.load(); !done(seen); seen = value_.load()) futex(FUTEX_WAIT_PRIVATE, seen);
    parked_.fetch_sub(1);
    return seen;
  }

 private:
  void futex(int operation, std::uint32_t value) {
    static_assert(sizeof value_ == 4);
    syscall(SYS_futex, &value_, operation, value, nullptr, nullptr, 0);
  }

  std::atomic<std::uint32_t> value_{0};
  std::atomic<std::uint32_t> parked_{0};
};

// A barrier that can be aborted. The word holds twice the number of arrivals, modulo 2^32. Nobody
// arrives after an abort, so either all members pass a given meeting or none does.
class Gate {
 public:
  // `target` belongs to the member and starts at 0. False: aborted before the last one came.
  bool pass(std::uint32_t& target, int members, int looks) {
    std::uint32_t seen = target;  // where this member is the first
    target += 2 * static_cast<std::uint32_t>(members);
    while (!word_.change(seen, seen + 2)) {
      if (seen & aborted_bit) return false;
    }
    const auto all_here = [target](std::uint32_t value) {
      return static_cast<std::int32_t>((value & ~aborted_bit) - target) >= 0;
    };
    if (all_here(seen + 2)) {
      word_.wake();
      return true;
    }
    return all_here(word_.await(
        looks, [&](std::uint32_t value) { return all_here(value) || (value & aborted_bit) != 0; }));
  }

  void abort() { word_.set_aborted(); }

 private:
  alignas(line_bytes) Word word_;
};

// One direction between two members. The sender moves idle -> offered, the receiver moves
// offered -> claimed -> idle, or -> refused where the sizes differ. Nothing is claimed after an
// abort, and a sender does not leave while its buffer is claimed.
struct Channel {
  static constexpr std::uint32_t idle = 0, offered = 2, claimed = 4, refused = 6;

  alignas(line_bytes) Word state;
  const void* data = nullptr;
  std::int64_t sent_bytes = 0, wanted_bytes = 0;

  void settle(std::uint32_t next) {
    state.flip(claimed ^ next);
    state.wake();
  }
};

}  // namespace mb
