#include "parallel/comm/mpi_link.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "parallel/comm/comm.h"
#include "parallel/comm/gate.h"

namespace mb {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// How long one looks and keeps the core, then looks between other threads' turns; at last one
// sleeps, for at most so long at once.
struct Patience {
  microseconds looks, yields, longest_sleep;
};

// A turn given away to another program is gone for milliseconds. Where the member at the other end
// cannot be what waits for this core, one keeps it while bytes are on their way.
Patience patience(const MpiLink& link, Waiting kind) {
  using namespace std::chrono_literals;
  const bool comes = kind == Waiting::bytes;
  return {.looks = link.bound     ? (comes ? 200us : 50us)
                   : link.crowded ? 1us
                                  : 5us,
          .yields = link.crowded ? 20us : 60us,
          .longest_sleep = comes ? 20us : 500us};
}

// What passes between two looks: nothing, other threads' turns, then sleep in growing steps, an
// eighth of the wait so far. A stream that waits this way drives MPI's progress, and leaves its
// core to the stream that computes.
class Pause {
 public:
  explicit Pause(const Patience& patience) : patience_(patience) {}

  void operator()() {
    const auto waited = Clock::now() - start_;
    if (waited < patience_.looks) return relax();
    if (waited < patience_.looks + patience_.yields) return std::this_thread::yield();
    sleep_exactly();
    std::this_thread::sleep_for(
        std::clamp<Clock::duration>(waited / 8, microseconds(2), patience_.longest_sleep));
  }

 private:
  // By default a sleep is 50 us longer than asked for.
  static void sleep_exactly() {
    thread_local const int done = prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
    (void)done;
  }

  const Patience patience_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

void MpiLink::check(int code, const char* what) const {
  if (code == 0) return;
  char text[512] = "";
  mpi->error_text(code, text, sizeof text);
  throw Error(cat(what, " of ", mpi->name, ": ", text));
}

void MpiLink::wait(std::span<MpiHandle> requests, Waiting kind) const {
  if (requests.empty()) return;
  bool done = false;
  for (Pause pause(patience(*this, kind));; pause()) {
    check(mpi->test_all(requests.data(), static_cast<int>(requests.size()), &done), "MPI_Testall");
    if (done) return;
  }
}

void MpiLink::look(std::span<MpiHandle> requests) const {
  for (bool done = false; !done;)
    check(mpi->test_all(requests.data(), static_cast<int>(requests.size()), &done), "MPI_Testall");
}

void MpiLink::enter() const {
  if (aborted) throw Aborted(reason);
}

}  // namespace mb
