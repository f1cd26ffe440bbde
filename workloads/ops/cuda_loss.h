// Cross-entropy, sums of a step, and the update of flat parameters. Part of cuda_ops.cu.
#pragma once

#include <cstdint>

#include "workloads/ops/adamw.h"
#include "workloads/ops/cuda_call.h"
#include "workloads/ops/flat_slice.h"
#include "workloads/ops/softmax.h"

namespace mb::cuda {

template <class T>
struct MaxRow {
  const T* x;
  Main<T>* max;
  std::int64_t n, valid;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    max[row] = max_row(team, x + row * n, valid);
  }
};
template <class T>
void run(const VocabularyMax& op, const Call<T>& call) {
  rows(call, op.rows,
       MaxRow<T>{in<T>(call, 0), out<Main<T>>(call, 0), op.n,
                 valid_columns(op.vocabulary, op.n, call.context.shard_index)});
}

template <class T>
struct SumsRow {
  const T* logits;
  const std::int32_t* labels;
  const Main<T>* max;
  Main<T>* sums;
  std::int64_t rows, n, valid;
  int shard;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    using M = Main<T>;
    const T* x = logits + row * n;
    const std::int64_t column = label_column(labels[row], valid, n, shard);
    sums[row] = exp_sum_row(team, x, max[row], valid);
    sums[rows + row] = column < 0 ? M(0) : x[column] - max[row];
  }
};
template <class T>
void run(const VocabularySums& op, const Call<T>& call) {
  const int shard = call.context.shard_index;
  rows(call, op.rows,
       SumsRow<T>{in<T>(call, 0), in<std::int32_t>(call, 1), in<Main<T>>(call, 2),
                  out<Main<T>>(call, 0), op.rows, op.n, valid_columns(op.vocabulary, op.n, shard),
                  shard});
}

template <class T>
struct LossOfRows {
  const std::int32_t* labels;
  const Main<T>* sums;
  double* scalars;
  std::int64_t rows;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t) const {
    const double loss = team.template sum<double>(rows, [=, *this](std::int64_t row) {
      return labels[row] < 0 ? 0.0 : log(double(sums[row])) - double(sums[rows + row]);
    });
    const double tokens = team.template sum<double>(
        rows, [=, *this](std::int64_t row) { return labels[row] < 0 ? 0.0 : 1.0; });
    team.for_each(1, [=, *this](std::int64_t) {
      scalars[0] += loss;
      scalars[1] += tokens;
    });
  }
};
template <class T>
void run(const CrossEntropy& op, const Call<T>& call) {
  if (call.context.shard_index != 0) return;
  rows(call, 1,
       LossOfRows<T>{in<std::int32_t>(call, 0), in<Main<T>>(call, 1), out<double>(call, 0),
                     op.rows});
}

template <class T>
struct CrossEntropyGradientRow {
  const std::int32_t* labels;
  const Main<T>*max, *sums;
  const double* scalars;
  T* logits;
  std::int64_t n, valid;
  int shard;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    cross_entropy_gradient_row(team, logits + row * n, max[row], sums[row], Main<T>(scalars[4]),
                               labels[row] >= 0, label_column(labels[row], valid, n, shard), valid,
                               n);
  }
};
template <class T>
void run(const CrossEntropyGradient& op, const Call<T>& call) {
  using M = Main<T>;
  const int shard = call.context.shard_index;
  rows(call, op.rows,
       CrossEntropyGradientRow<T>{in<std::int32_t>(call, 0), in<M>(call, 1), in<M>(call, 2),
                                  in<double>(call, 3), out<T>(call, 0), op.n,
                                  valid_columns(op.vocabulary, op.n, shard), shard});
}

// --- sums of a step
// -------------------------------------------------------------------------------

struct StartStepRow {
  double loss_scale;
  double* scalars;
  bool first;
  MB_HD void operator()(std::int64_t) const { start_step(scalars, loss_scale, first); }
};
template <class T>
void run(const StartStep& op, const Call<T>& call) {
  elements(call, 1, StartStepRow{op.loss_scale, out<double>(call, 0), call.context.step == 0});
}
struct LossScaleRow {
  int growth_steps;
  double* scalars;
  MB_HD void operator()(std::int64_t) const { update_loss_scale(scalars, growth_steps); }
};
template <class T>
void run(const UpdateLossScale& op, const Call<T>& call) {
  elements(call, 1, LossScaleRow{op.growth_steps, out<double>(call, 0)});
}

// --- flat parameters
// ------------------------------------------------------------------------------

