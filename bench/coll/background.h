// A collective that a second thread of a rank makes over and over.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>

#include "bench/coll/cores.h"
#include "bench/coll/operation.h"
#include "parallel/comm/comm.h"
#include "workloads/base/pages.h"

namespace mb {

// Every member of the group has one. Runs of about a millisecond, after each of which member 0
// tells the others whether to go on, so that all of them stop after the same call.
class Background {
 public:
  // Its thread runs on any of `cores`, which outlive it.
  Background(std::unique_ptr<Comm> comm, const CollCall& call, PageSize pages, const Cores& cores);
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Returns once the first call has gone through. Rethrows what the thread met, as stop() does.
  void start();
  void stop();
  bool has_failed() const { return failed_; }

 private:
  void run();

  std::unique_ptr<Comm> comm_;
  CollCall call_;
  const Cores& cores_;
  Pages in_, out_;
  std::atomic<bool> leave_{false}, failed_{false};
  std::atomic<std::uint32_t> runs_{0};
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace mb
