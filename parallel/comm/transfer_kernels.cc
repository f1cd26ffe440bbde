// Copies and reductions, for one instruction set. CMake compiles this file once for each, with
// MB_KERNELS naming the table that it defines; nothing else here has external linkage.
#include <algorithm>
#include <type_traits>

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
template <class Bytes>
void store(std::byte* to, const std::byte* from, Bytes bytes, Stores stores) {
  std::int64_t at = 0;
  if (stores == Stores::streaming) {
    for (; at + 64 <= bytes; at += 64) stream_64(to + at, from + at);
  } else {
    for (; at + 64 <= bytes; at += 64) __builtin_memcpy(to + at, from + at, 64);
  }
  for (; at < bytes; ++at) to[at] = from[at];
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
    constexpr std::int64_t whole = block.capacity * sizeof(T);
    for (const Target& target : targets) {
      auto* const to = reinterpret_cast<std::byte*>(static_cast<T*>(target.to) + at);
      const auto* from = reinterpret_cast<const std::byte*>(block.data());
      const Stores stores = before_line(to, 64) == 0 ? target.stores : Stores::ordinary;
      block.bytes() == whole
          ? store(to, from, std::integral_constant<std::int64_t, whole>(), stores)
          : store(to, from, block.bytes(), stores);
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
  for (std::int64_t at = 0; at < head; ++at) to[at] = from[at];
  store(to + head, from + head, bytes - head, target.stores);
}

void copy(const void* from, std::span<const Target> targets, std::int64_t bytes) {
  const auto* source = static_cast<const std::byte*>(from);
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
