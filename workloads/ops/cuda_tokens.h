// Tokens from the host, in the order of a stream. Part of cuda_ops.cu.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "workloads/ops/cuda_call.h"
#include "workloads/ops/tokens.h"

namespace mb::cuda {

// Pinned memory that a micro-batch waits in. One for each stream: its next use comes after the
// copy.
class TokenLoader {
 public:
  TokenLoader() = default;
  ~TokenLoader() { cudaFreeHost(staging_); }
  TokenLoader(const TokenLoader&) = delete;
  TokenLoader& operator=(const TokenLoader&) = delete;

  template <class T>
  void run(const LoadBatch& op, const Call<T>& call) {
    const std::int64_t rows = rows_of(op.split, op.batch, op.sequence);
    if (call.prepares) return make_room(2 * rows);
    rethrow();
    check(cudaLaunchHostFunc(call.stream, load, new Work{op, call.context, this, rows}),
          "cudaLaunchHostFunc");
    std::size_t next = 0;
    for (const bool wanted : {op.tokens, op.labels}) {
      if (!wanted) continue;
      check(cudaMemcpyAsync(call.writes[next], staging_ + next * rows, rows * sizeof(std::int32_t),
                            cudaMemcpyHostToDevice, call.stream),
            "cudaMemcpyAsync of tokens");
      ++next;
    }
  }
  // What a load has thrown.
  void rethrow() {
    const std::lock_guard lock(mutex_);
    if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  }

 private:
  struct Work {
    LoadBatch op;
    OpContext context;
    TokenLoader* loader;
    std::int64_t rows;
  };

  void make_room(std::int64_t entries) {
    if (entries <= entries_) return;
    check(cudaFreeHost(staging_), "cudaFreeHost");
    staging_ = nullptr;
    entries_ = 0;
    void* made = nullptr;
    check(cudaHostAlloc(&made, entries * sizeof(std::int32_t), cudaHostAllocDefault),
          "cudaHostAlloc");
    staging_ = static_cast<std::int32_t*>(made);
    entries_ = entries;
  }

  static void CUDART_CB load(void* data) {
    const std::unique_ptr<Work> work(static_cast<Work*>(data));
    try {
      work->loader->fill(*work);
    } catch (...) {
      const std::lock_guard lock(work->loader->mutex_);
      work->loader->failed_ = std::current_exception();
    }
  }

  void fill(const Work& work) {
    void* to[2];
    std::size_t wanted = 0;
    if (work.op.tokens) to[wanted++] = staging_;
    if (work.op.labels) to[wanted] = staging_ + wanted * work.rows, ++wanted;
    run_cpu_op({work.op, DType::fp32}, work.context, {}, {to, wanted});
  }

  std::int32_t* staging_ = nullptr;
  std::int64_t entries_ = 0;
  std::mutex mutex_;  // loads run on a thread of the driver
  std::exception_ptr failed_;
};

}  // namespace mb::cuda