// The sum of squares of a part, to partial[part].
template <class M>
struct SquaresOfPart {
  static constexpr std::int64_t kPart = 1 << 14;
  const M* x;
  double* partial;
  std::int64_t n;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t part) const {
    const std::int64_t begin = part * kPart, left = n - begin;
    const M* from = x + begin;
    const auto square = [](std::int64_t, M a) { return double(a) * double(a); };
    partial[part] = team.template sum<double>(left < kPart ? left : kPart, square, from);
  }
};
struct AddParts {
  const double* partial;
  double* to;
  std::int64_t parts;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t) const {
    const double sum =
        team.template sum<double>(parts, [=, *this](std::int64_t i) { return partial[i]; });
    team.for_each(1, [=, *this](std::int64_t) { *to += sum; });
  }
};
template <class T>
void run(const GradientNorm& op, const Call<T>& call) {
  using M = Main<T>;
  using Squares = SquaresOfPart<M>;
  const OpContext& context = call.context;
  const FlatSlice& slice = op.slice;
  const auto parts_of = [](std::int64_t n) { return (n + Squares::kPart - 1) / Squares::kPart; };
  // Whatever this rank's slice, it has at most as many parts.
  const auto most = parts_of(slice.n) + static_cast<std::int64_t>(slice.segments.size());
  auto* partial = call.scratch.template take<double>(most);
  if (call.prepares || !counts_in_norm(slice, context)) return;
  const M* gradient = in<M>(call, 0) + (op.whole_gradient ? slice_begin(slice, context) : 0);
  std::int64_t parts = 0;
  for_each_segment(slice, context, [&](const Segment& segment, std::int64_t at, std::int64_t n) {
    if (!counts_in_norm(segment, context)) return;
    rows(call, parts_of(n), Squares{gradient + at, partial + parts, n});
    parts += parts_of(n);
  });
  if (parts > 0) rows(call, 1, AddParts{partial, out<double>(call, 0) + 2, parts});
}

template <class T>
struct UpdatePart {
  static constexpr std::int64_t kPart = 1 << 14;
  UpdateRule rule;
  const double* scalars;
  const Main<T>* gradient;
  Main<T>*value, *m, *v;  // m and v: null with SGD
  T* rounded;
  std::int64_t n, step;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t part) const {
    if (!is_finite(scalars[2])) return;
    const double scale = gradient_scale(scalars, scalars[4], rule.clip);
    const std::int64_t updates = step + 1 - static_cast<std::int64_t>(scalars[6]);
    const std::int64_t at = part * kPart, left = n - at, count = left < kPart ? left : kPart;
    T* rounded_at = rounded ? rounded + at : nullptr;
    if (m) {
      adamw(team, rule, rule.weight_decay, scale, updates, count, gradient + at, value + at, m + at,
            v + at, rounded_at);
    } else {
      sgd(team, rule.learning_rate, scale, count, gradient + at, value + at, rounded_at);
    }
  }
};
template <class T>
void run(const UpdateParameters& op, const Call<T>& call) {
  const UpdateOperands<T> to = update_operands<T>(op, call);
  for_each_segment(op.slice, call.context, [&](const Segment& s, std::int64_t at, std::int64_t n) {
    UpdateRule rule = rule_of(op);
    if (!s.decay) rule.weight_decay = 0;
    using Part = UpdatePart<T>;
    rows(call, (n + Part::kPart - 1) / Part::kPart,
         Part{rule, in<double>(call, 1), to.gradient + at, to.value + at,
              to.m ? to.m + at : nullptr, to.v ? to.v + at : nullptr,
              to.rounded ? to.rounded + at : nullptr, n, call.context.step});
  });
}

template <class From, class To>
struct ConvertPart {
  const From* x;
  To* y;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t first, std::int64_t count) const {
    convert(team, x + first, y + first, count);
  }
};
template <class T>
void run(const Cast& op, const Call<T>& call) {
  using M = Main<T>;
  if (op.to_main) {
    parts(call, op.n, ConvertPart<T, M>{in<T>(call, 0), out<M>(call, 0)});
  } else {
    parts(call, op.n, ConvertPart<M, T>{in<M>(call, 0), out<T>(call, 0)});
  }
}
template <class M>
struct AddPart {
  const M* x;
  M* y;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t first, std::int64_t count) const {
    add_to(team, x + first, y + first, count);
  }
};
template <class T>
void run(const Accumulate& op, const Call<T>& call) {
  using M = Main<T>;
  if (op.accumulate) {
    parts(call, op.n, AddPart<M>{in<M>(call, 0), out<M>(call, 0)});
  } else {
    parts(call, op.n, ConvertPart<M, M>{in<M>(call, 0), out<M>(call, 0)});
  }
}

}  // namespace mb::cuda
