// Routers, the buffers that they fill, and the layers of experts. Part of cpu_kernels.cc.
#pragma once

#include <cstdint>

#include "workloads/ops/activation.h"
#include "workloads/ops/cpu_call.h"
#include "workloads/ops/expert_runs.h"
#include "workloads/ops/router.h"
#include "workloads/ops/scratch.h"

namespace mb {
namespace {

// Slots by expert, then in the order of tokens and their choices; counts are of tokens that have
// one.
static inline void assign_slots(const Routing& r, const std::int32_t* choice, std::int32_t* slot,
                                std::int32_t* counts) {
  auto* next = static_cast<std::int32_t*>(
      thread_scratch(Scratch::row_sums, sizeof(std::int32_t) * r.experts));
  fill_zero(counts, r.experts);
  if (r.capacity == 0) {
    const std::int64_t choices = r.rows() * r.top;
    for (std::int64_t i = 0; i < choices; ++i) ++counts[choice[i]];
    std::int32_t start = 0;
    for (std::int64_t e = 0; e < r.experts; start += counts[e++]) next[e] = start;
    for (std::int64_t i = 0; i < choices; ++i) slot[i] = next[choice[i]]++;
    return;
  }
  const std::int64_t choices = r.sequence * r.top;
  for (std::int64_t b = 0; b < r.batch; ++b, choice += choices, slot += choices) {
    fill_zero(next, r.experts);
    for (std::int64_t i = 0; i < choices; ++i) {
      const std::int64_t e = choice[i];
      const bool fits = next[e] < r.capacity;
      slot[i] = static_cast<std::int32_t>(fits ? (e * r.batch + b) * r.capacity + next[e] : -1);
      next[e] += fits;
      counts[e] += fits;
    }
  }
}

template <class T>
void run(const Route& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const Routing& r = op.routing;
  const T* logits = in<T>(call, 0);
  auto* choice = out<std::int32_t>(call, 1);
  M* balance = out<M>(call, 5);
  fill_zero(balance, 2 * r.batch * r.experts);
  const std::int64_t rows_of_sequence = r.rows() / r.batch;
  for (std::int64_t row = 0; row < r.rows(); ++row) {
    M* p = out<M>(call, 0) + row * r.experts;
    std::int32_t* chosen = choice + row * r.top;
    for (std::int64_t e = 0; e < r.experts; ++e) p[e] = M(logits[row * r.experts + e]);
    choose_row(kTeam, p, r.experts, r.top, chosen);
    softmax_row(kTeam, p, r.experts);
    gate_row(kTeam, p, chosen, r.top, out<M>(call, 2) + row * r.top);
    M* choices = balance + row / rows_of_sequence * r.experts;
    for (std::int64_t j = 0; j < r.top; ++j) choices[chosen[j]] += M(1);
    add_to(kTeam, p, choices + r.batch * r.experts, r.experts);
  }
  assign_slots(r, choice, out<std::int32_t>(call, 3), out<std::int32_t>(call, 4));
}

template <class T>
void run(const BalanceLoss& op, const KernelCall<T>& call) {
  using M = Main<T>;
  if (call.context.shard_index != 0 || call.context.context_index != 0) return;
  const std::int64_t n = op.routing.batch * op.routing.experts;
  const M* choices = in<M>(call, 0);
  const M* sums = choices + n;
  const double total = kTeam.sum<double>(
      n, [=](std::int64_t i) { return static_cast<double>(choices[i]) * sums[i]; });
  out<double>(call, 0)[3] += balance_slope(op.routing, op.coefficient) * total;
}

template <class T>
void run(const RouteGradient& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const Routing& r = op.routing;
  const double loss_scale = in<double>(call, 5)[4];
  const M slope = call.context.shard_index == 0
                      ? static_cast<M>(loss_scale * balance_slope(r, op.coefficient))
                      : M(0);
  for (std::int64_t row = 0; row < r.rows(); ++row) {
    const std::int64_t at = row * r.experts, choice = row * r.top;
    route_gradient_row(kTeam, in<M>(call, 0) + choice, in<M>(call, 1) + at,
                       in<std::int32_t>(call, 2) + choice, in<M>(call, 3) + choice,
                       in<M>(call, 4) + row / (r.rows() / r.batch) * r.experts, slope, r.experts,
                       r.top, out<T>(call, 0) + at);
  }
}

// y = sum over a token's choices of buffer[slot], times the gate unless that is null.
template <class T>
static void gather(const Routing& r, std::int64_t n, const T* buffer, const std::int32_t* slot,
                   const Main<T>* gate, T* y) {
  for (std::int64_t row = 0; row < r.rows(); ++row, y += n) {
    Main<T>* sum = widen_result(y, n, Scratch::row_sums);
    fill_zero(sum, n);
    for (std::int64_t i = row * r.top; i < (row + 1) * r.top; ++i) {
      if (slot[i] < 0) continue;
      const T* x = buffer + slot[i] * n;
      const Main<T> weight = gate ? gate[i] : Main<T>(1);
      kTeam.for_each(n, [=](std::int64_t k) { sum[k] += weight * x[k]; });
    }
    narrow(sum, y, n);
  }
}

template <class T>
void run(const Dispatch& op, const KernelCall<T>& call) {
  const Routing& r = op.routing;
  const T* x = in<T>(call, 0);
  const auto* slot = in<std::int32_t>(call, 1);
  T* y = out<T>(call, 0);
  if (op.gradient) return gather<T>(r, op.n, x, slot, nullptr, y);
  if (r.capacity) fill_zero(y, r.buffer_rows() * op.n);
  for (std::int64_t i = 0; i < r.rows() * r.top; ++i) {
    if (slot[i] >= 0) copy(x + i / r.top * op.n, y + slot[i] * op.n, op.n);
  }
}

template <class T>
void run(const Combine& op, const KernelCall<T>& call) {
  gather(op.routing, op.n, in<T>(call, 0), in<std::int32_t>(call, 1), in<Main<T>>(call, 2),
         out<T>(call, 0));
}

template <class T>
void run(const CombineGradient& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const Routing& r = op.routing;
  const auto* slot = in<std::int32_t>(call, 2);
  const M* gate = in<M>(call, 3);
  T* d_buffer = out<T>(call, 0);
  M* d_gate = out<M>(call, 1);
  if (r.capacity) fill_zero(d_buffer, r.buffer_rows() * op.n);
  for (std::int64_t i = 0; i < r.rows() * r.top; ++i) {
    d_gate[i] = M(0);
    if (slot[i] < 0) continue;
    const T* dy = in<T>(call, 0) + i / r.top * op.n;
    const T* x = in<T>(call, 1) + slot[i] * op.n;
    T* dx = d_buffer + slot[i] * op.n;
    const M weight = gate[i];
    d_gate[i] = kTeam.sum<M>(op.n, [=](std::int64_t k) { return M(dy[k]) * M(x[k]); });
    kTeam.for_each(op.n, [=](std::int64_t k) { dx[k] = weight * dy[k]; });
  }
}

// With a backend that takes 16-bit operands as they are.
template <class T>
void multiply_half(const ExpertMatmul& op, const KernelCall<T>& call, const std::int32_t* counts) {
  const T* a = in<T>(call, 0);
  const T* b = in<T>(call, 1);
  const bool to_main = op.product == ExpertProduct::weight_gradient;
  const auto product = [&](const MatmulShape& shape, const T* x, const T* y, void* c) {
    call.half_matmul(shape, x, y, nullptr, c, to_main);
  };
  to_main ? multiply_weights(op, counts, a, b, out<Main<T>>(call, 0), product, fill_zero<Main<T>>)
          : multiply_rows(op, counts, a, b, out<T>(call, 0), product);
}

template <class T>
void run(const ExpertMatmul& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const auto* counts = op.rows.fixed ? nullptr : in<std::int32_t>(call, 2);
  if (call.half_matmul) return multiply_half(op, call, counts);
  const std::int64_t rows = rows_there(op.rows, counts);
  const bool forward = op.product == ExpertProduct::forward;
  const auto product = [&](const MatmulShape& shape, const M* x, const M* y, M* c) {
    call.matmul(shape, x, y, nullptr, c);
  };
  const M* a = widen(in<T>(call, 0), rows * (forward ? op.k : op.n), Scratch::wide_a);
  if (op.product == ExpertProduct::weight_gradient) {
    const M* x = widen(in<T>(call, 1), rows * op.k, Scratch::wide_b);
    return multiply_weights(op, counts, a, x, out<M>(call, 0), product, fill_zero<M>);
  }
  const std::int64_t size = rows * (forward ? op.n : op.k);
  const M* w = widen(in<T>(call, 1), op.rows.experts * op.n * op.k, Scratch::wide_b);
  M* y = widen_result(out<T>(call, 0), size, Scratch::wide_c);
  multiply_rows(op, counts, a, w, y, product);
  narrow(y, out<T>(call, 0), size);
}

template <class T>
void run(const ExpertActivation& op, const KernelCall<T>& call) {
  const T* u = in<T>(call, 0);
  T* y = out<T>(call, 0);
  const std::int64_t n = op.n;
  const std::int64_t rows =
      rows_there(op.rows, op.rows.fixed ? nullptr : in<std::int32_t>(call, 1));
  if (!op.gated) return gelu(kTeam, u, y, rows * n);
  for (std::int64_t r = 0; r < rows; ++r, u += 2 * n, y += n) swiglu_row(kTeam, u, u + n, y, n);
}

template <class T>
void run(const ExpertActivationGradient& op, const KernelCall<T>& call) {
  const T* dy = in<T>(call, 0);
  const T* u = in<T>(call, 1);
  T* du = out<T>(call, 0);
  const std::int64_t n = op.n;
  const std::int64_t rows =
      rows_there(op.rows, op.rows.fixed ? nullptr : in<std::int32_t>(call, 2));
  if (!op.gated) return gelu_gradient(kTeam, dy, u, du, rows * n);
  for (std::int64_t r = 0; r < rows; ++r, dy += n, u += 2 * n, du += 2 * n) {
    swiglu_gradient_row(kTeam, dy, u, u + n, du, du + n, n);
  }
}

}  // namespace
}  // namespace mb
