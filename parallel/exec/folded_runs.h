// What FoldedStep goes through: runs, arrivals and meetings in an order that a walk has found.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "parallel/exec/folded_step.h"

namespace mb::folded {

// A time that something waits for: the end of an instruction, or where the host stops its start.
// Cell 0 is always 0.
using Cell = std::int32_t;
constexpr Cell kZero = 0;

// What a step of a run starts after: another step of it, or an input; its end, or so long after
// its start.
struct Before {
  enum class Kind : std::uint8_t { step_end, step_start, input };
  Kind kind = Kind::input;
  std::int32_t index = 0;
  std::int64_t delay_ns = 0;
  bool operator==(const Before&) const = default;
};
struct Step {
  std::int64_t duration_ns = 0;
  std::int32_t first_before = 0, befores = 0;  // of Type::befores
  bool operator==(const Step&) const = default;
};
struct Output {
  std::int32_t step = 0;
  bool is_start = false;
  bool operator==(const Output&) const = default;
};

struct Type {
  std::vector<Step> steps;
  std::vector<Before> befores;
  std::vector<Output> outputs;
  std::int32_t inputs = 0;
  bool operator==(const Type& other) const {
    return steps == other.steps && befores == other.befores && outputs == other.outputs &&
           inputs == other.inputs;
  }

  // By input: earlier than so long after the run's first start, it makes no difference, as all that
  // waits for it also waits for that start.
  std::vector<std::int64_t> least_lag;
  // By hash of lags; of each set its lags, then when outputs are known, from the first start.
  std::unordered_map<std::uint64_t, std::size_t> known;
  std::vector<std::int64_t> records;
};

struct Run {
  std::int32_t type = 0;
  std::uint32_t inputs = 0, outputs = 0;  // where its cells begin
};
struct Wait {
  Cell cell = 0;
  std::int64_t delay_ns = 0;
};
struct Arrival {
  std::uint32_t begin = 0, end = 0;  // of Runs::waits
  Cell at = 0;
};
struct Meeting {
  std::uint32_t begin = 0, end = 0;  // its parties' arrivals, then as many ends
  std::int64_t duration_ns = 0;
};
struct Entry {
  enum class Kind : std::uint8_t { run, arrive, meet } kind = Kind::run;
  std::int32_t index = 0;
};

std::uint64_t hash_of(std::span<const std::int64_t> numbers);

// Earlier than everything.
inline constexpr std::int64_t kNever = std::int64_t{-1} << 61;

}  // namespace mb::folded

namespace mb {

struct FoldedStep::Runs {
  std::vector<folded::Entry> entries;
  std::vector<folded::Type> types;
  std::vector<folded::Run> runs;
  std::vector<folded::Arrival> arrivals;
  std::vector<folded::Meeting> meetings;
  std::vector<folded::Cell> cells;  // of runs and meetings
  std::vector<folded::Wait> waits;  // of arrivals
  std::vector<folded::Cell> last;   // ends of all streams
  std::vector<std::int64_t> times;  // by cell
  Counts counts;
  std::vector<std::int64_t> lags, starts, ends;  // while one run is gone through

  void go_through(folded::Run run);
  std::size_t record(folded::Type& type, std::uint64_t hash);
};

}  // namespace mb
