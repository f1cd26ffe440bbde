// Which core a thread runs on: ranks that wait for each other must not share one by accident.
#pragma once

#include <sched.h>

namespace mb {

struct CoreShare {
  int ranks = 0, cores = 0;
  bool is_crowded() const { return ranks > cores; }
};

// Those that the thread which makes this may run on.
class Cores {
 public:
  Cores();
  int count() const;
  // The calling thread to the index-th of them, and to all again; threads that it starts inherit
  // where it is.
  void take_one(int index) const;
  void take_all() const;

 private:
  cpu_set_t all_;
};

}  // namespace mb
