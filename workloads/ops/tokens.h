// Which tokens of a micro-batch the rows of a rank are, by TokenSplit.
#pragma once

#include <cstdint>

#include "workloads/base/host_device.h"
#include "workloads/ops/op.h"

namespace mb {

struct TokenPlace {
  std::int64_t sequence, position;  // the sequence within the micro-batch, the position within it
};

static MB_HD bool is_split(const TokenSplit& split) {
  return split.context_ways > 1 || split.row_ways > 1;
}

static MB_HD std::int64_t rows_of(const TokenSplit& split, std::int64_t batch,
                                  std::int64_t sequence) {
  return batch * sequence / split.context_ways / split.row_ways;
}

// Consecutive positions that a context rank holds at once.
static MB_HD std::int64_t run_length(const TokenSplit& split, std::int64_t sequence) {
  return sequence / split.context_ways / (split.zigzag ? 2 : 1);
}

// Place of row `row` of the rows of a rank.
static MB_HD TokenPlace place_of_row(const TokenSplit& split, std::int64_t batch,
                                     std::int64_t sequence, int context_index, int shard_index,
                                     std::int64_t row) {
  const std::int64_t here = sequence / split.context_ways, run = run_length(split, sequence);
  if (split.row_ways > 1) row += shard_index * rows_of(split, batch, sequence);
  const std::int64_t place = row % here;
  const std::int64_t first =
      place < run ? context_index : 2 * split.context_ways - 1 - context_index;
  return {row / here, first * run + place % run};
}

// f(row, place of the row, rows) for each run of rows that are consecutive in a sequence.
template <class F>
static inline void for_each_run(const TokenSplit& split, std::int64_t batch, std::int64_t sequence,
                                int context_index, int shard_index, F f) {
  const std::int64_t rows = rows_of(split, batch, sequence), run = run_length(split, sequence);
  for (std::int64_t row = 0, count; row < rows; row += count) {
    const TokenPlace place = place_of_row(split, batch, sequence, context_index, shard_index, row);
    const std::int64_t left = run - place.position % run;
    count = left < rows - row ? left : rows - row;
    f(row, place, count);
  }
}

}  // namespace mb
