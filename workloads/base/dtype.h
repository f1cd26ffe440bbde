// Element types of tensors.
#pragma once

#include <cstdint>
#include <string_view>

namespace mb {

// Training uses the first five; communicators carry all.
enum class DType : std::uint8_t {
  fp32,
  fp64,
  bf16,
  fp16,
  int32,
  int8,
  uint8,
  uint32,
  int64,
  uint64
};
inline constexpr int kDTypes = 10;

constexpr int size_of(DType type) {
  switch (type) {
    case DType::fp64:
    case DType::int64:
    case DType::uint64:
      return 8;
    case DType::bf16:
    case DType::fp16:
      return 2;
    case DType::int8:
    case DType::uint8:
      return 1;
    case DType::fp32:
    case DType::int32:
    case DType::uint32:
      return 4;
  }
  return 0;
}

constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::fp32:
      return "fp32";
    case DType::fp64:
      return "fp64";
    case DType::bf16:
      return "bf16";
    case DType::fp16:
      return "fp16";
    case DType::int32:
      return "int32";
    case DType::int8:
      return "int8";
    case DType::uint8:
      return "uint8";
    case DType::uint32:
      return "uint32";
    case DType::int64:
      return "int64";
    case DType::uint64:
      return "uint64";
  }
  return "?";
}

// What gradients, optimizer state and row statistics are kept in: fp32 beside 16-bit parameters.
constexpr DType main_dtype(DType type) {
  return type == DType::bf16 || type == DType::fp16 ? DType::fp32 : type;
}

}  // namespace mb
