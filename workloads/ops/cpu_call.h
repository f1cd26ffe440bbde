// How kernels reach their operands. Part of cpu_kernels.cc.
#pragma once

#include <cstdint>

#include "workloads/ops/cpu_isa.h"
#include "workloads/ops/scratch.h"
#include "workloads/ops/team.h"

namespace mb {
namespace {

constexpr SerialTeam kTeam;

template <class T>
using Main = T;

// Operand `index`, of the element type U.
template <class U, class Call>
const U* in(const Call& call, int index) {
  return static_cast<const U*>(call.reads[index]);
}
template <class U, class Call>
U* out(const Call& call, int index) {
  return static_cast<U*>(call.writes[index]);
}

template <class T>
void fill_zero(T* x, std::int64_t n) {
  __builtin_memset(x, 0, sizeof(T) * n);
}
template <class T>
void copy(const T* x, T* y, std::int64_t n) {
  __builtin_memcpy(y, x, sizeof(T) * n);
}

template <class T>
const Main<T>* widen(const T* x, std::int64_t, Scratch) {
  return x;
}
template <class T>
Main<T>* widen_result(T* y, std::int64_t, Scratch, bool = false) {
  return y;
}
template <class T>
void narrow(const Main<T>*, T*, std::int64_t) {}

}  // namespace
}  // namespace mb
