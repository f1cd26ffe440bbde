// Rows in packs of 16 bytes: how a lane of a GPU goes through the elements of operands, so that it
// loads and stores as wide as it can. For the teams of cuda_launch.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "workloads/base/host_device.h"

namespace mb::cuda {

inline constexpr int kPackBytes = 16;

// Elements of a pack where operands are of the types T: 16 bytes of the smallest, so that those of
// others are several.
template <class... T>
constexpr int pack_width() {
  int smallest = kPackBytes;
  ((smallest = static_cast<int>(sizeof(T)) < smallest ? static_cast<int>(sizeof(T)) : smallest),
   ...);
  return kPackBytes / smallest;
}

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth < kPackBytes ? sizeof(T) * kWidth : kPackBytes) Pack {
  T at[kWidth];
};

template <class... T>
MB_HD bool begin_packs(const T*... at) {
  return ((reinterpret_cast<std::uintptr_t>(at) % kPackBytes == 0) && ...);
}

template <int kWidth, class T>
MB_HD Pack<T, kWidth> load_pack(const T* at) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(at);
}
template <class T, int kWidth>
MB_HD void store_pack(T* at, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(at) = pack;
}

// `kWidth` elements in registers. Those of a const operand are loaded, those of others are stored
// once they are all computed.
template <class T, int kWidth>
struct Operand {
  MB_HD explicit Operand(T* at) : at_(at) {
    if constexpr (std::is_const_v<T>) pack_ = load_pack<kWidth>(at);
  }
  MB_HD T& operator[](int k) { return pack_.at[k]; }
  MB_HD void store() const {
    if constexpr (!std::is_const_v<T>) store_pack(at_, pack_);
  }

 private:
  using Value = std::remove_const_t<T>;
  T* at_;
  Pack<Value, kWidth> pack_;
};

// f(k, i + k, operand[k]...) for each k of a pack.
template <int kWidth, class F, class... Operands>
MB_HD void apply(std::int64_t i, const F& f, Operands... operands) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#else
#pragma omp simd
#endif
  for (int k = 0; k < kWidth; ++k) f(k, i + k, operands[k]...);
  (operands.store(), ...);
}

// f(i, std::integral_constant<int, width>) for what lane `lane` of `kLanes` has of n elements:
// packs of kWidth where the row is `wide`, and what they leave by one element.
template <int kLanes, int kWidth, class F>
MB_HD void visit_packs(std::int64_t lane, std::int64_t n, bool wide, const F& f) {
  const std::int64_t packs = wide ? n / kWidth : 0;
  for (std::int64_t pack = lane; pack < packs; pack += kLanes)
    f(pack * kWidth, std::integral_constant<int, kWidth>{});
  for (std::int64_t i = packs * kWidth + lane; i < n; i += kLanes)
    f(i, std::integral_constant<int, 1>{});
}

// f(k, i, at[i]...) for the elements of a lane, k being the place in a pack. Rows with fewer than
// kLeast packs, and those that do not begin at a multiple of 16 bytes, go by one element.
template <int kLanes, int kLeast, class F, class... T>
MB_HD void visit(std::int64_t lane, std::int64_t n, const F& f, T*... at) {
  constexpr int kWidth = pack_width<T...>();
  if constexpr (sizeof...(T) == 0 || kWidth == 1) {
    for (std::int64_t i = lane; i < n; i += kLanes) f(0, i, at[i]...);
  } else {
    const bool wide = n >= kLeast * kWidth && begin_packs(at...);
    visit_packs<kLanes, kWidth>(lane, n, wide, [&](std::int64_t i, auto width) {
      constexpr int kNow = decltype(width)::value;
      if constexpr (kNow == 1) {
        f(0, i, at[i]...);
      } else {
        apply<kNow>(i, f, Operand<T, kNow>(at + i)...);
      }
    });
  }
}

// --- a lane's part of what a team does
// ------------------------------------------------------------

template <int kLanes, int kLeast, class F, class... T>
MB_HD void visit_lane(std::int64_t lane, std::int64_t n, const F& f, T*... at) {
  visit<kLanes, kLeast>(
      lane, n, [&](int, std::int64_t i, auto&... element) { f(i, element...); }, at...);
}

// As many partial sums as a pack has elements, which do not wait for each other.
template <class A, int kLanes, int kLeast, class F, class... T>
MB_HD A sum_of_lane(std::int64_t lane, std::int64_t n, const F& f, T*... at) {
  constexpr int kWidth = sizeof...(T) == 0 ? 1 : pack_width<T...>();
  A part[kWidth] = {};
  visit<kLanes, kLeast>(
      lane, n, [&](int k, std::int64_t i, auto&... element) { part[k] += f(i, element...); },
      at...);
  for (int half = kWidth / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) part[k] += part[k + half];
  }
  return part[0];
}

template <class A, int kLanes, int kLeast, class F, class... T>
MB_HD A max_of_lane(std::int64_t lane, std::int64_t n, const F& f, T*... at) {
  constexpr int kWidth = sizeof...(T) == 0 ? 1 : pack_width<T...>();
  A part[kWidth];
  for (int k = 0; k < kWidth; ++k) part[k] = -static_cast<A>(__builtin_inff());
  visit<kLanes, kLeast>(
      lane, n,
      [&](int k, std::int64_t i, auto&... element) {
        const A a = f(i, element...);
        part[k] = part[k] < a ? a : part[k];
      },
      at...);
  for (int half = kWidth / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) part[k] = part[k] < part[k + half] ? part[k + half] : part[k];
  }
  return part[0];
}

}  // namespace mb::cuda
