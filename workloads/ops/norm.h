// LayerNorm and RMSNorm of one row of n elements, forward and backward.
#pragma once

#include "workloads/base/half.h"
#include "workloads/ops/scalar_math.h"
#include "workloads/ops/team.h"

namespace mb {

// y = (x - mean) * rstd * w + b.
template <class Team, class T, class M>
static MB_HD void layer_norm_row(Team team, const T* x, const T* w, const T* b, T* y, M* rstd,
                                 M* mean, std::int64_t n, M epsilon) {
  const M center = team.template sum<M>(n, [=](std::int64_t i) { return x[i]; }) / M(n);
  const M variance = team.template sum<M>(n, [=](std::int64_t i) {
    const M d = x[i] - center;
    return d * d;
  }) / M(n);
  const M scale = M(1) / root_of(variance + epsilon);
  team.for_each(n, [=](std::int64_t i) { y[i] = (x[i] - center) * scale * w[i] + b[i]; });
  *rstd = scale;
  *mean = center;
}

// y = x * rstd * w.
template <class Team, class T, class M>
static MB_HD void rms_norm_row(Team team, const T* x, const T* w, T* y, M* rstd, std::int64_t n,
                               M epsilon) {
  const M squares = team.template sum<M>(n, [=](std::int64_t i) { return x[i] * x[i]; });
  const M scale = M(1) / root_of(squares / M(n) + epsilon);
  team.for_each(n, [=](std::int64_t i) { y[i] = x[i] * scale * w[i]; });
  *rstd = scale;
}

// dx of one row, plus the row of `residual` unless it is null. RMSNorm is the case mean = 0 without
// the gradient through the mean.
template <bool kLayer, class Team, class T, class M>
static MB_HD void norm_gradient_row(Team team, const T* dy, const T* x, const T* w, M rstd, M mean,
                                    const T* residual, T* dx, std::int64_t n) {
  const M along_one =
      kLayer ? team.template sum<M>(n, [=](std::int64_t i) { return dy[i] * w[i]; }) / M(n) : M(0);
  const M along_x = team.template sum<M>(n, [=](std::int64_t i) {
    return dy[i] * w[i] * ((x[i] - mean) * rstd);
  }) / M(n);
  const auto through = [=](std::int64_t i) {
    return rstd * (dy[i] * w[i] - along_one - (x[i] - mean) * rstd * along_x);
  };
  if (residual) {
    team.for_each(n, [=](std::int64_t i) { dx[i] = through(i) + residual[i]; });
  } else {
    team.for_each(n, [=](std::int64_t i) { dx[i] = through(i); });
  }
}

// Adds one row's share to dw, and to db unless it is null.
template <class Team, class T, class M>
static MB_HD void norm_weight_gradient_row(Team team, const T* dy, const T* x, M rstd, M mean,
                                           M* dw, M* db, std::int64_t n) {
  team.for_each(n, [=](std::int64_t i) { dw[i] += dy[i] * ((x[i] - mean) * rstd); });
  if (db) team.for_each(n, [=](std::int64_t i) { db[i] += dy[i]; });
}

}  // namespace mb
