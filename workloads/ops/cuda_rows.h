// Norms, activations and sums of rows. Part of cuda_ops.cu.
#pragma once

#include <cstdint>
#include <vector>

#include "workloads/ops/activation.h"
#include "workloads/ops/cuda_call.h"
#include "workloads/ops/norm.h"
#include "workloads/ops/rotary.h"
#include "workloads/ops/tokens.h"

namespace mb::cuda {

// Rows of a rank and their places: f is called with the row's place.
struct Places {
  TokenSplit split;
  std::int64_t batch, sequence;
  int context_index, shard_index;

  template <class Op>
  Places(const Op& op, const OpContext& context)
      : split(op.split),
        batch(op.batch),
        sequence(op.sequence),
        context_index(context.context_index),
        shard_index(context.shard_index) {}
  MB_HD TokenPlace of(std::int64_t row) const {
    return place_of_row(split, batch, sequence, context_index, shard_index, row);
  }
  std::int64_t rows() const { return rows_of(split, batch, sequence); }
};

// --- sums over rows, column by column: in two passes, so that many blocks share them
// --------------

// Terms of up to 64 rows to a row of `partial`: terms.add(row, i, sums) adds those of as many
// columns from i as there are sums. A block has as many columns as give each thread one pack.
template <class M, class Terms>
struct PartialSums {
  static constexpr int kWidth = Terms::kWidth;
  static constexpr std::int64_t kRows = 64, kColumns = 256 * kWidth;
  Terms terms;
  M* partial;
  std::int64_t rows, n;
  static std::int64_t blocks_of_rows(std::int64_t n) { return (n + kColumns - 1) / kColumns; }
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t block) const {
    const std::int64_t across = (n + kColumns - 1) / kColumns, part = block / across;
    const std::int64_t begin = part * kRows, end = begin + kRows < rows ? begin + kRows : rows;
    const std::int64_t first = block % across * kColumns, left = n - first;
    const bool wide = n % kWidth == 0 && terms.begins_packs();
    team.template for_each_pack<kWidth>(left < kColumns ? left : kColumns, wide,
                                        [=, *this](std::int64_t i, auto width) {
                                          Pack<M, decltype(width)::value> sums = {};
                                          for (std::int64_t row = begin; row < end; ++row)
                                            terms.add(row, first + i, sums);
                                          store_pack(partial + part * n + first + i, sums);
                                        });
  }
};
// Of as many columns as a block has threads.
template <class M>
struct SumOfParts {
  static constexpr std::int64_t kColumns = 256;
  const M* partial;
  M* to;
  std::int64_t parts, n;
  bool accumulate;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t block) const {
    const std::int64_t first = block * kColumns, left = n - first;
    team.for_each(left < kColumns ? left : kColumns, [=, *this](std::int64_t column) {
      const std::int64_t i = first + column;
      M sum = accumulate ? to[i] : M(0);
      for (std::int64_t part = 0; part < parts; ++part) sum += partial[part * n + i];
      to[i] = sum;
    });
  }
};
template <class M, class T, class Terms>
void sum_rows(const Call<T>& call, std::int64_t rows_, std::int64_t n, bool accumulate, M* to,
              const Terms& terms) {
  using Partial = PartialSums<M, Terms>;
  const std::int64_t parts = (rows_ + Partial::kRows - 1) / Partial::kRows;
  using Sum = SumOfParts<M>;
  M* partial = call.scratch.template take<M>(parts * n);
  rows(call, parts * Partial::blocks_of_rows(n), Partial{terms, partial, rows_, n});
  rows(call, (n + Sum::kColumns - 1) / Sum::kColumns, Sum{partial, to, parts, n, accumulate});
}

// --- norms
// ----------------------------------------------------------------------------------------

template <class T>
struct NormRow {
  Norm op;
  const T *x, *w, *b;
  T* y;
  Main<T>*rstd, *mean;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const std::int64_t at = row * op.n;
    const auto epsilon = Main<T>(op.epsilon);
    if (op.kind == NormKind::layer) {
      layer_norm_row(team, x + at, w, b, y + at, rstd + row, mean + row, op.n, epsilon);
    } else {
      rms_norm_row(team, x + at, w, y + at, rstd + row, op.n, epsilon);
    }
  }
};
template <class T>
void run(const Norm& op, const Call<T>& call) {
  const bool layer = op.kind == NormKind::layer;
  rows(call, op.rows,
       NormRow<T>{op, in<T>(call, 0), in<T>(call, 1), layer ? in<T>(call, 2) : nullptr,
                  out<T>(call, 0), out<Main<T>>(call, 1), layer ? out<Main<T>>(call, 2) : nullptr});
}

