// The numbers of a step, and the update of flat parameters. Part of cpu_kernels.cc.
#pragma once

#include <cstdint>

#include "workloads/base/mutation.h"
#include "workloads/ops/adamw.h"
#include "workloads/ops/cpu_call.h"

namespace mb {
namespace {

template <class T>
void run(const StartStep& op, const KernelCall<T>& call) {
  double* scalars = out<double>(call, 0);
  fill_zero(scalars, call.context.step == 0 ? kScalars : kStepSums);
  if (call.context.step == 0) scalars[4] = op.loss_scale;
  scalars[7] = scalars[4];
}

template <class T>
void run(const UpdateLossScale& op, const KernelCall<T>& call) {
  double* scalars = out<double>(call, 0);
  const bool skipped = !__builtin_isfinite(scalars[2]);
  scalars[6] += skipped;
  scalars[5] = skipped ? 0 : scalars[5] + 1;
  if (skipped) scalars[4] /= 2;
  if (scalars[5] < op.growth_steps) return;
  scalars[4] *= 2;
  scalars[5] = 0;
}

inline int owner_of(const FlatSlice& slice, const OpContext& context) {
  return slice.expert ? context.expert_owner_index : context.owner_index;
}
// Where the slice of this rank starts in the bucket.
inline std::int64_t slice_begin(const FlatSlice& slice, const OpContext& context) {
  if (mutated("padding_left_out"))
    return slice.segments.back().end / slice.ways * owner_of(slice, context);
  return slice.ways == 1 ? 0 : slice.n * owner_of(slice, context);
}

// f(segment, offset in the slice, elements) for each segment's part of this rank's slice.
template <class F>
void for_each_segment(const FlatSlice& slice, const OpContext& context, F f) {
  const std::int64_t first = slice_begin(slice, context), last = first + slice.n;
  for (const Segment& segment : slice.segments) {
    const std::int64_t begin = segment.begin > first ? segment.begin : first;
    const std::int64_t end = segment.end < last ? segment.end : last;
    if (begin < end) f(segment, begin - first, end - begin);
  }
}

template <class M>
double sum_squares(const M* x, std::int64_t n) {
  return kTeam.sum<double>(n, [=](std::int64_t i) { return double(x[i]) * double(x[i]); });
}

template <class T>
void run(const GradientNorm& op, const KernelCall<T>& call) {
  const OpContext& context = call.context;
  const FlatSlice& slice = op.slice;
  if (context.replica_index != 0 || (slice.ways == 1 && owner_of(slice, context) != 0)) return;
  const Main<T>* gradient =
      in<Main<T>>(call, 0) + (op.whole_gradient ? slice_begin(slice, context) : 0);
  double sum = 0;
  for_each_segment(slice, context, [&](const Segment& segment, std::int64_t at, std::int64_t n) {
    if (segment.copies > 0 &&
        (context.shard_index % segment.copies == 0 || mutated("norm_counts_copies"))) {
      sum += sum_squares(gradient + at, n);
    }
  });
  out<double>(call, 0)[2] += sum;
}

template <class T>
void run(const UpdateParameters& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const double* scalars = in<double>(call, 1);
  if (!__builtin_isfinite(scalars[2])) return;
  const double scale = gradient_scale(scalars, scalars[4], op.clip);
  const std::int64_t updates = call.context.step + 1 - static_cast<std::int64_t>(scalars[6]);
  const std::int64_t begin = slice_begin(op.slice, call.context);
  const M* gradient = in<M>(call, 0) + (op.whole_gradient ? begin : 0);
  M* value = out<M>(call, 0) + (kIsMain<T> && op.whole_value ? begin : 0);
  M* m = op.moments ? out<M>(call, 1) : nullptr;
  M* v = op.moments ? out<M>(call, 2) : nullptr;
  T* rounded = nullptr;
  if constexpr (!kIsMain<T>)
    rounded = out<T>(call, op.moments ? 3 : 1) + (op.whole_value ? begin : 0);
  for_each_segment(op.slice, call.context, [&](const Segment& s, std::int64_t at, std::int64_t n) {
    T* rounded_at = rounded ? rounded + at : nullptr;
    if (op.moments) {
      adamw(kTeam, op, s.decay ? op.weight_decay : 0, scale, updates, n, gradient + at, value + at,
            m + at, v + at, rounded_at);
    } else {
      sgd(kTeam, op.learning_rate, scale, n, gradient + at, value + at, rounded_at);
    }
  });
}

template <class T>
void run(const Cast& op, const KernelCall<T>& call) {
  using M = Main<T>;
  if (op.to_main) {
    convert(kTeam, in<T>(call, 0), out<M>(call, 0), op.n);
  } else {
    convert(kTeam, in<M>(call, 0), out<T>(call, 0), op.n);
  }
}

template <class T>
void run(const Accumulate& op, const KernelCall<T>& call) {
  using M = Main<T>;
  if (op.accumulate) {
    add_to(kTeam, in<M>(call, 0), out<M>(call, 0), op.n);
  } else {
    __builtin_memcpy(out<M>(call, 0), in<M>(call, 0), sizeof(M) * op.n);
  }
}

}  // namespace
}  // namespace mb
