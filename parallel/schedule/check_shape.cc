// Which shapes each schedule takes, and what to write instead of one that it does not take.
#include "parallel/schedule/orders.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

void check_counts(std::string_view name, const PipelineShape& shape) {
  require(shape.ranks > 0 && shape.chunks > 0 && shape.micro_batches > 0 && shape.group >= 0,
          "schedule=", name, " wants at least 1 rank, chunk and micro-batch and a group of 0 or ",
          "more, not ", shape.ranks, ", ", shape.chunks, ", ", shape.micro_batches, " and ",
          shape.group);
}

// Megatron-LM's rule for the rounds of an interleaved schedule: a last round may be shorter than
// `group`, but each has to fill the ranks.
bool fills_ranks(int ranks, int micro_batches, int group) {
  const int rest = micro_batches % group;
  return ranks <= group && group <= micro_batches && (rest == 0 || rest >= ranks);
}

std::string legal_micro_batches(int ranks, int micro_batches, int group) {
  int below = micro_batches, above = micro_batches;
  while (below > 0 && !fills_ranks(ranks, below, group)) --below;
  while (!fills_ranks(ranks, above, group)) ++above;
  return below > 0 ? cat(below, " or ", above) : cat(above);
}

std::string legal_group(int ranks, int micro_batches, int group) {
  for (int away = 1; away <= micro_batches + group; ++away) {
    for (const int other : {group + away, group - away}) {
      if (other > 0 && fills_ranks(ranks, micro_batches, other)) return cat(", or group=", other);
    }
  }
  return "";
}

}  // namespace

void check_chunks(std::string_view name, const PipelineShape& shape, int chunks) {
  check_counts(name, shape);
  require(shape.chunks == chunks, "schedule=", name, " has ", chunks, " chunk",
          chunks > 1 ? "s" : "", " on each rank, not ", shape.chunks, "; use chunks=", chunks);
}

void check_rounds(std::string_view name, const PipelineShape& shape) {
  check_counts(name, shape);
  if (shape.chunks == 1) return;
  const int p = shape.ranks, m = shape.micro_batches, group = shape.group_or_ranks();
  require(group >= p, "schedule=", name, ": rounds of group=", group, " micro-batches do not fill ",
          p, " ranks; use group=", p, " or more");
  if (fills_ranks(p, m, group)) return;
  const std::string legal =
      cat("; use ", legal_micro_batches(p, m, group), " micro-batches", legal_group(p, m, group));
  require(m >= group, "schedule=", name, ": a round of group=", group,
          " wants as many micro-batches, not ", m, legal);
  require(false, "schedule=", name, ": ", m, " micro-batches in rounds of group=", group,
          " leave a round of ", m % group, ", which does not fill ", p, " ranks", legal);
}

void check_two_a_rank(std::string_view name, const PipelineShape& shape) {
  check_chunks(name, shape, 2);
  require(shape.micro_batches >= 2 * shape.ranks, "schedule=", name,
          " wants at least twice as many micro-batches as its ", shape.ranks, " ranks, not ",
          shape.micro_batches, "; use ", 2 * shape.ranks, " or more");
}

}  // namespace mb