template <bool kLayer, class T>
struct NormGradientRow {
  const T *dy, *x, *w, *residual;
  const Main<T>*rstd, *mean;
  T* dx;
  std::int64_t n;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const std::int64_t at = row * n;
    norm_gradient_row<kLayer>(team, dy + at, x + at, w, rstd[row], kLayer ? mean[row] : Main<T>(0),
                              residual ? residual + at : nullptr, dx + at, n);
  }
};
template <class T>
struct NormWeightTerms {
  static constexpr int kWidth = pack_width<T>();
  const T *dy, *x;
  const Main<T>*rstd, *mean;  // mean: null of RMSNorm
  std::int64_t n;
  MB_HD bool begins_packs() const { return begin_packs(dy, x); }
  template <int kNow>
  MB_HD void add(std::int64_t row, std::int64_t i, Pack<Main<T>, kNow>& sums) const {
    const Main<T> center = mean ? mean[row] : Main<T>(0), scale = rstd[row];
    const auto d = load_pack<kNow>(dy + row * n + i), a = load_pack<kNow>(x + row * n + i);
    for (int k = 0; k < kNow; ++k) sums.at[k] += d.at[k] * ((a.at[k] - center) * scale);
  }
};
template <class T>
struct ElementTerms {
  static constexpr int kWidth = pack_width<T>();
  const T* x;
  std::int64_t n;
  MB_HD bool begins_packs() const { return begin_packs(x); }
  template <int kNow>
  MB_HD void add(std::int64_t row, std::int64_t i, Pack<Main<T>, kNow>& sums) const {
    const auto a = load_pack<kNow>(x + row * n + i);
    for (int k = 0; k < kNow; ++k) sums.at[k] += Main<T>(a.at[k]);
  }
};
template <class T>
void run(const NormGradient& op, const Call<T>& call) {
  using M = Main<T>;
  const bool layer = op.kind == NormKind::layer;
  const T *dy = in<T>(call, 0), *x = in<T>(call, 1), *w = in<T>(call, 2);
  const M* rstd = in<M>(call, 3);
  const M* mean = layer ? in<M>(call, 4) : nullptr;
  const T* residual = op.residual ? in<T>(call, layer ? 5 : 4) : nullptr;
  T* dx = out<T>(call, 0);
  // Before dx, which may be where dy or the residual is.
  sum_rows(call, op.rows, op.n, op.accumulate, out<M>(call, 1),
           NormWeightTerms<T>{dy, x, rstd, mean, op.n});
  if (layer)
    sum_rows(call, op.rows, op.n, op.accumulate, out<M>(call, 2), ElementTerms<T>{dy, op.n});
  if (layer) {
    rows(call, op.rows, NormGradientRow<true, T>{dy, x, w, residual, rstd, mean, dx, op.n});
  } else {
    rows(call, op.rows, NormGradientRow<false, T>{dy, x, w, residual, rstd, mean, dx, op.n});
  }
}

template <class T>
void run(const BiasGradient& op, const Call<T>& call) {
  sum_rows(call, op.rows, op.n, op.accumulate, out<Main<T>>(call, 0),
           ElementTerms<T>{in<T>(call, 0), op.n});
}

// --- activations
// ----------------------------------------------------------------------------------

template <class T>
struct GeluPart {
  const T* u;
  T* y;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t first, std::int64_t count) const {
    gelu(team, u + first, y + first, count);
  }
};
template <class T>
void run(const Gelu& op, const Call<T>& call) {
  parts(call, op.rows * op.n, GeluPart<T>{in<T>(call, 0), out<T>(call, 0)});
}
template <class T>
struct GeluGradientPart {
  const T *dy, *u;
  T* du;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t first, std::int64_t count) const {
    gelu_gradient(team, dy + first, u + first, du + first, count);
  }
};
template <class T>
void run(const GeluGradient& op, const Call<T>& call) {
  parts(call, op.rows * op.n, GeluGradientPart<T>{in<T>(call, 0), in<T>(call, 1), out<T>(call, 0)});
}
template <class T>
struct SwigluRow {
  const T* gate_up;
  T* y;
  std::int64_t n;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const T* gate = gate_up + row * 2 * n;
    swiglu_row(team, gate, gate + n, y + row * n, n);
  }
};
template <class T>
void run(const Swiglu& op, const Call<T>& call) {
  rows(call, op.rows, SwigluRow<T>{in<T>(call, 0), out<T>(call, 0), op.n});
}
template <class T>
struct SwigluGradientRow {
  const T *dy, *gate_up;
  T* dgate_up;
  std::int64_t n;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const T* gate = gate_up + row * 2 * n;
    T* dgate = dgate_up + row * 2 * n;
    swiglu_gradient_row(team, dy + row * n, gate, gate + n, dgate, dgate + n, n);
  }
};
template <class T>
void run(const SwigluGradient& op, const Call<T>& call) {
  rows(call, op.rows, SwigluGradientRow<T>{in<T>(call, 0), in<T>(call, 1), out<T>(call, 0), op.n});
}

