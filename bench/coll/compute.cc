#include "bench/coll/compute.h"

#include "parallel/device/device.h"
#include "workloads/ops/launch.h"

namespace mb {
namespace {

constexpr std::int64_t kRows = 32, kInner = 256, kColumns = 256;
constexpr std::size_t kRun = 64 << 10, kTriad = 64 * kRun;  // floats

}  // namespace

ComputeThread::ComputeThread(ComputeKind kind, const Cores& cores)
    : kind_(kind),
      cores_(cores),
      a_(kind == ComputeKind::matmul ? kRows * kInner : kTriad, 1.0f),
      b_(kind == ComputeKind::matmul ? kInner * kColumns : kTriad, 0.5f),
      c_(kind == ComputeKind::matmul ? kRows * kColumns : kTriad, 0.0f),
      thread_([this] { loop(); }) {}

ComputeThread::~ComputeThread() {
  leave_ = true;
  asked_.fetch_add(1);
  asked_.notify_one();
  thread_.join();
}

void ComputeThread::start(std::int64_t units) {
  units_ = units;
  asked_.fetch_add(1, std::memory_order_release);
  asked_.notify_one();
}

void ComputeThread::wait() {
  const std::uint32_t wanted = asked_.load(std::memory_order_relaxed);
  for (std::uint32_t seen; (seen = done_.load(std::memory_order_acquire)) != wanted;)
    done_.wait(seen, std::memory_order_acquire);
}

void ComputeThread::loop() {
  cores_.take_all();
  for (std::uint32_t round = 0;; ++round) {
    asked_.wait(round, std::memory_order_acquire);
    if (leave_) return;
    for (std::int64_t i = 0; i < units_; ++i) unit();
    end_ns_ = now_ns();
    done_.store(round + 1, std::memory_order_release);
    done_.notify_one();
  }
}

void ComputeThread::unit() {
  if (kind_ == ComputeKind::matmul) {
    const void* reads[] = {a_.data(), b_.data()};
    void* writes[] = {c_.data()};
    run_cpu_op({Matmul{kRows, kColumns, kInner}, DType::fp32}, {}, reads, writes);
    return;
  }
  for (std::size_t i = at_; i < at_ + kRun; ++i) c_[i] = a_[i] + 0.5f * b_[i];
  asm volatile("" : : "r"(c_.data()) : "memory");
  at_ = (at_ + kRun) % kTriad;
}

}  // namespace mb
