// A team of lanes that share a row: on a CPU one lane, whose loops vectorise.
//
// Functions of a row name the arrays that they go through as operands, `at`, and see element i of
// each: those of a GPU load and store 16 bytes of them at once (pack.h). A const operand is read;
// any other is written and not read, so that one that is both is given twice. Several may be the
// same memory if they begin at the same place.
//
// Kernel headers are compiled once per instruction set, and nothing in them may have external
// linkage (the linker would keep one copy for all): free functions are `static`, and templates take
// a team, a type of this unnamed namespace.
#pragma once

#include <cstdint>

#include "workloads/base/host_device.h"

namespace mb {
namespace {

struct SerialTeam {
  // f(i, at[i]...) for each i in [0, n), in any order.
  template <class F, class... T>
  MB_HD void for_each(std::int64_t n, F f, T*... at) const {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) f(i, at[i]...);
  }

  // Sum of f(i, at[i]...) in the type A, as 16 partial sums: they vectorise without fast-math and
  // do not depend on the width of a vector.
  template <class A, class F, class... T>
  MB_HD A sum(std::int64_t n, F f, T*... at) const {
    A part[16] = {};
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
#pragma omp simd
      for (int lane = 0; lane < 16; ++lane) part[lane] += f(i + lane, at[i + lane]...);
    }
    for (int lane = 0; i < n; ++i, ++lane) part[lane] += f(i, at[i]...);
    for (int width = 8; width > 0; width /= 2) {
      for (int lane = 0; lane < width; ++lane) part[lane] += part[lane + width];
    }
    return part[0];
  }

  // Maximum of f(i, at[i]...), -infinity if n is 0. A NaN is kept if it stands first, as in a
  // comparison loop.
  template <class A, class F, class... T>
  MB_HD A max(std::int64_t n, F f, T*... at) const {
    A best = -static_cast<A>(__builtin_inff());
#pragma omp simd reduction(max : best)
    for (std::int64_t i = 0; i < n; ++i) best = best < f(i, at[i]...) ? f(i, at[i]...) : best;
    return best;
  }
};

}  // namespace
}  // namespace mb
