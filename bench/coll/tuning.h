// Which algorithm of a collective was fastest: a table made from measured points, kept in a file,
// and asked for the algorithm of others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/coll/operation.h"

namespace mb {

struct MeasuredPoint;

struct TunedStep {
  std::int64_t from_bytes = 0;  // up to the next step's
  Algorithm algorithm = Algorithm::own;
  bool operator==(const TunedStep&) const = default;
};

// Of one operation on groups of so many members, by size.
struct TunedOperation {
  Operation operation = Operation::all_reduce;
  int members = 1;
  std::vector<TunedStep> steps;
  bool operator==(const TunedOperation&) const = default;
};

struct Tuning {
  // What it was measured on: the case reruns it.
  std::string mode, machine, library, case_line;
  std::vector<TunedOperation> operations;
  std::string origin;  // the file that it was read from
};

// A time with the 95 % interval of its median.
struct TimedRow {
  Operation operation = Operation::all_reduce;
  int members = 1;
  std::int64_t bytes = 0;
  Algorithm algorithm = Algorithm::own;
  double median_ns = 0, low_ns = 0, high_ns = 0;
};
// One of each group of each point; of fewer than six operations the interval is their range.
std::vector<TimedRow> timed_rows(const std::vector<MeasuredPoint>& all);

// The first of the algorithms, in the order of their enumeration, whose interval meets the
// fastest's. Rows that differ in nothing but group, place, type or reduction count by the means of
// their medians and ends. Without algorithms that the operation does not have.
std::vector<TunedOperation> tune(const std::vector<TimedRow>& rows);

// That of the nearest number of members, the smaller of two, and of the step that the size is in;
// below the first step the first. Throws Error for an operation that is not in the table.
Algorithm algorithm_for(const Tuning& tuning, Operation operation, int members, std::int64_t bytes);

std::string to_json(const Tuning& tuning);
// Throws Error naming `origin` and what is wrong.
Tuning tuning_from_json(std::string_view text, std::string_view origin);

}  // namespace mb
