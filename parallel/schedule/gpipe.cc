#include "parallel/schedule/orders.h"

namespace mb {

// GPipe: all forwards, then all backwards (Huang et al., NeurIPS 2019).
std::vector<Slot> gpipe(int /*rank*/, const PipelineShape& shape) {
  std::vector<Slot> order;
  for (int m = 0; m < shape.micro_batches; ++m) order.push_back({Pass::forward, m});
  for (int m = 0; m < shape.micro_batches; ++m) order.push_back({Pass::backward, m});
  return order;
}

}  // namespace mb
