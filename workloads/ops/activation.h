// Element-wise activations and sums.
#pragma once

#include "workloads/base/half.h"
#include "workloads/ops/dropout.h"
#include "workloads/ops/scalar_math.h"
#include "workloads/ops/team.h"

namespace mb {

// 2 * sqrt(2 / pi) and the cubic term of GPT-2's GELU: 0.5 (1 + tanh(z)) = sigmoid(2 z).
inline constexpr double kGeluSlope = 1.5957691216057308;
inline constexpr double kGeluCubic = 0.044715;

template <class Team, class T>
static MB_HD void gelu(Team team, const T* u, T* y, std::int64_t n) {
  using M = Main<T>;
  team.for_each(n, [=](std::int64_t i) {
    const M x = u[i];
    y[i] = x * sigmoid(M(kGeluSlope) * (x + M(kGeluCubic) * x * x * x));
  });
}

template <class Team, class T>
static MB_HD void gelu_gradient(Team team, const T* dy, const T* u, T* du, std::int64_t n) {
  using M = Main<T>;
  team.for_each(n, [=](std::int64_t i) {
    const M x = u[i];
    const M s = sigmoid(M(kGeluSlope) * (x + M(kGeluCubic) * x * x * x));
    const M slope = M(kGeluSlope) * (M(1) + M(3 * kGeluCubic) * x * x);
    du[i] = dy[i] * (s + x * s * (M(1) - s) * slope);
  });
}

// One row: gate[n] and up[n] to y[n].
template <class Team, class T>
static MB_HD void swiglu_row(Team team, const T* gate, const T* up, T* y, std::int64_t n) {
  team.for_each(n, [=](std::int64_t i) {
    const Main<T> g = gate[i];
    y[i] = g * sigmoid(g) * up[i];
  });
}

template <class Team, class T>
static MB_HD void swiglu_gradient_row(Team team, const T* dy, const T* gate, const T* up, T* dgate,
                                      T* dup, std::int64_t n) {
  using M = Main<T>;
  team.for_each(n, [=](std::int64_t i) {
    const M g = gate[i];
    const M s = sigmoid(g);
    const M silu = g * s;
    const M d = dy[i];
    dgate[i] = d * up[i] * (s + silu * (M(1) - s));
    dup[i] = d * silu;
  });
}

// y = a + b, and + bias unless it is null.
template <class Team, class T>
static MB_HD void add_row(Team team, const T* a, const T* b, const T* bias, T* y, std::int64_t n) {
  if (bias) {
    team.for_each(n, [=](std::int64_t i) { y[i] = a[i] + b[i] + bias[i]; });
  } else {
    team.for_each(n, [=](std::int64_t i) { y[i] = a[i] + b[i]; });
  }
}

// y = dropout(a (+ bias)) + b, where `index` is that of a[0].
template <class Team, class T>
static MB_HD void add_dropped_row(Team team, const T* a, const T* b, const T* bias, T* y,
                                  std::int64_t n, const DropoutMask& mask, std::int64_t index) {
  using M = Main<T>;
  if (bias) {
    team.for_each(
        n, [=](std::int64_t i) { y[i] = dropout_of(mask, index + i, M(a[i] + bias[i])) + b[i]; });
  } else {
    team.for_each(n, [=](std::int64_t i) { y[i] = dropout_of(mask, index + i, M(a[i])) + b[i]; });
  }
}

// y += x, whose elements may be smaller than those of y.
template <class Team, class T, class U>
static MB_HD void add_to(Team team, const T* x, U* y, std::int64_t n) {
  team.for_each(n, [=](std::int64_t i) { y[i] = y[i] + x[i]; });
}

// y = x in another type.
template <class Team, class T, class U>
static MB_HD void convert(Team team, const T* x, U* y, std::int64_t n) {
  team.for_each(n, [=](std::int64_t i) { y[i] = x[i]; });
}

}  // namespace mb
