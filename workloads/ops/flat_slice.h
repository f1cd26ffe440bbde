// This rank's part of a flat bucket, and the scalars of a step: what kernels of every device share.
#pragma once

#include <cstdint>

#include "workloads/base/half.h"
#include "workloads/base/host_device.h"
#include "workloads/base/mutation.h"
#include "workloads/ops/launch.h"
#include "workloads/ops/operands.h"

namespace mb {

// Operands of UpdateParameters where this rank's slice begins; null where there are none.
template <class T>
struct UpdateOperands {
  const Main<T>* gradient;
  Main<T>*value, *m, *v;
  T* rounded;
};

namespace {

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

// Whether this rank counts the slice, and the segment, in the norm of the gradient.
inline bool counts_in_norm(const FlatSlice& slice, const OpContext& context) {
  return context.replica_index == 0 && (slice.ways != 1 || owner_of(slice, context) == 0);
}
inline bool counts_in_norm(const Segment& segment, const OpContext& context) {
  return segment.copies > 0 &&
         (context.shard_index % segment.copies == 0 || mutated("norm_counts_copies"));
}

template <class T, class Call>
UpdateOperands<T> update_operands(const UpdateParameters& op, const Call& call) {
  using M = Main<T>;
  const std::int64_t begin = slice_begin(op.slice, call.context);
  UpdateOperands<T> operands{.gradient = in<M>(call, 0) + (op.whole_gradient ? begin : 0),
                             .value = out<M>(call, 0) + (kIsMain<T> && op.whole_value ? begin : 0),
                             .m = op.moments ? out<M>(call, 1) : nullptr,
                             .v = op.moments ? out<M>(call, 2) : nullptr,
                             .rounded = nullptr};
  if constexpr (!kIsMain<T>)
    operands.rounded = out<T>(call, op.moments ? 3 : 1) + (op.whole_value ? begin : 0);
  return operands;
}

MB_HD bool is_finite(double x) { return __builtin_fabs(x) <= 1.7976931348623157e308; }

MB_HD void start_step(double* scalars, double loss_scale, bool first) {
  for (int i = 0; i < (first ? kScalars : kStepSums); ++i) scalars[i] = 0;
  if (first) scalars[4] = loss_scale;
  scalars[7] = scalars[4];
}

MB_HD void update_loss_scale(double* scalars, int growth_steps) {
  const bool skipped = !is_finite(scalars[2]);
  scalars[6] += skipped;
  scalars[5] = skipped ? 0 : scalars[5] + 1;
  if (skipped) scalars[4] /= 2;
  if (scalars[5] < growth_steps) return;
  scalars[4] *= 2;
  scalars[5] = 0;
}

}  // namespace
}  // namespace mb
