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

// What passes between two looks: nothing, other threads' turns, then sleep in growing steps, an
// eighth of the wait so far. A stream that waits this way drives MPI's progress, and leaves its
// core to the stream that computes.
class Pause {
 public:
  Pause(bool crowded, Waiting kind)
      : looks_(crowded ? 4 : 100),
        yields_for_(crowded ? 20 : 60),
        longest_(kind == Waiting::bytes ? 20 : 500) {}

  void operator()() {
    if (++turn_ < looks_) return relax();
    const auto now = Clock::now();
    if (turn_ == looks_) start_ = now;
    const auto waited = now - start_;
    if (waited < yields_for_) return std::this_thread::yield();
    sleep_exactly();
    std::this_thread::sleep_for(std::clamp<Clock::duration>(waited / 8, microseconds(2), longest_));
  }

 private:
  // By default a sleep is 50 us longer than asked for.
  static void sleep_exactly() {
    thread_local const int done = prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
    (void)done;
  }

  const int looks_;
  const microseconds yields_for_, longest_;
  int turn_ = 0;
  Clock::time_point start_;
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
  for (Pause pause(crowded, kind);; pause()) {
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
