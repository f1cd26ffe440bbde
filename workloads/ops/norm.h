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
  const auto itself = [](std::int64_t, M a) { return a; };
  const M center = team.template sum<M>(n, itself, x) / M(n);
  const auto square = [=](std::int64_t, M a) {
    const M d = a - center;
    return d * d;
  };
  const M variance = team.template sum<M>(n, square, x) / M(n);
  const M scale = M(1) / root_of(variance + epsilon);
  const auto one = [=](std::int64_t, T& to, M a, M weight, M bias) {
    to = (a - center) * scale * weight + bias;
  };
  team.for_each(n, one, y, x, w, b);
  *rstd = scale;
  *mean = center;
}

// y = x * rstd * w.
template <class Team, class T, class M>
static MB_HD void rms_norm_row(Team team, const T* x, const T* w, T* y, M* rstd, std::int64_t n,
                               M epsilon) {
  const auto square = [](std::int64_t, M a) { return a * a; };
  const M squares = team.template sum<M>(n, square, x);
  const M scale = M(1) / root_of(squares / M(n) + epsilon);
  team.for_each(
      n, [=](std::int64_t, T& to, M a, M weight) { to = a * scale * weight; }, y, x, w);
  *rstd = scale;
}

// dx of one row, plus the row of `residual` unless it is null. RMSNorm is the case mean = 0 without
// the gradient through the mean.
template <bool kLayer, class Team, class T, class M>
static MB_HD void norm_gradient_row(Team team, const T* dy, const T* x, const T* w, M rstd, M mean,
                                    const T* residual, T* dx, std::int64_t n) {
  const auto weighted = [](std::int64_t, M d, M weight) { return d * weight; };
  const auto normed = [=](std::int64_t, M d, M a, M weight) {
    return d * weight * ((a - mean) * rstd);
  };
  const M along_one = kLayer ? team.template sum<M>(n, weighted, dy, w) / M(n) : M(0);
  const M along_x = team.template sum<M>(n, normed, dy, x, w) / M(n);
  const auto through = [=](M d, M a, M weight) {
    return rstd * (d * weight - along_one - (a - mean) * rstd * along_x);
  };
  if (residual) {
    const auto one = [=](std::int64_t, T& to, M d, M a, M weight, M more) {
      to = through(d, a, weight) + more;
    };
    team.for_each(n, one, dx, dy, x, w, residual);
  } else {
    const auto one = [=](std::int64_t, T& to, M d, M a, M weight) { to = through(d, a, weight); };
    team.for_each(n, one, dx, dy, x, w);
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
