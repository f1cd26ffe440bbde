#include <algorithm>
#include <array>
#include <utility>

#include "parallel/schedule/orders.h"

namespace mb {
namespace {

// Appends the next micro-batch of a pass and chunk, of those that exist.
class Counter {
 public:
  explicit Counter(int micro_batches) : micro_batches_(micro_batches) {}

  void add(Pass pass, int chunk) {
    const int m = next(pass, chunk)++;
    if (m < micro_batches_) order_.push_back({pass, m, chunk});
  }
  void add_gradients(int chunk) {
    add(Pass::input_grad, chunk);
    add(Pass::weight_grad, chunk);
  }
  int& next(Pass pass, int chunk) { return next_[static_cast<std::size_t>(pass)][chunk]; }
  std::vector<Slot> take() { return std::move(order_); }

 private:
  int micro_batches_;
  std::array<std::array<int, 2>, kPasses> next_{};
  std::vector<Slot> order_;
};

}  // namespace

// ZB-V (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024): micro-batches run down
// the ranks in chunk 0 and back up in chunk 1, so that the loss is on rank 0. The order is laid out
// for at least 2 * ranks - 1 micro-batches, which fill the V; those that do not exist are left out.
std::vector<Slot> zb_v(int rank, const PipelineShape& shape) {
  const int p = shape.ranks, laid_out = std::max(shape.micro_batches, 2 * p - 1);
  Counter slots(shape.micro_batches);
  for (int i = 0; i < 2 * (p - rank) - 1; ++i) slots.add(Pass::forward, 0);
  for (int i = 0; i < rank; ++i) {
    slots.add(Pass::forward, 1);
    slots.add(Pass::forward, 0);
  }
  for (int i = 0; i < p - rank; ++i) {
    slots.add(Pass::forward, 1);
    slots.add_gradients(1);
  }
  while (slots.next(Pass::forward, 1) < laid_out) {
    if (slots.next(Pass::forward, 0) < laid_out) slots.add(Pass::forward, 0);
    slots.add_gradients(0);
    slots.add(Pass::forward, 1);
    slots.add_gradients(1);
  }
  for (int i = 0; i < rank; ++i) {
    slots.add(Pass::input_grad, 0);
    slots.add(Pass::input_grad, 1);
  }
  for (int i = 0; i < p - rank; ++i) {
    slots.add(Pass::input_grad, 0);
    slots.add(Pass::weight_grad, 0);
  }
  while (slots.next(Pass::weight_grad, 1) < laid_out) slots.add(Pass::weight_grad, 1);
  while (slots.next(Pass::weight_grad, 0) < laid_out) slots.add(Pass::weight_grad, 0);
  return slots.take();
}

}  // namespace mb
