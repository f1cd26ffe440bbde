// Optimizer updates, and the scale that both put on the gradient.
#pragma once

#include "workloads/base/half.h"
#include "workloads/ops/op.h"
#include "workloads/ops/scalar_math.h"
#include "workloads/ops/team.h"

namespace mb {

// The numbers of UpdateParameters.
struct UpdateRule {
  double learning_rate, beta1, beta2, epsilon, weight_decay, clip;
};
static inline UpdateRule rule_of(const UpdateParameters& op) {
  return {op.learning_rate, op.beta1, op.beta2, op.epsilon, op.weight_decay, op.clip};
}

// 1 / (valid tokens * loss scale) * min(1, clip / (norm + 1e-6)), the norm being that of the
// divided gradient.
static MB_HD double gradient_scale(const double* scalars, double loss_scale, double clip) {
  const double divisor = (scalars[1] > 1 ? scalars[1] : 1) * loss_scale;
  if (clip == 0) return 1 / divisor;
  const double ratio = clip / (root_of(scalars[2]) / divisor + 1e-6);
  return (ratio < 1 ? ratio : 1) / divisor;
}

// base^(step) for a whole step >= 0.
static MB_HD double power_of(double base, std::int64_t step) {
  double result = 1;
  for (; step > 0; step /= 2, base *= base) {
    if (step % 2) result *= base;
  }
  return result;
}

// Updates `value` and writes it to `rounded` too, if that is of another type; `updates` counts this
// one. Loshchilov and Hutter, 2019, in PyTorch's order of operations.
template <class Team, class M, class T>
static MB_HD void adamw(Team team, const UpdateRule& op, double weight_decay, double scale,
                        std::int64_t updates, std::int64_t n, const M* gradient, M* value, M* m,
                        M* v, T* rounded) {
  const M g_scale = M(scale), beta1 = M(op.beta1), beta2 = M(op.beta2), epsilon = M(op.epsilon);
  const M rest1 = M(1 - op.beta1), rest2 = M(1 - op.beta2);
  const M keep = M(1 - op.learning_rate * weight_decay);
  const M rate = M(op.learning_rate / (1 - power_of(op.beta1, updates)));
  const M root_correction = M(1 / root_of(1 - power_of(op.beta2, updates)));
  const auto update = [=](M& to, M& to_m, M& to_v, M from, M before, M m_before, M v_before) {
    const M g = from * g_scale;
    const M m_new = beta1 * m_before + rest1 * g;
    const M v_new = beta2 * v_before + rest2 * g * g;
    to_m = m_new;
    to_v = v_new;
    return to = keep * before - rate * m_new / (root_of(v_new) * root_correction + epsilon);
  };
  const M *const value_now = value, *const m_now = m, *const v_now = v;
  if constexpr (kIsMain<T>) {
    const auto one = [=](std::int64_t, M& to, M& to_m, M& to_v, M g, auto... before) {
      update(to, to_m, to_v, g, before...);
    };
    team.for_each(n, one, value, m, v, gradient, value_now, m_now, v_now);
  } else {
    const auto one = [=](std::int64_t, T& to_rounded, M& to, M& to_m, M& to_v, M g,
                         auto... before) { to_rounded = update(to, to_m, to_v, g, before...); };
    team.for_each(n, one, rounded, value, m, v, gradient, value_now, m_now, v_now);
  }
}

template <class Team, class M, class T>
static MB_HD void sgd(Team team, double learning_rate, double scale, std::int64_t n,
                      const M* gradient, M* value, T* rounded) {
  const M rate = M(learning_rate * scale);
  const M* const now = value;
  if constexpr (kIsMain<T>) {
    team.for_each(
        n, [=](std::int64_t, M& to, M before, M g) { to = before - rate * g; }, value, now,
        gradient);
  } else {
    const auto one = [=](std::int64_t, T& to_rounded, M& to, M before, M g) {
      to_rounded = to = before - rate * g;
    };
    team.for_each(n, one, rounded, value, now, gradient);
  }
}

}  // namespace mb
