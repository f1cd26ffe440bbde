// Copies and reductions, for one instruction set. CMake compiles this file once for each, with
// MB_KERNELS naming the table that it defines; nothing else here has external linkage.
#include <utility>

#include "parallel/comm/reduce.h"
#include "parallel/comm/transfer.h"
#include "workloads/ops/stream.h"

namespace mb {
namespace {

// memcpy by streaming stores where `to` is aligned.
void stream(std::byte* to, const std::byte* from, std::int64_t bytes) {
  const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % 64);
  const std::int64_t head = std::min(bytes, misaligned == 0 ? 0 : 64 - misaligned);
  if (head > 0) __builtin_memcpy(to, from, head);
  std::int64_t at = head;
  for (; at + 64 <= bytes; at += 64) stream_64(to + at, from + at);
  if (at < bytes) __builtin_memcpy(to + at, from + at, bytes - at);
}

void store(void* to, const void* from, std::int64_t bytes, Stores stores) {
  stores == Stores::streaming
      ? stream(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes)
      : static_cast<void>(__builtin_memcpy(to, from, bytes));
}

template <class T, class Op>
void reduce(const std::vector<const void*>& sources, std::span<void* const> targets,
            std::int64_t count, Stores stores) {
  reduce_blocks<T>(sources, 0, count, Op{}, [&](auto& block, std::int64_t at) {
    for (void* target : targets)
      store(static_cast<T*>(target) + at, block.data(), block.bytes(), stores);
  });
  if (stores == Stores::streaming) stream_fence();
}

void copy(const void* from, std::span<void* const> targets, std::int64_t bytes, Stores stores) {
  // Several targets get a block after the other, which they all find in the first-level cache.
  const std::int64_t block = targets.size() == 1 ? bytes : 4096;
  for (std::int64_t at = 0; at < bytes; at += block) {
    const std::int64_t size = std::min(block, bytes - at);
    for (void* target : targets)
      store(static_cast<std::byte*>(target) + at, static_cast<const std::byte*>(from) + at, size,
            stores);
  }
  if (stores == Stores::streaming) stream_fence();
}

constexpr TransferKernels table() {
  TransferKernels kernels{.isa = MB_ISA_NAME, .reduce = {}, .copy = copy};
  for (int type = 0; type < kDTypes; ++type) {
    for (int op = 0; op < kReduceOps; ++op) {
      dispatch(static_cast<DType>(type), static_cast<ReduceOp>(op), [&](auto zero, auto how) {
        kernels.reduce[type][op] = reduce<decltype(zero), decltype(how)>;
      });
    }
  }
  return kernels;
}

}  // namespace

constinit const TransferKernels MB_KERNELS = table();

}  // namespace mb