template <class T>
struct AddRow {
  const T *a, *b, *bias;
  T* y;
  std::int64_t n;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    add_row(team, a + row * n, b + row * n, bias, y + row * n, n);
  }
};
// Where `a` begins, counted over the elements of the global batch, is what dropout is drawn by.
MB_HD std::int64_t dropout_index(const Places& places, std::int64_t first_sample, std::int64_t n,
                                 std::int64_t row) {
  const TokenPlace place = places.of(row);
  return ((first_sample + place.sequence) * places.sequence + place.position) * n;
}
template <class T>
struct AddDroppedRow {
  Places places;
  AddRow<T> add;
  DropoutMask mask;
  std::int64_t first_sample;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const std::int64_t at = row * add.n;
    add_dropped_row(team, add.a + at, add.b + at, add.bias, add.y + at, add.n, mask,
                    dropout_index(places, first_sample, add.n, row));
  }
};
template <class T>
void run(const Add& op, const Call<T>& call) {
  const AddRow<T> add{in<T>(call, 0), in<T>(call, 1), op.bias ? in<T>(call, 2) : nullptr,
                      out<T>(call, 0), op.n};
  if (op.dropout.probability == 0) return rows(call, op.rows, add);
  rows(call, op.rows,
       AddDroppedRow<T>{Places(op, call.context), add, dropout_mask(op.dropout, call.context),
                        call.context.first_sample});
}
template <class T>
struct DroppedRow {
  Places places;
  const T* x;
  T* y;
  DropoutMask mask;
  std::int64_t first_sample, n;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const T* from = x + row * n;
    T* to = y + row * n;
    const std::int64_t index = dropout_index(places, first_sample, n, row);
    const auto one = [=, *this](std::int64_t i, T& kept, Main<T> a) {
      kept = dropout_of(mask, index + i, a);
    };
    team.for_each(n, one, to, from);
  }
};
template <class T>
void run(const DropoutRows& op, const Call<T>& call) {
  const Places places(op, call.context);
  rows(call, places.rows(),
       DroppedRow<T>{places, in<T>(call, 0), out<T>(call, 0),
                     dropout_mask(op.dropout, call.context), call.context.first_sample, op.n});
}

// --- rotary
// ---------------------------------------------------------------------------------------

// A team of one for functions of a row, at one element of it.
struct OneElement {
  template <class F>
  MB_HD void for_each(std::int64_t, F f) const {
    f(0);
  }
};

// Angles are computed where they are used, in fp64 as CPUs do: a table would have to be kept for
// each sequence length. Each serves several heads.
template <class T>
struct RotaryRow {
  static constexpr std::int64_t kParts = 4;  // of the heads
  Rotary op;
  Places places;
  T* qkv;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    using M = Main<T>;
    const std::int64_t half = op.head_dim / 2, heads = op.heads + op.kv_heads;
    const double position = static_cast<double>(places.of(row).position);
    T* x = qkv + row * (op.heads + 2 * op.kv_heads) * op.head_dim;
    team.for_each(kParts * half, [=, *this](std::int64_t j) {
      const std::int64_t i = j % half;
      const double angle =
          position * pow(double(op.base), -2.0 * static_cast<double>(i) / double(op.head_dim));
      const M cosine = M(cos(angle)), sine = M(sin(angle));
      for (std::int64_t head = j / half; head < heads; head += kParts)
        rotate_head(OneElement{}, x + head * op.head_dim + i, &cosine, &sine,
                    op.inverse ? M(-1) : M(1), half);
    });
  }
};
template <class T>
void run(const Rotary& op, const Call<T>& call) {
  const Places places(op, call.context);
  rows(call, places.rows(), RotaryRow<T>{op, places, out<T>(call, 0)});
}

}  // namespace mb::cuda
