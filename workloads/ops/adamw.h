// Optimizer updates, and the scale that both put on the gradient.
#pragma once

#include "workloads/ops/op.h"
#include "workloads/ops/scalar_math.h"
#include "workloads/ops/team.h"

namespace mb {

// 1 / valid tokens * min(1, clip / (norm + 1e-6)), the norm being that of the divided gradient.
static MB_HD double gradient_scale(const double* scalars, double clip) {
  const double tokens = scalars[1] > 1 ? scalars[1] : 1;
  if (clip == 0) return 1 / tokens;
  const double ratio = clip / (root_of(scalars[2]) / tokens + 1e-6);
  return (ratio < 1 ? ratio : 1) / tokens;
}

// base^(step) for a whole step >= 0.
static MB_HD double power_of(double base, std::int64_t step) {
  double result = 1;
  for (; step > 0; step /= 2, base *= base) {
    if (step % 2) result *= base;
  }
  return result;
}

// `step` counts from 0. Loshchilov and Hutter, 2019, in PyTorch's order of operations.
template <class Team, class T>
static MB_HD void adamw(Team team, const AdamW& op, double scale, std::int64_t step,
                        const T* gradient, T* parameter, T* m, T* v) {
  const T g_scale = T(scale), beta1 = T(op.beta1), beta2 = T(op.beta2), epsilon = T(op.epsilon);
  const T rest1 = T(1 - op.beta1), rest2 = T(1 - op.beta2);
  const T keep = T(1 - op.learning_rate * op.weight_decay);
  const T rate = T(op.learning_rate / (1 - power_of(op.beta1, step + 1)));
  const T root_correction = T(1 / root_of(1 - power_of(op.beta2, step + 1)));
  team.for_each(op.n, [=](std::int64_t i) {
    const T g = gradient[i] * g_scale;
    const T m_new = beta1 * m[i] + rest1 * g;
    const T v_new = beta2 * v[i] + rest2 * g * g;
    m[i] = m_new;
    v[i] = v_new;
    parameter[i] =
        keep * parameter[i] - rate * m_new / (root_of(v_new) * root_correction + epsilon);
  });
}

template <class Team, class T>
static MB_HD void sgd(Team team, const Sgd& op, double scale, const T* gradient, T* parameter) {
  const T rate = T(op.learning_rate * scale);
  team.for_each(op.n, [=](std::int64_t i) { parameter[i] -= rate * gradient[i]; });
}

}  // namespace mb
