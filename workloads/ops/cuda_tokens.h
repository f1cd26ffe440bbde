// Tokens from the host, in the order of a stream. Part of cuda_ops.cu.
#pragma once

#include <cstdint>
#include <exception>
#include <vector>

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
      work->loader->failed_ = std::current_exception();
    }
  }

  void fill(const Work& work) {
    const LoadBatch& op = work.op;
    const OpContext& context = work.context;
    std::int32_t* tokens = op.tokens ? staging_ : nullptr;
    std::int32_t* labels = op.labels ? staging_ + (op.tokens ? work.rows : 0) : nullptr;
    const auto from_source = [&](std::int32_t* to_tokens, std::int32_t* to_labels) {
      context.batches->load(context.step, context.data_index, context.micro_batch, op.batch,
                            op.sequence, to_tokens, to_labels);
    };
    if (!is_split(op.split)) return from_source(tokens, labels);
    const std::int64_t size = op.batch * op.sequence;
    whole_.resize(2 * size);
    from_source(tokens ? whole_.data() : nullptr, labels ? whole_.data() + size : nullptr);
    for (std::int64_t row = 0; row < work.rows; ++row) {
      const TokenPlace place = place_of_row(op.split, op.batch, op.sequence, context.context_index,
                                            context.shard_index, row);
      const std::int64_t at = place.sequence * op.sequence + place.position;
      if (tokens) tokens[row] = whole_[at];
      if (labels) labels[row] = whole_[size + at];
    }
  }

  std::int32_t* staging_ = nullptr;
  std::int64_t entries_ = 0;
  std::vector<std::int32_t> whole_;  // of a micro-batch that is divided
  std::exception_ptr failed_;
};

}  // namespace mb::cuda
