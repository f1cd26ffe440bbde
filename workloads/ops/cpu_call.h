// How kernels reach their operands. Part of cpu_kernels.cc.
#pragma once

#include <cstdint>

#include "workloads/base/half.h"
#include "workloads/ops/activation.h"
#include "workloads/ops/cpu_isa.h"
#include "workloads/ops/operands.h"
#include "workloads/ops/scratch.h"
#include "workloads/ops/team.h"

namespace mb {
namespace {

constexpr SerialTeam kTeam;

template <class T>
void fill_zero(T* x, std::int64_t n) {
  __builtin_memset(x, 0, sizeof(T) * n);
}
template <class T>
void copy(const T* x, T* y, std::int64_t n) {
  __builtin_memcpy(y, x, sizeof(T) * n);
}

// Where kernels have fp32 and fp64 alone: 16-bit operands in fp32 scratch, others as they are.
template <class T>
const Main<T>* widen(const T* x, std::int64_t n, Scratch use) {
  if constexpr (kIsMain<T>) {
    return x;
  } else {
    auto* wide = static_cast<Main<T>*>(thread_scratch(use, sizeof(Main<T>) * n));
    convert(kTeam, x, wide, n);
    return wide;
  }
}
// Room for a result that narrow() brings to y; with the values of y if they are added to.
template <class T>
Main<T>* widen_result(T* y, std::int64_t n, Scratch use, bool accumulate = false) {
  if constexpr (kIsMain<T>) return y;
  if (accumulate) return const_cast<Main<T>*>(widen(y, n, use));
  return static_cast<Main<T>*>(thread_scratch(use, sizeof(Main<T>) * n));
}
template <class T>
void narrow(const Main<T>* wide, T* y, std::int64_t n) {
  if constexpr (!kIsMain<T>) convert(kTeam, wide, y, n);
}

}  // namespace
}  // namespace mb
