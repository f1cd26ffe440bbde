// The numbers of a step, and the update of flat parameters. Part of cpu_kernels.cc.
#pragma once

#include <cstdint>

#include "workloads/ops/adamw.h"
#include "workloads/ops/cpu_call.h"
#include "workloads/ops/flat_slice.h"

namespace mb {
namespace {

template <class T>
void run(const StartStep& op, const KernelCall<T>& call) {
  start_step(out<double>(call, 0), op.loss_scale, call.context.step == 0);
}

template <class T>
void run(const UpdateLossScale& op, const KernelCall<T>& call) {
  update_loss_scale(out<double>(call, 0), op.growth_steps);
}

template <class M>
double sum_squares(const M* x, std::int64_t n) {
  return kTeam.sum<double>(n, [=](std::int64_t i) { return double(x[i]) * double(x[i]); });
}

template <class T>
void run(const GradientNorm& op, const KernelCall<T>& call) {
  const OpContext& context = call.context;
  const FlatSlice& slice = op.slice;
  if (!counts_in_norm(slice, context)) return;
  const Main<T>* gradient =
      in<Main<T>>(call, 0) + (op.whole_gradient ? slice_begin(slice, context) : 0);
  double sum = 0;
  for_each_segment(slice, context, [&](const Segment& segment, std::int64_t at, std::int64_t n) {
    if (counts_in_norm(segment, context)) sum += sum_squares(gradient + at, n);
  });
  out<double>(call, 0)[2] += sum;
}

template <class T>
void run(const UpdateParameters& op, const KernelCall<T>& call) {
  const double* scalars = in<double>(call, 1);
  if (!is_finite(scalars[2])) return;
  const UpdateRule rule = rule_of(op);
  const double scale = gradient_scale(scalars, scalars[4], op.clip);
  const std::int64_t updates = call.context.step + 1 - static_cast<std::int64_t>(scalars[6]);
  const UpdateOperands<T> to = update_operands<T>(op, call);
  for_each_segment(op.slice, call.context, [&](const Segment& s, std::int64_t at, std::int64_t n) {
    T* rounded_at = to.rounded ? to.rounded + at : nullptr;
    if (op.moments) {
      adamw(kTeam, rule, s.decay ? op.weight_decay : 0, scale, updates, n, to.gradient + at,
            to.value + at, to.m + at, to.v + at, rounded_at);
    } else {
      sgd(kTeam, op.learning_rate, scale, n, to.gradient + at, to.value + at, rounded_at);
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
