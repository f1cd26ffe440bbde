// Routers, and the slots that tokens get in the buffers of experts. Part of cuda_ops.cu.
#pragma once

#include <cstdint>

#include "workloads/ops/cuda_call.h"
#include "workloads/ops/router.h"

namespace mb::cuda {

template <class T>
struct RouteRow {
  const T* logits;
  Main<T>* probabilities;
  std::int32_t* choice;
  Main<T>* gate;
  std::int64_t experts, top;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    Main<T>* p = probabilities + row * experts;
    std::int32_t* chosen = choice + row * top;
    convert(team, logits + row * experts, p, experts);
    choose_row(team, p, experts, top, chosen);
    softmax_row(team, p, experts);
    gate_row(team, p, chosen, top, gate + row * top);
  }
};

// Of one expert and one sequence: balance[2, batch, experts].
template <class M>
struct BalanceRow {
  const M* probabilities;
  const std::int32_t* choice;
  M* balance;
  std::int64_t batch, rows, experts, top;  // rows of a sequence
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t index) const {
    const std::int64_t sequence = index / experts, expert = index % experts;
    const std::int32_t* own = choice + sequence * rows * top;
    const M* p = probabilities + sequence * rows * experts + expert;
    const std::int64_t stride = experts;
    const M choices = team.template sum<M>(
        rows * top, [=](std::int64_t i) { return own[i] == expert ? M(1) : M(0); });
    const M sum = team.template sum<M>(rows, [=](std::int64_t i) { return p[i * stride]; });
    balance[index] = choices;
    balance[batch * experts + index] = sum;
  }
};

// --- slots: a choice's is its expert's first one plus how many choices of that expert come before
// it in its group, counted by chunks so that many threads share the work. A group is a sequence,
// or all there is where there is no capacity.

struct SlotShape {
  static constexpr std::int64_t kChunk = 256;
  std::int64_t groups, choices, experts, capacity;  // choices of a group
  MB_HD std::int64_t chunks() const { return (choices + kChunk - 1) / kChunk; }

  explicit SlotShape(const Routing& r)
      : groups(r.capacity ? r.batch : 1),
        choices(r.rows() * r.top / groups),
        experts(r.experts),
        capacity(r.capacity) {}
};

// How often a chunk chooses each expert: of_chunk[groups, chunks, experts].
struct ChunkCounts {
  SlotShape shape;
  const std::int32_t* choice;
  std::int32_t* of_chunk;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t index) const {
    const std::int64_t begin = index % shape.chunks() * SlotShape::kChunk;
    const std::int64_t left = shape.choices - begin;
    const std::int64_t n = left < SlotShape::kChunk ? left : SlotShape::kChunk;
    const std::int32_t* own = choice + index / shape.chunks() * shape.choices + begin;
    std::int32_t* counts = of_chunk + index * shape.experts;
    team.for_each(shape.experts, [=](std::int64_t expert) {
      std::int32_t count = 0;
      for (std::int64_t i = 0; i < n; ++i) count += own[i] == expert;
      counts[expert] = count;
    });
  }
};
// Those to how many come before the chunk; all to totals[groups, experts].
struct ChunkStarts {
  SlotShape shape;
  std::int32_t *of_chunk, *totals;
  MB_HD void operator()(std::int64_t i) const {
    const std::int64_t group = i / shape.experts, expert = i % shape.experts;
    std::int32_t* own = of_chunk + group * shape.chunks() * shape.experts + expert;
    std::int32_t before = 0;
    for (std::int64_t chunk = 0; chunk < shape.chunks(); ++chunk, own += shape.experts) {
      const std::int32_t count = *own;
      *own = before;
      before += count;
    }
    totals[i] = before;
  }
};
// The rows in use of an expert; its first slot where it has no capacity.
struct ExpertStarts {
  SlotShape shape;
  const std::int32_t* totals;
  std::int32_t *counts, *starts;
  MB_HD void operator()(std::int64_t expert) const {
    std::int32_t used = 0, start = 0;
    for (std::int64_t group = 0; group < shape.groups; ++group) {
      const std::int32_t total = totals[group * shape.experts + expert];
      used += shape.capacity && total > shape.capacity ? static_cast<std::int32_t>(shape.capacity)
                                                       : total;
    }
    for (std::int64_t before = 0; before < expert; ++before) start += totals[before];
    counts[expert] = used;
    starts[expert] = start;
  }
};
struct SlotElement {
  SlotShape shape;
  const std::int32_t *choice, *of_chunk, *starts;
  std::int32_t* slot;
  MB_HD void operator()(std::int64_t i) const {
    const std::int64_t group = i / shape.choices, at = i % shape.choices;
    const std::int64_t chunk = at / SlotShape::kChunk;
    const std::int32_t expert = choice[i];
    std::int64_t place = of_chunk[(group * shape.chunks() + chunk) * shape.experts + expert];
    for (std::int64_t j = i - at % SlotShape::kChunk; j < i; ++j) place += choice[j] == expert;
    const std::int64_t first =
        shape.capacity ? (expert * shape.groups + group) * shape.capacity : starts[expert];
    const bool fits = !shape.capacity || place < shape.capacity;
    slot[i] = fits ? static_cast<std::int32_t>(first + place) : -1;
  }
};

