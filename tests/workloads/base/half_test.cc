#include "workloads/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mb {
namespace {

// Value of a 16-bit pattern with so many bits of exponent and mantissa, by IEEE 754's words.
double value_of(std::uint32_t pattern, int exponent_bits, int mantissa_bits) {
  const int top = (1 << exponent_bits) - 1, bias = top / 2;
  const double sign = pattern >> 15 ? -1 : 1;
  const int exponent = static_cast<int>(pattern >> mantissa_bits) & top;
  const double fraction = std::ldexp(pattern & ((1u << mantissa_bits) - 1), -mantissa_bits);
  if (exponent == top) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias)
                       : sign * std::ldexp(1 + fraction, exponent - bias);
}

template <class Half>
Half half_of(std::uint32_t pattern) {
  Half half;
  half.bits = static_cast<std::uint16_t>(pattern);
  return half;
}

// Every pattern widens to its value and back to itself; the middle between two neighbours goes to
// the even one, and what is just beside the middle to the nearer one.
template <class Half>
void check_all_patterns(int exponent_bits, int mantissa_bits) {
  const std::uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  for (std::uint32_t p = 0; p < 0x10000; ++p) {
    const double value = value_of(p, exponent_bits, mantissa_bits);
    const float wide = half_of<Half>(p);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(wide)) << p;
      ASSERT_TRUE(std::isnan(float(Half(wide)))) << p;
      continue;
    }
    ASSERT_EQ(wide, value) << p;
    ASSERT_EQ(std::signbit(wide), p >> 15 == 1) << p;
    ASSERT_EQ(Half(wide).bits, p);
    if ((p & 0x7fff) >= infinity) continue;
    // Beyond the largest finite number stands what its successor would be.
    const double next = (p & 0x7fff) + 1 == infinity
                            ? std::copysign(std::ldexp(1.0, 1 << (exponent_bits - 1)), value)
                            : value_of(p + 1, exponent_bits, mantissa_bits);
    const auto middle = static_cast<float>((value + next) / 2);
    ASSERT_EQ(Half(middle).bits, p % 2 == 0 ? p : p + 1) << p;
    ASSERT_EQ(Half(std::nextafterf(middle, wide)).bits, p);
    ASSERT_EQ(Half(std::nextafterf(middle, static_cast<float>(2 * next))).bits, p + 1) << p;
  }
}

TEST(Half, EveryBf16WidensExactlyAndRoundsToNearestEven) { check_all_patterns<Bf16>(8, 7); }

TEST(Half, EveryFp16WidensExactlyAndRoundsToNearestEven) { check_all_patterns<Fp16>(5, 10); }

TEST(Half, LargeNumbersBecomeInfinityAndNotANumberStays) {
  EXPECT_EQ(float(Fp16(65504)), 65504);
  EXPECT_EQ(float(Fp16(65520)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(float(Fp16(-1e30f)), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(float(Bf16(3.4e38f)), std::numeric_limits<float>::infinity());
  // Its payload stands in the lower half alone.
  EXPECT_TRUE(std::isnan(float(Bf16(float_of(0x7f800001)))));
  EXPECT_TRUE(std::isnan(float(Fp16(float_of(0xff800001)))));
}

}  // namespace
}  // namespace mb
