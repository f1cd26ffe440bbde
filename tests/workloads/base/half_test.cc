#include "workloads/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mb {
namespace {

template <class T>
T of_bits(std::uint32_t bits) {
  T half;
  half.bits = static_cast<std::uint16_t>(bits);
  return half;
}

template <class T>
class Half : public testing::Test {
 public:
  static constexpr std::uint32_t infinity = std::is_same_v<T, Bf16> ? 0x7f80 : 0x7c00;
  // Of positive bits; those of infinity stand for the power of two that would come next.
  static double value(std::uint32_t bits) {
    const int fraction_bits = std::is_same_v<T, Bf16> ? 7 : 10;
    const int bias = std::is_same_v<T, Bf16> ? 127 : 15;
    const auto exponent = static_cast<int>(bits >> fraction_bits);
    const auto fraction = static_cast<int>(bits & ((1u << fraction_bits) - 1));
    const int whole = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
    return std::ldexp(whole, std::max(exponent, 1) - bias - fraction_bits);
  }
};
using Halves = testing::Types<Bf16, Fp16>;
TYPED_TEST_SUITE(Half, Halves);

TYPED_TEST(Half, HasTheValueThatItsBitsSay) {
  for (std::uint32_t bits = 0; bits < this->infinity; ++bits) {
    ASSERT_EQ(static_cast<float>(of_bits<TypeParam>(bits)), this->value(bits)) << bits;
    ASSERT_EQ(static_cast<float>(of_bits<TypeParam>(bits | 0x8000)), -this->value(bits)) << bits;
  }
}

// Every place where the result changes: halfway between two neighbours, and just beside it.
TYPED_TEST(Half, RoundsToTheNearestAndTiesToEven) {
  constexpr float up = std::numeric_limits<float>::infinity();
  for (std::uint32_t bits = 0; bits < this->infinity; ++bits) {
    const auto value = static_cast<float>(this->value(bits));
    const auto half = static_cast<float>((this->value(bits) + this->value(bits + 1)) / 2);
    ASSERT_EQ(TypeParam(value).bits, bits);
    ASSERT_EQ(TypeParam(half).bits, bits + bits % 2) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(half, 0.0f)).bits, bits);
    ASSERT_EQ(TypeParam(std::nextafter(half, up)).bits, bits + 1);
    ASSERT_EQ(TypeParam(-half).bits, (bits + bits % 2) | 0x8000);
  }
}

TYPED_TEST(Half, KeepsInfinitiesAndNans) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(TypeParam(infinity).bits, this->infinity);
  EXPECT_EQ(static_cast<float>(TypeParam(-infinity)), -infinity);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::max()).bits, this->infinity);
  for (std::uint32_t bits = this->infinity + 1; bits < 0x8000; ++bits)
    ASSERT_TRUE(std::isnan(static_cast<float>(of_bits<TypeParam>(bits)))) << bits;
  for (const std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffc00000u}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(std::bit_cast<float>(bits)))));
  }
}

}  // namespace
}  // namespace mb
