#include <algorithm>
#include <array>
#include <utility>

#include "parallel/schedule/orders.h"

namespace mb {
namespace {

// Appends the next micro-batch of a pass and chunk; W that are put off wait in the order of their
// I.
class Counter {
 public:
  void forward(int chunk) { order_.push_back({Pass::forward, forwards_[chunk]++, chunk}); }
  void backward(int chunk) { order_.push_back({Pass::backward, gradients_[chunk]++, chunk}); }
  void input_grad(int chunk) {
    const int m = gradients_[chunk]++;
    order_.push_back({Pass::input_grad, m, chunk});
    waiting_.push_back({Pass::weight_grad, m, chunk});
  }
  void weight_grad() { order_.push_back(waiting_[taken_++]); }
  std::vector<Slot> take() { return std::move(order_); }

 private:
  std::array<int, 2> forwards_{}, gradients_{};
  std::vector<Slot> waiting_, order_;
  std::size_t taken_ = 0;
};

}  // namespace

// DualPipeV (DeepSeek-AI, DualPipe, 2025): the V of ZB-V, with a forward of one chunk next to a
// backward of the other so that a device may run the two at once; here the forward goes first.
std::vector<Slot> dualpipe_v(int rank, const PipelineShape& shape) {
  const int p = shape.ranks, later = p - rank - 1;
  Counter slots;
  for (int i = 0; i < 2 * later; ++i) slots.forward(0);
  for (int i = 0; i < rank + 1; ++i) {
    slots.forward(0);
    slots.forward(1);
  }
  for (int i = 0; i < later; ++i) {
    slots.input_grad(1);
    slots.weight_grad();
    slots.forward(1);
  }
  for (int i = 0; i < shape.micro_batches - 2 * p + rank + 1; ++i) {
    slots.forward(0);
    slots.backward(1);
    slots.forward(1);
    slots.backward(0);
  }
  for (int i = 0; i < later; ++i) {
    slots.backward(1);
    slots.forward(1);
    slots.backward(0);
  }
  // The backwards of both chunks in turn; the second half of them puts W off.
  for (int i = 0; i < 2 * (rank + 1); ++i) {
    const int chunk = 1 - i % 2;
    i < rank + 1 ? slots.backward(chunk) : slots.input_grad(chunk);
  }
  for (int i = 0; i < later; ++i) {
    slots.weight_grad();
    slots.input_grad(0);
  }
  for (int i = 0; i < rank + 1; ++i) slots.weight_grad();
  return slots.take();
}

}  // namespace mb
