// What kernels take from their call. Part of cpu_kernels.cc.
#pragma once

#include <cstdint>

#include "workloads/ops/cpu_isa.h"
#include "workloads/ops/team.h"

namespace mb {
namespace {

constexpr SerialTeam kTeam;

// Type of row statistics, gates and sums beside elements of type T: main_dtype.
template <class T>
using Main = T;

// Operand `index`, of the operation's element type unless U says otherwise.
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

}  // namespace
}  // namespace mb
