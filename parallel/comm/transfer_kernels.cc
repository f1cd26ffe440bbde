// Copies and reductions, for one instruction set. CMake compiles this file once for each, with
// MB_KERNELS naming the table that it defines; nothing else here has external linkage.
#include <utility>

#include "parallel/comm/reduce.h"
#include "parallel/comm/transfer.h"
#include "workloads/ops/stream.h"

namespace mb {
namespace {

// How many bytes of the next `bytes` there are before a line of `to`.
std::int64_t before_line(const void* to, std::int64_t bytes) {
  return std::min<std::int64_t>(bytes, -reinterpret_cast<std::uintptr_t>(to) % 64);
}

// memcpy of whole lines and a rest; `to` is aligned where stores are streaming.
void store(std::byte* to, const std::byte* from, std::int64_t bytes, Stores stores) {
  std::int64_t at = 0;
  if (stores == Stores::streaming) {
    for (; at + 64 <= bytes; at += 64) stream_64(to + at, from + at);
  } else {
    for (; at + 64 <= bytes; at += 64) __builtin_memcpy(to + at, from + at, 64);
  }
  if (at < bytes) __builtin_memcpy(to + at, from + at, bytes - at);
}

void finish(std::span<const Target> targets) {
  for (const Target& target : targets) {
    if (target.stores == Stores::streaming) return stream_fence();
  }
}

template <class T, class Op>
void reduce(const std::vector<const void*>& sources, std::span<const Target> targets,
            std::int64_t count) {
  const auto store_block = [&](auto& block, std::int64_t at) {
    for (const Target& target : targets) {
      T* const to = static_cast<T*>(target.to) + at;
      store(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(block.data()),
            block.bytes(), before_line(to, 64) == 0 ? target.stores : Stores::ordinary);
    }
  };
  // Blocks start at a line of the first target, as the others most often do too.
  const std::int64_t head = before_line(targets[0].to, count * sizeof(T)) / sizeof(T);
  reduce_blocks<T>(sources, 0, head, Op{}, store_block);
  reduce_blocks<T>(sources, head, count, Op{}, store_block);
  finish(targets);
}

void copy_to(const Target& target, std::int64_t first, const std::byte* from, std::int64_t bytes) {
  std::byte* const to = static_cast<std::byte*>(target.to) + first;
  const std::int64_t head = before_line(to, bytes);
  if (head > 0) __builtin_memcpy(to, from, head);
  store(to + head, from + head, bytes - head, target.stores);
}

void copy(const void* from, std::span<const Target> targets, std::int64_t bytes) {
  const auto* source = static_cast<const std::byte*>(from);
  if (targets.size() == 1 && targets[0].stores == Stores::ordinary) {
    __builtin_memcpy(targets[0].to, from, bytes);
    return;
  }
  // Several targets get a few lines in turn, which are read once.
  const std::int64_t block = targets.size() == 1 ? bytes : 512;
  for (std::int64_t at = 0; at < bytes; at += block) {
    for (const Target& target : targets)
      copy_to(target, at, source + at, std::min(block, bytes - at));
  }
  finish(targets);
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
