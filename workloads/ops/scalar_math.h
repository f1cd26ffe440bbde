// exp, log, sigmoid and square root. fp32 without branches or library calls, so that loops
// vectorise; fp64 by the C library.
#pragma once

#include <cstdint>

#include "workloads/ops/team.h"

namespace mb {

// Within 2 ulp; 0 below -87, constant above 88.37, NaN stays. Polynomial of Cephes' expf.
static MB_HD float exp_of(float x) {
  float y = x < -87.0f ? -87.0f : x;
  y = y > 88.37f ? 88.37f : y;
  const float shifted = y * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const float n = shifted - 12582912.0f;
  const float r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const std::uint32_t power = (__builtin_bit_cast(std::uint32_t, shifted) + 127u) << 23;
  return x < -87.0f ? 0.0f : p * __builtin_bit_cast(float, power);
}
static MB_HD double exp_of(double x) { return __builtin_exp(x); }

static MB_HD float log_of(float x) { return __builtin_logf(x); }
static MB_HD double log_of(double x) { return __builtin_log(x); }

static MB_HD float root_of(float x) { return __builtin_sqrtf(x); }
static MB_HD double root_of(double x) { return __builtin_sqrt(x); }

static MB_HD float sigmoid(float x) { return 1.0f / (1.0f + exp_of(-x)); }
static MB_HD double sigmoid(double x) { return 1.0 / (1.0 + exp_of(-x)); }

}  // namespace mb
