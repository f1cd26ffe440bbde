// 16-bit floating point as it lies in memory. Arithmetic is on the float that a value converts to;
// a float is rounded to the nearest value, ties to even, and a NaN stays one.
#pragma once

#include <bit>
#include <cstdint>

namespace mb {

// The upper half of a float: 8 bits of exponent, 7 of fraction.
struct Bf16 {
  std::uint16_t bits;

  Bf16() = default;
  explicit constexpr Bf16(float value) {
    const auto whole = std::bit_cast<std::uint32_t>(value);
    const bool nan = (whole & 0x7fffffffu) > 0x7f800000u;
    const std::uint32_t rounded = whole + 0x7fffu + (whole >> 16 & 1);
    bits = static_cast<std::uint16_t>((nan ? whole | 0x400000u : rounded) >> 16);
  }
  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

// IEEE 754 binary16: 5 bits of exponent, 10 of fraction; from 65520 on, infinity.
struct Fp16 {
  std::uint16_t bits;

  Fp16() = default;
  explicit constexpr Fp16(float value) {
    const auto whole = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = whole >> 16 & 0x8000u, size = whole & 0x7fffffffu;
    std::uint32_t half = 0;
    if (size > 0x7f800000u) {
      half = 0x7e00u;
    } else if (size >= 0x47800000u) {  // 2^16
      half = 0x7c00u;
    } else if (size < 0x38800000u) {  // below 2^-14: a sum whose last bit is worth 2^-24 rounds
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
    } else {
      half = (size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13;
    }
    bits = static_cast<std::uint16_t>(sign | half);
  }
  explicit constexpr operator float() const {
    const std::uint32_t sign = (bits & 0x8000u) << 16, size = (bits & 0x7fffu) << 13;
    std::uint32_t whole = 0;
    if (size >= 0x0f800000u) {  // infinity and NaN
      whole = size + 0x70000000u;
    } else if (size < 0x00800000u) {  // below 2^-14
      whole = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size + 0x38800000u) - 0x1p-14f);
    } else {
      whole = size + 0x38000000u;
    }
    return std::bit_cast<float>(sign | whole);
  }
};

static_assert(sizeof(Bf16) == 2 && sizeof(Fp16) == 2);

}  // namespace mb
