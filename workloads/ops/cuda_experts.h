// Buffers of tokens sorted by expert, and the layers of experts. Part of cuda_ops.cu.
#pragma once

#include <cstdint>

#include "workloads/ops/activation.h"
#include "workloads/ops/cuda_call.h"
#include "workloads/ops/cuda_moves.h"
#include "workloads/ops/expert_runs.h"

namespace mb::cuda {

// The row of a choice to its slot.
template <class T>
struct DispatchRow {
  const T* x;
  const std::int32_t* slot;
  T* buffer;
  std::int64_t n, top;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t i) const {
    if (slot[i] >= 0) copy_row(team, x + i / top * n, buffer + slot[i] * n, n);
  }
};
// y = sum over a token's choices of buffer[slot], times the gate unless that is null.
template <class T>
struct GatherRow {
  const T* buffer;
  const std::int32_t* slot;
  const Main<T>* gate;
  T* y;
  std::int64_t n, top;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    team.for_each(n, [=, *this](std::int64_t k) {
      Main<T> sum = 0;
      for (std::int64_t i = row * top; i < (row + 1) * top; ++i) {
        if (slot[i] >= 0) sum += (gate ? gate[i] : Main<T>(1)) * buffer[slot[i] * n + k];
      }
      y[row * n + k] = sum;
    });
  }
};
template <class T>
void run(const Dispatch& op, const Call<T>& call) {
  const Routing& r = op.routing;
  const T* x = in<T>(call, 0);
  const auto* slot = in<std::int32_t>(call, 1);
  T* y = out<T>(call, 0);
  if (op.gradient) return rows(call, r.rows(), GatherRow<T>{x, slot, nullptr, y, op.n, r.top});
  if (r.capacity) fill_zero(call, y, r.buffer_rows() * op.n);
  rows(call, r.rows() * r.top, DispatchRow<T>{x, slot, y, op.n, r.top});
}
template <class T>
void run(const Combine& op, const Call<T>& call) {
  rows(call, op.routing.rows(),
       GatherRow<T>{in<T>(call, 0), in<std::int32_t>(call, 1), in<Main<T>>(call, 2),
                    out<T>(call, 0), op.n, op.routing.top});
}

template <class T>
struct CombineGradientRow {
  const T *dy, *buffer;
  const std::int32_t* slot;
  const Main<T>* gate;
  T* d_buffer;
  Main<T>* d_gate;
  std::int64_t n, top;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t i) const {
    using M = Main<T>;
    if (slot[i] < 0) {
      d_gate[i] = M(0);
      return;
    }
    const T* d = dy + i / top * n;
    const T* x = buffer + slot[i] * n;
    T* dx = d_buffer + slot[i] * n;
    const M weight = gate[i];
    d_gate[i] = team.template sum<M>(
        n, [](std::int64_t, M p, M q) { return p * q; }, d, x);
    team.for_each(
        n, [=](std::int64_t, T& to, M p) { to = weight * p; }, dx, d);
  }
};
template <class T>
void run(const CombineGradient& op, const Call<T>& call) {
  const Routing& r = op.routing;
  T* d_buffer = out<T>(call, 0);
  if (r.capacity) fill_zero(call, d_buffer, r.buffer_rows() * op.n);
  rows(call, r.rows() * r.top,
       CombineGradientRow<T>{in<T>(call, 0), in<T>(call, 1), in<std::int32_t>(call, 2),
                             in<Main<T>>(call, 3), d_buffer, out<Main<T>>(call, 1), op.n, r.top});
}

// --- products
// -------------------------------------------------------------------------------------