template <class T>
void assign_slots(const Call<T>& call, const Routing& r, const std::int32_t* choice,
                  std::int32_t* slot, std::int32_t* counts) {
  const SlotShape shape(r);
  const std::int64_t chunks = shape.groups * shape.chunks(), totals = shape.groups * r.experts;
  auto* of_chunk = call.scratch.template take<std::int32_t>(chunks * r.experts);
  auto* of_group = call.scratch.template take<std::int32_t>(totals);
  auto* starts = call.scratch.template take<std::int32_t>(r.experts);
  rows(call, chunks, ChunkCounts{shape, choice, of_chunk});
  elements(call, totals, ChunkStarts{shape, of_chunk, of_group});
  elements(call, r.experts, ExpertStarts{shape, of_group, counts, starts});
  elements(call, shape.groups * shape.choices, SlotElement{shape, choice, of_chunk, starts, slot});
}

template <class T>
void run(const Route& op, const Call<T>& call) {
  using M = Main<T>;
  const Routing& r = op.routing;
  auto* probabilities = out<M>(call, 0);
  auto* choice = out<std::int32_t>(call, 1);
  rows(call, r.rows(),
       RouteRow<T>{in<T>(call, 0), probabilities, choice, out<M>(call, 2), r.experts, r.top});
  rows(call, r.batch * r.experts,
       BalanceRow<M>{probabilities, choice, out<M>(call, 5), r.batch, r.rows() / r.batch, r.experts,
                     r.top});
  assign_slots(call, r, choice, out<std::int32_t>(call, 3), out<std::int32_t>(call, 4));
}

template <class M>
struct BalanceLossRow {
  const M* balance;
  double* scalars;
  std::int64_t n;
  double slope;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t) const {
    const double total = team.template sum<double>(
        n, [=, *this](std::int64_t i) { return static_cast<double>(balance[i]) * balance[n + i]; });
    team.for_each(1, [=, *this](std::int64_t) { scalars[3] += slope * total; });
  }
};
template <class T>
void run(const BalanceLoss& op, const Call<T>& call) {
  if (call.context.shard_index != 0 || call.context.context_index != 0) return;
  rows(call, 1,
       BalanceLossRow<Main<T>>{in<Main<T>>(call, 0), out<double>(call, 0),
                               op.routing.batch * op.routing.experts,
                               balance_slope(op.routing, op.coefficient)});
}

template <class T>
struct RouteGradientRow {
  const Main<T>*d_gate, *probabilities;
  const std::int32_t* choice;
  const Main<T>*gate, *balance;
  const double* scalars;
  T* d_logits;
  double slope;
  std::int64_t rows_of_sequence, experts, top;
  template <class Team>
  MB_HD void operator()(Team team, std::int64_t row) const {
    const std::int64_t at = row * experts, chosen = row * top;
    route_gradient_row(team, d_gate + chosen, probabilities + at, choice + chosen, gate + chosen,
                       balance + row / rows_of_sequence * experts, Main<T>(scalars[4] * slope),
                       experts, top, d_logits + at);
  }
};
template <class T>
void run(const RouteGradient& op, const Call<T>& call) {
  using M = Main<T>;
  const Routing& r = op.routing;
  const double slope = call.context.shard_index == 0 ? balance_slope(r, op.coefficient) : 0;
  rows(call, r.rows(),
       RouteGradientRow<T>{in<M>(call, 0), in<M>(call, 1), in<std::int32_t>(call, 2),
                           in<M>(call, 3), in<M>(call, 4), in<double>(call, 5), out<T>(call, 0),
                           slope, r.rows() / r.batch, r.experts, r.top});
}

}  // namespace mb::cuda
