// ParameterFlow: where the parameters that a slot reads come from and where its gradients go, while
// slots are being written out. With ZeRO-3 values are gathered for each use, one use ahead; with
// ZeRO-2 and 3 every micro-batch has gradients of its own until data ranks have summed them.
#pragma once

#include <deque>
#include <vector>

#include "parallel/strategy/stage.h"

namespace mb {

class ParameterFlow {
 public:
  // Keeps a reference to `stage`; `slots` tell in which order blocks will be entered.
  ParameterFlow(Stage& stage, const std::vector<Slot>& slots);

  // Has the parameters gathered that the next block to be entered reads, and asks for those of the
  // one that comes after it.
  void enter();
  // Of a parameter: its value, for the block that was entered last, and its gradient.
  TensorId value(int parameter) const;
  TensorId gradient(int parameter, int micro_batch);
  // Says that a gradient is being written; true if there is something already to add to.
  bool mark_written(int parameter, int micro_batch);

  // `block` has written its gradients of this slot: sums over data ranks start where it was the
  // last.
  void complete(const PreparedBlock& block, const Slot& slot);
  // What computation has to do with sums that have arrived: of those that one block has started,
  // after the next block, which hides them, so that no third block's gradients wait for a sum.
  void finish_reductions();

 private:
  // A bucket's gradient of one micro-batch, where it is not kept whole.
  struct GradientRun {
    TensorId whole = kNone, views = kNone;  // views: the first parameter's
    int contributors = 0;                   // blocks that have written theirs
    std::vector<bool> written;              // by parameter of the bucket
  };
  // Buckets whose parameters a block reads in one direction.
  struct Use {
    const std::vector<int>& buckets;
    Label label;
  };

  bool is_gathered(int bucket) const;
  TensorId gather(int bucket, Label label);
  TensorId views_of(int bucket, TensorId whole, MemoryClass memory,
                    const std::vector<std::uint16_t>& names);
  void reduce(int bucket, TensorId whole, int micro_batch, bool first, bool last);

  Stage& stage_;
  ProgramBuilder& builder_;
  std::vector<Use> uses_;  // in order
  std::size_t next_use_ = 0;
  std::vector<TensorId> values_, ahead_;  // by bucket: views of this use's and the next's values
  std::vector<bool> written_;             // by parameter: its gradient, if kept whole
  std::vector<int> remaining_;            // by bucket: writes of blocks to come
  std::vector<std::vector<GradientRun>> gradient_runs_;  // by bucket; micro-batch
  std::vector<bool> slice_written_;                      // by bucket: the slice that is kept
  std::deque<Reduction> pending_;
};

}  // namespace mb
