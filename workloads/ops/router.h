// Rows of a router: which experts a token goes to, with which weights, and back.
#pragma once

#include <cstdint>

#include "workloads/ops/op.h"
#include "workloads/ops/softmax.h"
#include "workloads/ops/team.h"

namespace mb {

// Experts of the `top` largest logits, largest first; the lower number of equals. Numbers pass
// through M, which is exact up to 2^24.
template <class Team, class M>
static MB_HD void choose_row(Team team, const M* logits, std::int64_t experts, std::int64_t top,
                             std::int32_t* choice) {
  const M none = -static_cast<M>(__builtin_inff());
  for (std::int64_t j = 0; j < top; ++j) {
    const auto free = [=](std::int64_t e) {
      bool taken = false;
      for (std::int64_t i = 0; i < j; ++i) taken |= choice[i] == e;
      return !taken;
    };
    const M largest =
        team.template max<M>(experts, [=](std::int64_t e) { return free(e) ? logits[e] : none; });
    M chosen = team.template max<M>(
        experts, [=](std::int64_t e) { return free(e) && logits[e] == largest ? -M(e) : none; });
    if (chosen == none)  // what is left is not a number
      chosen =
          team.template max<M>(experts, [=](std::int64_t e) { return free(e) ? -M(e) : none; });
    team.for_each(1, [=](std::int64_t) { choice[j] = static_cast<std::int32_t>(-chosen); });
  }
}

// x = softmax(x).
template <class Team, class M>
static MB_HD void softmax_row(Team team, M* x, std::int64_t n) {
  const M max = max_row(team, x, n);
  const M scale = M(1) / exp_sum_row(team, x, max, n);
  team.for_each(n, [=](std::int64_t i) { x[i] = exp_of(x[i] - max) * scale; });
}

// gate = probabilities of the chosen, divided by their sum if there are several.
template <class Team, class M>
static MB_HD void gate_row(Team team, const M* probabilities, const std::int32_t* choice,
                           std::int64_t top, M* gate) {
  M sum = 0;
  for (std::int64_t j = 0; j < top; ++j) sum += probabilities[choice[j]];
  if (top == 1) sum = 1;
  team.for_each(top, [=](std::int64_t j) { gate[j] = probabilities[choice[j]] / sum; });
}

// Slope of the balance loss in a token's probability of an expert, for each choice of the expert.
static MB_HD double balance_slope(const Routing& r, double coefficient) {
  return coefficient * static_cast<double>(r.experts) / static_cast<double>(r.top * r.sequence);
}

// `choices` are the balance loss's counts for the sequence of the row, `slope` is balance_slope
// times the loss scale.
template <class Team, class T, class M>
static MB_HD void route_gradient_row(Team team, const M* d_gate, const M* probabilities,
                                     const std::int32_t* choice, const M* gate, const M* choices,
                                     M slope, std::int64_t experts, std::int64_t top, T* d_logits) {
  M sum = 1, common = 0;
  if (top > 1) {
    sum = 0;
    for (std::int64_t j = 0; j < top; ++j) sum += probabilities[choice[j]];
    for (std::int64_t j = 0; j < top; ++j) common += d_gate[j] * gate[j];
  }
  const auto d_probability = [=](std::int64_t e) {
    M d = slope * choices[e];
    for (std::int64_t j = 0; j < top; ++j)
      if (choice[j] == e) d += (d_gate[j] - common) / sum;
    return d;
  };
  const M dot = team.template sum<M>(
      experts, [=](std::int64_t e) { return probabilities[e] * d_probability(e); });
  team.for_each(experts,
                [=](std::int64_t e) { d_logits[e] = probabilities[e] * (d_probability(e) - dot); });
}

}  // namespace mb
