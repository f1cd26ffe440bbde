#include <algorithm>

#include "parallel/schedule/orders.h"
#include "workloads/base/mutation.h"

namespace mb {

// 1F1B: fill the pipe, alternate, drain (Narayanan et al., SC 2021, section 2.2).
std::vector<Slot> one_f_one_b(int rank, const PipelineShape& shape) {
  const int micro_batches = shape.micro_batches;
  const int warm_up = std::min(shape.ranks - 1 - rank, micro_batches);
  std::vector<Slot> order;
  for (int m = 0; m < warm_up; ++m) order.push_back({Pass::forward, m});
  for (int m = warm_up; m < micro_batches; ++m) {
    order.push_back({Pass::forward, m});
    order.push_back({Pass::backward, m - warm_up});
  }
  if (micro_batches < shape.ranks && mutated("few_micro_batches_not_drained")) return order;
  for (int m = micro_batches - warm_up; m < micro_batches; ++m)
    order.push_back({Pass::backward, m});
  return order;
}

}  // namespace mb
