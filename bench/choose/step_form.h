// A step's time and memory from its parts: the formula of closed_form.h, a walk over the slots of
// its schedule, and what its ranks hold.
#pragma once

#include <vector>

#include "bench/choose/step_parts.h"

namespace mb {

// One case, all of whose parts are known. Keeps references.
class StepForm {
 public:
  // Of the parts' mesh.
  StepForm(StepParts& parts, const StepOptions& options);

  double formula_s() const;
  double walked_s() const;  // rounds of micro-batches beyond those of rounds_of() take as the last
  double memory_bytes() const;

 private:
  // Of one micro-batch: a layer of a rank, a chunk, all chunks.
  PassSeconds layer(const RankData& data) const;
  PassSeconds chunk(int rank, int chunk, const PassSeconds& layer) const;
  PassSeconds rank(int rank) const;
  void travel(PassSeconds& seconds, const RankData& data, const RankLayout& layout,
              int chunk) const;

  bool gathers_once() const;
  double copies_s(int rank) const;
  double work_s(const PassSeconds& seconds) const;
  double start_s(int rank, double forward) const;
  double exposed_s(int rank, const PassSeconds& own) const;
  double update_s(int rank) const;
  template <class EndOf>
  double finish(EndOf&& end_of) const;
  double walk_s(int micro_batches) const;

  StepParts& parts_;
  const StepOptions& options_;
  const Pipeline& pipeline_;
  const BlockForm& block_;
  const std::vector<const RankData*>& data_;
  const MeshLinks::Hops* hops_ = nullptr;  // of more ranks than one
  double layer_copies_s_ = 0;
};

}  // namespace mb
