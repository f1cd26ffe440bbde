// LayerNorm and RMSNorm of one row of n elements, forward and backward.
#pragma once

#include "workloads/ops/scalar_math.h"
#include "workloads/ops/team.h"

namespace mb {

// y = (x - mean) * rstd * w + b.
template <class Team, class T>
static MB_HD void layer_norm_row(Team team, const T* x, const T* w, const T* b, T* y, T* rstd,
                                 T* mean, std::int64_t n, T epsilon) {
  const T center = team.template sum<T>(n, [=](std::int64_t i) { return x[i]; }) / T(n);
  const T variance = team.template sum<T>(n, [=](std::int64_t i) {
    const T d = x[i] - center;
    return d * d;
  }) / T(n);
  const T scale = T(1) / root_of(variance + epsilon);
  team.for_each(n, [=](std::int64_t i) { y[i] = (x[i] - center) * scale * w[i] + b[i]; });
  *rstd = scale;
  *mean = center;
}

// y = x * rstd * w.
template <class Team, class T>
static MB_HD void rms_norm_row(Team team, const T* x, const T* w, T* y, T* rstd, std::int64_t n,
                               T epsilon) {
  const T squares = team.template sum<T>(n, [=](std::int64_t i) { return x[i] * x[i]; });
  const T scale = T(1) / root_of(squares / T(n) + epsilon);
  team.for_each(n, [=](std::int64_t i) { y[i] = x[i] * scale * w[i]; });
  *rstd = scale;
}

// dx of one row, plus the row of `residual` unless it is null. RMSNorm is the case mean = 0 without
// the gradient through the mean.
template <bool kLayer, class Team, class T>
static MB_HD void norm_gradient_row(Team team, const T* dy, const T* x, const T* w, T rstd, T mean,
                                    const T* residual, T* dx, std::int64_t n) {
  const T along_one =
      kLayer ? team.template sum<T>(n, [=](std::int64_t i) { return dy[i] * w[i]; }) / T(n) : T(0);
  const T along_x = team.template sum<T>(n, [=](std::int64_t i) {
    return dy[i] * w[i] * ((x[i] - mean) * rstd);
  }) / T(n);
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
template <class Team, class T>
static MB_HD void norm_weight_gradient_row(Team team, const T* dy, const T* x, T rstd, T mean,
                                           T* dw, T* db, std::int64_t n) {
  team.for_each(n, [=](std::int64_t i) { dw[i] += dy[i] * ((x[i] - mean) * rstd); });
  if (db) team.for_each(n, [=](std::int64_t i) { db[i] += dy[i]; });
}

}  // namespace mb
