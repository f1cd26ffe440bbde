// What queries see of which keys: of a whole sequence, or at a step of ring attention. For kernels
// of any device and instruction set: what is called in them is inlined.
#pragma once

#include <cstdint>

#include "workloads/base/host_device.h"
#include "workloads/ops/dropout.h"
#include "workloads/ops/launch.h"
#include "workloads/ops/scalar_math.h"
#include "workloads/ops/tokens.h"

namespace mb {

// Where a head's rows stand in packed q rows and in packed k and v rows, which are part of the
// former or by themselves. Offsets of k count from the first head of k.
struct HeadLayout {
  std::int64_t batch, heads, kv_heads, head_dim, sequence;  // rows of a sequence
  std::int64_t q_row, kv_row, out_row;

  MB_HD std::int64_t rows() const { return batch * sequence; }
  MB_HD std::int64_t q(std::int64_t batch, std::int64_t head) const {
    return batch * sequence * q_row + head * head_dim;
  }
  MB_HD std::int64_t k(std::int64_t batch, std::int64_t head) const {
    return batch * sequence * kv_row + head / (heads / kv_heads) * head_dim;
  }
  MB_HD std::int64_t v(std::int64_t batch, std::int64_t head) const {
    return k(batch, head) + kv_heads * head_dim;
  }
  MB_HD std::int64_t out(std::int64_t batch, std::int64_t head) const {
    return batch * sequence * out_row + head * head_dim;
  }
  MB_HD std::int64_t lse(std::int64_t batch, std::int64_t head) const {
    return (batch * heads + head) * sequence;
  }
};

// Positions of a rank's rows in their sequence: they are one run, or two that meet at row `turn`.
struct RowPositions {
  std::int64_t turn, before, after;
  MB_HD std::int64_t of(std::int64_t row) const { return row + (row < turn ? before : after); }
};

static inline RowPositions row_positions(const TokenSplit& split, std::int64_t sequence,
                                         int context_index) {
  const std::int64_t turn = run_length(split, sequence);
  const auto first = [&](std::int64_t row) {
    return place_of_row(split, 1, sequence, context_index, 0, row).position - row;
  };
  const bool turns = turn < sequence / split.context_ways;
  return {turn, first(0), turns ? first(turn) : 0};
}

// Which probabilities dropout keeps, for the heads of a rank.
struct AttentionDropout {
  DropoutMask mask;
  std::int64_t first_sample, first_head, heads, sequence;  // heads of all ranks
  RowPositions queries, keys;
};

// The dropout of the keys of one query: what its probabilities are multiplied by.
template <class T>
struct KeepRow {
  DropoutMask mask;
  std::int64_t first;
  RowPositions keys;
  MB_HD T operator()(std::int64_t key) const {
    return dropout_of(mask, first + keys.of(key), T(1));
  }
};

// `queries` rows from first_query on against the first `keys` keys of a sequence. The first step
// is causal and starts the results; later ones, of ring attention, see all these keys and add.
struct AttentionStep {
  HeadLayout layout;
  bool is_first;
  std::int64_t first_query, queries, keys;
  bool drops;
  AttentionDropout dropout;

  // How many keys a query sees.
  MB_HD std::int64_t reach(std::int64_t query) const { return is_first ? query + 1 : keys; }

  template <class T>
  MB_HD KeepRow<T> keep(std::int64_t batch, std::int64_t head, std::int64_t query) const {
    const AttentionDropout& d = dropout;
    const std::int64_t row = (d.first_sample + batch) * d.heads + d.first_head + head;
    return {d.mask, (row * d.sequence + d.queries.of(query)) * d.sequence, d.keys};
  }
};

// Queries [first, first + rows) against keys [0, keys).
struct QueryTile {
  std::int64_t first, rows, keys;
};
// Of tiles of `size` queries, all but perhaps the last.
static inline std::int64_t query_tiles(const AttentionStep& step, std::int64_t size) {
  return (step.queries + size - 1) / size;
}
static inline QueryTile query_tile(const AttentionStep& step, std::int64_t size,
                                   std::int64_t index) {
  const std::int64_t begin = index * size;
  const std::int64_t rows = step.queries - begin < size ? step.queries - begin : size;
  const std::int64_t first = step.first_query + begin;
  return {first, rows, step.reach(first + rows - 1)};
}

template <class T>
static MB_HD T score_scale(std::int64_t head_dim) {
  return T(1) / root_of(T(head_dim));
}

// Causal attention over whole sequences, of packed qkv rows.
template <class Op>
static AttentionStep whole_attention(const Op& op, const OpContext& context) {
  const std::int64_t qkv_row = (op.heads + 2 * op.kv_heads) * op.head_dim;
  const int part =
      context.shard_index * op.head_ways + (op.head_ways > 1 ? context.context_index : 0);
  const RowPositions places{op.sequence, 0, 0};
  return {.layout = {op.batch, op.heads, op.kv_heads, op.head_dim, op.sequence, qkv_row, qkv_row,
                     op.heads * op.head_dim},
          .is_first = true,
          .first_query = 0,
          .queries = op.sequence,
          .keys = op.sequence,
          .drops = op.dropout.probability > 0,
          .dropout = {dropout_mask(op.dropout, context), context.first_sample, part * op.heads,
                      op.total_heads ? op.total_heads : op.heads * op.head_ways, op.sequence,
                      places, places}};
}

// What the queries of a rank see of the keys of the rank `step` places before it. Step 0 is causal
// among the rows of one rank. Zig-zag, all queries come after the first run of keys of a rank with
// a lower index, and those of the second run after all keys of a rank with a higher one.
template <class Op>
static AttentionStep ring_step(const Op& op, const OpContext& context) {
  const TokenSplit& split = op.split;
  const std::int64_t rows = op.sequence / split.context_ways;
  const std::int64_t run = run_length(split, op.sequence);
  const int source = (context.context_index - op.step + split.context_ways) % split.context_ways;
  AttentionStep step{
      .layout = {op.batch, op.heads, op.kv_heads, op.head_dim, rows,
                 (op.heads + 2 * op.kv_heads) * op.head_dim, 2 * op.kv_heads * op.head_dim,
                 op.heads * op.head_dim},
      .is_first = op.step == 0,
      .first_query = 0,
      .queries = rows,
      .keys = rows,
      .drops = op.dropout.probability > 0,
      .dropout = {dropout_mask(op.dropout, context), context.first_sample,
                  context.shard_index * op.heads, op.total_heads ? op.total_heads : op.heads,
                  op.sequence, row_positions(split, op.sequence, context.context_index),
                  row_positions(split, op.sequence, source)}};
  if (op.step == 0) return step;
  if (source < context.context_index) {
    step.keys = run;
  } else {
    step.first_query = run;
    step.queries = rows - run;
  }
  return step;
}

}  // namespace mb
