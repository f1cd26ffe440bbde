#include "bench/coll/cores.h"

namespace mb {

Cores::Cores() {
  CPU_ZERO(&all_);
  sched_getaffinity(0, sizeof all_, &all_);
}

int Cores::count() const { return CPU_COUNT(&all_); }

void Cores::take_one(int index) const {
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &all_) && seen++ == index) CPU_SET(cpu, &one);
  }
  sched_setaffinity(0, sizeof one, &one);
}

void Cores::take_all() const { sched_setaffinity(0, sizeof all_, &all_); }

}  // namespace mb
