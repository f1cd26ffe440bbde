#include "bench/analysis/theory.h"

#include "bench/analysis/state_form.h"
#include "workloads/ops/op.h"

namespace mb {
namespace {

bool first(int stage) { return stage == 0; }
bool last(const StepShape& shape, int stage) { return stage == shape.stages() - 1; }

bool has_closed_form(std::string_view schedule) {
  return schedule == "gpipe" || schedule == "1f1b";
}

// Rows of the vocabulary on one tensor rank.
std::int64_t local_vocabulary(const StepShape& shape) {
  const int ways = shape.mesh.size(Axis::tp);
  return padded_vocabulary(shape.model, ways) / ways;
}

}  // namespace

std::optional<BubbleShare> bubble_share(std::string_view schedule, int stages, int micro_batches) {
  if (!has_closed_form(schedule)) return std::nullopt;
  const double idle = stages - 1, ideal = micro_batches;
  return BubbleShare{idle / (ideal + idle), idle / ideal};
}

std::optional<BubblePhases> bubble_phases(std::string_view schedule, int stages, int micro_batches,
                                          int stage, double forward, double backward) {
  const double before = stage, behind = stages - 1 - stage;
  if (schedule == "gpipe")
    return BubblePhases{(stages - 1) * forward + behind * backward, 0, before * backward};
  if (schedule == "1f1b" && micro_batches >= stages)
    return BubblePhases{before * forward + behind * backward, 0,
                        behind * forward + before * backward};
  return std::nullopt;
}

std::vector<Ledger> ledger(const StepShape& shape, int stage) {
  const std::int64_t n = shape.hidden_elements(), size = size_of(shape.options.dtype);
  const std::int64_t rows = shape.model.sequence * shape.options.micro_batch;
  const std::int64_t m = shape.options.micro_batches, layers = shape.layers_of_stage();
  const bool is_first = first(stage), is_last = last(shape, stage);
  std::vector<Ledger> out;
  if (shape.mesh.size(Axis::tp) > 1) {
    const std::int64_t whole = 4 * layers + is_first + is_last;
    out.push_back(
        {"tp", "all_reduce", m * (whole + 2 * is_last), m * (whole * n + 3 * rows * is_last), 0});
  }
  if (shape.stages() > 1) {
    const std::int64_t sends = m * (!is_first + !is_last);
    out.push_back({"pp", "send", sends, sends * n, 0});
  }
  if (shape.mesh.size(Axis::dp) > 1)
    out.push_back({"dp", "all_reduce", std::nullopt, local_parameters(shape, stage), 0});
  if (shape.model.tied && shape.stages() > 1 && (is_first || is_last))
    out.push_back({"embedding", "all_reduce", 1, local_vocabulary(shape) * shape.model.hidden, 0});
  for (Ledger& row : out) row.bytes = row.elements * size;
  if (shape.mesh.world() > 1)
    out.push_back({"world", "all_reduce", 1, kStepSums, kStepSums * size_of(DType::fp64)});
  return out;
}

}  // namespace mb
