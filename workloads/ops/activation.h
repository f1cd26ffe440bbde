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
  const auto one = [](std::int64_t, T& to, M x) {
    to = x * sigmoid(M(kGeluSlope) * (x + M(kGeluCubic) * x * x * x));
  };
  team.for_each(n, one, y, u);
}

template <class Team, class T>
static MB_HD void gelu_gradient(Team team, const T* dy, const T* u, T* du, std::int64_t n) {
  using M = Main<T>;
  const auto one = [](std::int64_t, T& to, M d, M x) {
    const M s = sigmoid(M(kGeluSlope) * (x + M(kGeluCubic) * x * x * x));
    const M slope = M(kGeluSlope) * (M(1) + M(3 * kGeluCubic) * x * x);
    to = d * (s + x * s * (M(1) - s) * slope);
  };
  team.for_each(n, one, du, dy, u);
}

// One row: gate[n] and up[n] to y[n].
template <class Team, class T>
static MB_HD void swiglu_row(Team team, const T* gate, const T* up, T* y, std::int64_t n) {
  using M = Main<T>;
  team.for_each(
      n, [](std::int64_t, T& to, M g, M u) { to = g * sigmoid(g) * u; }, y, gate, up);
}

template <class Team, class T>
static MB_HD void swiglu_gradient_row(Team team, const T* dy, const T* gate, const T* up, T* dgate,
                                      T* dup, std::int64_t n) {
  using M = Main<T>;
  const auto one = [](std::int64_t, T& to_gate, T& to_up, M d, M g, M u) {
    const M s = sigmoid(g);
    const M silu = g * s;
    to_gate = d * u * (s + silu * (M(1) - s));
    to_up = d * silu;
  };
  team.for_each(n, one, dgate, dup, dy, gate, up);
}

// y = a + b, and + bias unless it is null.
template <class Team, class T>
static MB_HD void add_row(Team team, const T* a, const T* b, const T* bias, T* y, std::int64_t n) {
  using M = Main<T>;
  if (bias) {
    team.for_each(
        n, [](std::int64_t, T& to, M p, M q, M r) { to = p + q + r; }, y, a, b, bias);
  } else {
    team.for_each(
        n, [](std::int64_t, T& to, M p, M q) { to = p + q; }, y, a, b);
  }
}

// y = dropout(a (+ bias)) + b, where `index` is that of a[0].
template <class Team, class T>
static MB_HD void add_dropped_row(Team team, const T* a, const T* b, const T* bias, T* y,
                                  std::int64_t n, const DropoutMask& mask, std::int64_t index) {
  using M = Main<T>;
  if (bias) {
    const auto one = [=](std::int64_t i, T& to, M p, M q, M r) {
      to = dropout_of(mask, index + i, p + r) + q;
    };
    team.for_each(n, one, y, a, b, bias);
  } else {
    const auto one = [=](std::int64_t i, T& to, M p, M q) {
      to = dropout_of(mask, index + i, p) + q;
    };
    team.for_each(n, one, y, a, b);
  }
}

// y += x, whose elements may be smaller than those of y.
template <class Team, class T, class U>
static MB_HD void add_to(Team team, const T* x, U* y, std::int64_t n) {
  const U* const before = y;
  team.for_each(
      n, [](std::int64_t, U& to, Main<U> sum, Main<T> more) { to = sum + more; }, y, before, x);
}

// y = x in another type.
template <class Team, class T, class U>
static MB_HD void convert(Team team, const T* x, U* y, std::int64_t n) {
  team.for_each(
      n, [](std::int64_t, U& to, Main<T> from) { to = from; }, y, x);
}

}  // namespace mb
