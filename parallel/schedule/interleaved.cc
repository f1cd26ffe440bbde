// Schedules of looped chunks: interleaved 1F1B and its forms with the backward split in two.
#include <algorithm>

#include "parallel/schedule/orders.h"
#include "workloads/base/mutation.h"

namespace mb {
namespace {

// The passes of one kind in the order that every rank runs them: rounds of `group` micro-batches,
// each round through all chunks, forwards from the first chunk and gradients from the last.
std::vector<Slot> in_rounds(Pass pass, const PipelineShape& shape) {
  const int group = shape.group_or_ranks();
  std::vector<Slot> order;
  for (int begin = 0; begin < shape.micro_batches; begin += group) {
    const int end = std::min(begin + group, shape.micro_batches);
    for (int c = 0; c < shape.chunks; ++c) {
      const int chunk = pass == Pass::forward ? c : shape.chunks - 1 - c;
      for (int m = begin; m < end; ++m) order.push_back({pass, m, chunk});
    }
  }
  return order;
}

}  // namespace

// Interleaved 1F1B (Narayanan et al., SC 2021, section 2.2; rounds of more micro-batches than ranks
// as in Megatron-LM). One chunk a rank is 1F1B, which warms up half as long.
std::vector<Slot> interleaved(int rank, const PipelineShape& shape) {
  if (shape.chunks == 1 && !mutated("one_chunk_warms_up_longer")) return one_f_one_b(rank, shape);
  const std::vector<Slot> forwards = in_rounds(Pass::forward, shape);
  const std::vector<Slot> backwards = in_rounds(Pass::backward, shape);
  const int count = static_cast<int>(forwards.size());
  const int warm_up =
      std::min(2 * (shape.ranks - rank - 1) + (shape.chunks - 1) * shape.group_or_ranks(), count);
  std::vector<Slot> order(forwards.begin(), forwards.begin() + warm_up);
  for (int i = 0; i < count; ++i) {
    if (warm_up + i < count) order.push_back(forwards[warm_up + i]);
    order.push_back(backwards[i]);
  }
  return order;
}

// The same with W taken from B and run `rank` gradients later, in what would be idle time: ZB1P for
// one chunk (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024), with the half warm-up of
// 1F1B for several, as the next rank waits for I only.
std::vector<Slot> interleaved_zb(int rank, const PipelineShape& shape) {
  const std::vector<Slot> forwards = in_rounds(Pass::forward, shape);
  const std::vector<Slot> input_grads = in_rounds(Pass::input_grad, shape);
  const std::vector<Slot> weight_grads = in_rounds(Pass::weight_grad, shape);
  const int count = static_cast<int>(forwards.size());
  const int warm_up =
      std::min(shape.ranks - rank - 1 + (shape.chunks - 1) * shape.group_or_ranks(), count);
  std::vector<Slot> order(forwards.begin(), forwards.begin() + warm_up);
  for (int i = 0; i < count + rank; ++i) {
    if (warm_up + i < count) order.push_back(forwards[warm_up + i]);
    if (i < count) order.push_back(input_grads[i]);
    if (i >= rank) order.push_back(weight_grads[i - rank]);
  }
  return order;
}

// ZB-H1 (Qi et al., ICLR 2024, section 2): 1F1B whose W fill the drain of the pipe; every rank
// keeps as many micro-batches as the first of 1F1B.
std::vector<Slot> zb_h1(int rank, const PipelineShape& shape) {
  return interleaved_zb(rank, shape);
}

}  // namespace mb
