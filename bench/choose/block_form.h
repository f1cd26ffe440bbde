// What one block of a model costs a micro-batch, read off a Plan of three layers on one stage: the
// numbers that a closed form adds up for any pipeline.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/analysis/step_shape.h"
#include "bench/choose/mesh_links.h"
#include "parallel/cost/stack.h"

namespace mb {

// Seconds of one micro-batch.
struct PassSeconds {
  double forward = 0;
  double backward = 0;                     // both halves, layer by layer
  double input_grad = 0, weight_grad = 0;  // each half of all layers; of schedules that split it
  PassSeconds& operator+=(const PassSeconds& other);
  friend PassSeconds operator*(double times, const PassSeconds& one);
};

// Device bytes.
struct BlockBytes {
  std::int64_t embedding = 0, layer = 0, head = 0;  // kept from the forward to the input gradient
  std::int64_t layer_pending = 0;                   // of it, kept on until the weight gradient
  // On top of what is kept, while a layer's or the head's backward is computed.
  std::int64_t layer_work = 0, head_work = 0;
};

struct BlockForm {
  // What computation and the exchanges of tensor, context and expert ranks take together, the
  // layer's in the middle of others; the host's launches where they take longer.
  PassSeconds embedding, layer, head;
  BlockBytes bytes;
};

// The blocks of one shape, on any links: what takes longest, their Plan, is made once. Data ranks
// and the pipeline have no part in it. `split`: the schedule has halves of backwards. Offloaded
// activations leave computation as it is, and what is kept as it is before it leaves;
// layer_copies_s() says how long they travel.
class BlockPlan {
 public:
  BlockPlan(const StepShape& shape, bool split, const Machine& machine, const Stack& stack);
  ~BlockPlan();
  // The links are those of the whole mesh.
  BlockForm on(const MeshLinks& links) const;

 private:
  struct Passes;
  std::unique_ptr<Passes> whole_, halves_;  // backwards; halves where they are parted
  double comm_share_;
};

// To the second memory space and back, of a micro-batch.
double layer_copies_s(const StepShape& shape, const Machine& machine, const Stack& stack);

}  // namespace mb