// Where every expert gets as many rows from every source: a product of all experts for each source.
template <class T>
void multiply_fixed(const ExpertMatmul& op, const Call<T>& call) {
  const ExpertRows& r = op.rows;
  const bool forward = op.product == ExpertProduct::forward;
  const bool weights = op.product == ExpertProduct::weight_gradient;
  const std::int64_t from = forward ? op.k : op.n, to = forward ? op.n : op.k;
  const int experts = static_cast<int>(r.experts);
  const DType type = dtype_of<T>();
  const T *a = in<T>(call, 0), *b = in<T>(call, 1);
  for (std::int64_t source = 0; source < r.sources; ++source) {
    const std::int64_t first = source * r.experts * r.fixed;
    if (weights) {
      const Product product{{.m = op.n,
                             .n = op.k,
                             .k = r.fixed,
                             .lda = op.n,
                             .ldb = op.k,
                             .ldc = op.k,
                             .transpose_a = true,
                             .accumulate = op.accumulate || source > 0},
                            type,
                            main_dtype(type),
                            experts,
                            r.fixed * op.n,
                            r.fixed * op.k,
                            op.n * op.k};
      multiply(call, product, a + first * op.n, b + first * op.k, nullptr, out<Main<T>>(call, 0));
    } else {
      const Product product{{.m = r.fixed,
                             .n = to,
                             .k = from,
                             .lda = from,
                             .ldb = op.k,
                             .ldc = to,
                             .transpose_b = forward},
                            type,
                            type,
                            experts,
                            r.fixed * from,
                            op.n * op.k,
                            r.fixed * to};
      multiply(call, product, a + first * from, b, nullptr, out<T>(call, 0) + first * to);
    }
  }
}

// Counts are read by the host, which waits for the stream.
template <class T>
void run(const ExpertMatmul& op, const Call<T>& call) {
  const ExpertRows& r = op.rows;
  if (r.fixed && r.experts > 1) return multiply_fixed(op, call);
  const std::int64_t entries = r.sources * r.experts;
  if (call.prepares) return r.fixed ? void() : call.counts.make_room(entries);
  const std::int32_t* counts =
      r.fixed ? nullptr : call.counts.read(call.stream, in<std::int32_t>(call, 2), entries);
  const DType type = dtype_of<T>();
  const bool to_main = op.product == ExpertProduct::weight_gradient;
  const auto product = [&](const MatmulShape& shape, const T* x, const T* y, void* c) {
    multiply(call, Product{shape, type, to_main ? main_dtype(type) : type}, x, y, nullptr, c);
  };
  const T *a = in<T>(call, 0), *b = in<T>(call, 1);
  if (!to_main) return multiply_rows(op, counts, a, b, out<T>(call, 0), product);
  multiply_weights(op, counts, a, b, out<Main<T>>(call, 0), product,
                   [&](Main<T>* dw, std::int64_t n) { fill_zero(call, dw, n); });
}

// --- activations of the rows that are there
// -------------------------------------------------------

struct RowsThere {
  const std::int32_t* counts;  // null: all
  std::int64_t entries;
  MB_HD bool operator()(std::int64_t row) const {
    if (!counts) return true;
    std::int64_t there = 0;
    for (std::int64_t i = 0; i < entries; ++i) there += counts[i];
    return row < there;
  }
};
// `counts` is operand `index` where it is one.
template <class T>
RowsThere rows_there(const Call<T>& call, const ExpertRows& r, int index) {
  return {r.fixed ? nullptr : in<std::int32_t>(call, index), r.sources * r.experts};
}
inline std::int64_t most_rows(const ExpertRows& r) {
  return r.fixed ? r.sources * r.experts * r.fixed : r.buffer_rows;
}

template <class T>
struct ExpertActivationRow {
  RowsThere there;
  const T* u;
  T* y;
  std::int64_t n;
  bool gated;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    if (!there(row)) return;
    if (!gated) return gelu(team, u + row * n, y + row * n, n);
    const T* gate = u + row * 2 * n;
    swiglu_row(team, gate, gate + n, y + row * n, n);
  }
};
template <class T>
void run(const ExpertActivation& op, const Call<T>& call) {
  rows(call, most_rows(op.rows),
       ExpertActivationRow<T>{rows_there(call, op.rows, 1), in<T>(call, 0), out<T>(call, 0), op.n,
                              op.gated});
}

template <class T>
struct ExpertActivationGradientRow {
  RowsThere there;
  const T *dy, *u;
  T* du;
  std::int64_t n;
  bool gated;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    if (!there(row)) return;
    const T* d = dy + row * n;
    if (!gated) return gelu_gradient(team, d, u + row * n, du + row * n, n);
    const T* gate = u + row * 2 * n;
    T* d_gate = du + row * 2 * n;
    swiglu_gradient_row(team, d, gate, gate + n, d_gate, d_gate + n, n);
  }
};
template <class T>
void run(const ExpertActivationGradient& op, const Call<T>& call) {
  rows(call, most_rows(op.rows),
       ExpertActivationGradientRow<T>{rows_there(call, op.rows, 2), in<T>(call, 0), in<T>(call, 1),
                                      out<T>(call, 0), op.n, op.gated});
}

}  // namespace mb::cuda
