// 16-bit floating point as it is stored; arithmetic is in fp32. Without branches, so that loops
// vectorise on any instruction set.
#pragma once

#include <cstdint>

#include "workloads/base/host_device.h"

namespace mb {

static MB_HD std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
static MB_HD float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// The upper half of an fp32 number. Rounds to nearest even; NaN stays NaN.
struct Bf16 {
  std::uint16_t bits;

  Bf16() = default;
  MB_HD Bf16(float x) {
    const std::uint32_t u = bits_of(x), rounded = u + 0x7fffu + (u >> 16 & 1u);
    bits = static_cast<std::uint16_t>(((u & 0x7fffffffu) > 0x7f800000u ? u | 0x400000u : rounded) >>
                                      16);
  }
  MB_HD operator float() const { return float_of(std::uint32_t{bits} << 16); }
};

// IEEE 754 binary16. Rounds to nearest even; infinity beyond 65504, NaN stays NaN. fp32 arithmetic
// does the shifts and the rounding, as in the library FP16 (Dukhan, 2017).
struct Fp16 {
  std::uint16_t bits;

  Fp16() = default;
  MB_HD Fp16(float x) {
    const std::uint32_t u = bits_of(x), twice = u + u;
    // 4 |x|, or infinity. Its sum with a power of two, so chosen that the last bit of fp32 stands
    // for the last of fp16, is rounded as fp16 is.
    const float magnitude = float_of(u & 0x7fffffffu) * 0x1p+112f * 0x1p-110f;
    const std::uint32_t exponent = twice & 0xff000000u;
    const std::uint32_t bias = exponent < 0x71000000u ? 0x71000000u : exponent;
    const std::uint32_t sum = bits_of(float_of((bias >> 1) + 0x07800000u) + magnitude);
    const std::uint32_t rounded = (sum >> 13 & 0x7c00u) + (sum & 0xfffu);
    bits =
        static_cast<std::uint16_t>((u >> 16 & 0x8000u) | (twice > 0xff000000u ? 0x7e00u : rounded));
  }
  MB_HD operator float() const {
    const std::uint32_t u = std::uint32_t{bits} << 16, twice = u + u;
    const float normal = float_of((twice >> 4) + (0xe0u << 23)) * 0x1p-112f;
    const float denormal = float_of((twice >> 17) | (126u << 23)) - 0.5f;
    return float_of((u & 0x80000000u) | bits_of(twice < (1u << 27) ? denormal : normal));
  }
};

// What sums, statistics and arithmetic are kept in: main_dtype() as a type.
template <class T>
struct MainOf {
  using Type = T;
};
template <>
struct MainOf<Bf16> {
  using Type = float;
};
template <>
struct MainOf<Fp16> {
  using Type = float;
};
template <class T>
using Main = typename MainOf<T>::Type;
template <class T>
inline constexpr bool kIsMain = sizeof(T) == sizeof(Main<T>);

}  // namespace mb
