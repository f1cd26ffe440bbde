// Sums and maxima over the members' buffers, always in the order of the members: for 16-bit types
// in fp32 and rounded once. Some of the sources that include this are compiled for each instruction
// set, so that nothing here has external linkage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "parallel/comm/collective.h"
#include "workloads/base/dtype.h"
#include "workloads/base/half.h"
#include "workloads/base/mutation.h"

namespace mb {
namespace {

// Integers are added and multiplied modulo 2 to the number of their bits.
struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
struct Prod {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    } else {
      return a * b;
    }
  }
};
// NaN if either is.
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a >= b || a != a ? a : b;
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return a <= b || a != a ? a : b;
  }
};
struct Avg : Sum {};  // divided once all are added

// Of a sum over more members than T itself may count to.
template <class T>
T divided(T sum, int members) {
  using Wide = std::common_type_t<T, int>;
  return static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(members));
}

// A block of a reduction: a few cache lines, so that what is read and what is written overlap.
template <class T>
class Block {
 public:
  static constexpr std::int64_t capacity = 512 / sizeof(Main<T>);

  // Elements [begin, begin + count) of buffers[0] op buffers[1] op ..., at most `capacity`.
  template <class Op>
  void reduce(const std::vector<const void*>& buffers, std::int64_t begin, std::int64_t count,
              Op op) {
    count_ = count;
    // Loops of a known length, but for the last block.
    count == capacity ? reduce(buffers, begin, op, std::integral_constant<int, capacity>())
                      : reduce(buffers, begin, op, static_cast<int>(count));
  }

  // What has been reduced.
  const T* data() const {
    if constexpr (kIsMain<T>) return wide_;
    if constexpr (!kIsMain<T>) return rounded_;
  }
  std::int64_t bytes() const { return count_ * static_cast<std::int64_t>(sizeof(T)); }

  void store(void* to, std::int64_t begin) {
    std::memcpy(static_cast<T*>(to) + begin, data(), bytes());
  }

 private:
  T* stored() {
    if constexpr (kIsMain<T>) return wide_;
    if constexpr (!kIsMain<T>) return rounded_;
  }

  template <class Op, class Count>
  void reduce(const std::vector<const void*>& buffers, std::int64_t begin, Op op, Count count) {
    const auto from = [&](std::size_t k) { return static_cast<const T*>(buffers[k]) + begin; };
    if (buffers.size() == 1) {
      for (int i = 0; i < count; ++i) stored()[i] = from(0)[i];
      return;
    }
    combine(wide_, from(0), from(1), op, count);
    for (std::size_t k = 2; k < buffers.size(); ++k) append(wide_, from(k), op, count);
    const bool divide =
        std::is_same_v<Op, Avg> || (mutated("mean_instead_of_sum") && std::is_same_v<Op, Sum>);
    if (divide) {
      const int members = static_cast<int>(buffers.size());
      for (int i = 0; i < count; ++i) wide_[i] = divided(wide_[i], members);
    }
    if constexpr (!kIsMain<T>) {
      for (int i = 0; i < count; ++i) rounded_[i] = T(wide_[i]);
    }
  }

  template <class Op, class Count>
  static void combine(Main<T>* __restrict to, const T* __restrict a, const T* __restrict b, Op op,
                      Count count) {
    for (int i = 0; i < count; ++i)
      to[i] = op(static_cast<Main<T>>(a[i]), static_cast<Main<T>>(b[i]));
  }
  template <class Op, class Count>
  static void append(Main<T>* __restrict to, const T* __restrict more, Op op, Count count) {
    for (int i = 0; i < count; ++i) to[i] = op(to[i], static_cast<Main<T>>(more[i]));
  }

  std::int64_t count_ = 0;
  alignas(64) Main<T> wide_[capacity];
  alignas(64) T rounded_[kIsMain<T> ? 1 : capacity];
};

// Calls store(block, at) for one block after another of elements [begin, end) of the reduction.
template <class T, class Op, class Store>
void reduce_blocks(const std::vector<const void*>& buffers, std::int64_t begin, std::int64_t end,
                   Op op, Store store) {
  Block<T> block;
  for (std::int64_t at = begin; at < end; at += Block<T>::capacity) {
    block.reduce(buffers, at, std::min(Block<T>::capacity, end - at), op);
    store(block, at);
  }
}

// Calls fn(T{}, op).
template <class Fn>
constexpr void dispatch(DType type, ReduceOp op, Fn fn) {
  const auto with_op = [&](auto zero) {
    switch (op) {
      case ReduceOp::sum:
        return fn(zero, Sum{});
      case ReduceOp::prod:
        return fn(zero, Prod{});
      case ReduceOp::min:
        return fn(zero, Min{});
      case ReduceOp::max:
        return fn(zero, Max{});
      case ReduceOp::avg:
        return fn(zero, Avg{});
    }
  };
  switch (type) {
    case DType::fp32:
      return with_op(float{});
    case DType::fp64:
      return with_op(double{});
    case DType::bf16:
      return with_op(Bf16{});
    case DType::fp16:
      return with_op(Fp16{});
    case DType::int32:
      return with_op(std::int32_t{});
    case DType::int8:
      return with_op(std::int8_t{});
    case DType::uint8:
      return with_op(std::uint8_t{});
    case DType::uint32:
      return with_op(std::uint32_t{});
    case DType::int64:
      return with_op(std::int64_t{});
    case DType::uint64:
      return with_op(std::uint64_t{});
  }
}

}  // namespace
// Sums over `members`, in place, to their means.
inline void divide_all(void* data, std::int64_t count, DType type, int members) {
  dispatch(type, ReduceOp::sum, [&](auto zero, auto) {
    using T = decltype(zero);
    auto* values = static_cast<T*>(data);
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = T(divided(static_cast<Main<T>>(values[i]), members));
  });
}

}  // namespace mb
