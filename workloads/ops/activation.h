// Element-wise activations and sums.
#pragma once

#include "workloads/ops/scalar_math.h"
#include "workloads/ops/team.h"

namespace mb {

// 2 * sqrt(2 / pi) and the cubic term of GPT-2's GELU: 0.5 (1 + tanh(z)) = sigmoid(2 z).
inline constexpr double kGeluSlope = 1.5957691216057308;
inline constexpr double kGeluCubic = 0.044715;

template <class Team, class T>
static MB_HD void gelu(Team team, const T* u, T* y, std::int64_t n) {
  team.for_each(n, [=](std::int64_t i) {
    const T x = u[i];
    y[i] = x * sigmoid(T(kGeluSlope) * (x + T(kGeluCubic) * x * x * x));
  });
}

template <class Team, class T>
static MB_HD void gelu_gradient(Team team, const T* dy, const T* u, T* du, std::int64_t n) {
  team.for_each(n, [=](std::int64_t i) {
    const T x = u[i];
    const T s = sigmoid(T(kGeluSlope) * (x + T(kGeluCubic) * x * x * x));
    const T slope = T(kGeluSlope) * (T(1) + T(3 * kGeluCubic) * x * x);
    du[i] = dy[i] * (s + x * s * (T(1) - s) * slope);
  });
}

// One row: gate[n] and up[n] to y[n].
template <class Team, class T>
static MB_HD void swiglu_row(Team team, const T* gate, const T* up, T* y, std::int64_t n) {
  team.for_each(n, [=](std::int64_t i) { y[i] = gate[i] * sigmoid(gate[i]) * up[i]; });
}

template <class Team, class T>
static MB_HD void swiglu_gradient_row(Team team, const T* dy, const T* gate, const T* up, T* dgate,
                                      T* dup, std::int64_t n) {
  team.for_each(n, [=](std::int64_t i) {
    const T g = gate[i];
    const T s = sigmoid(g);
    const T silu = g * s;
    const T d = dy[i];
    dgate[i] = d * up[i] * (s + silu * (T(1) - s));
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

// y += x.
template <class Team, class T>
static MB_HD void add_to(Team team, const T* x, T* y, std::int64_t n) {
  team.for_each(n, [=](std::int64_t i) { y[i] += x[i]; });
}

}  // namespace mb
