#include "parallel/strategy/layout.h"

#include <algorithm>
#include <numeric>

#include "workloads/base/error.h"
#include "workloads/base/mutation.h"
#include "workloads/model/counts.h"

namespace mb {

Placement placement_of(const StepOptions& options) {
  return options.user_schedule.slots.empty() ? find_schedule(options.schedule).placement
                                             : options.user_schedule.placement;
}

bool splits_backward(const StepOptions& options) {
  if (options.user_schedule.slots.empty()) return find_schedule(options.schedule).splits_backward;
  for (const std::vector<Slot>& rank : options.user_schedule.slots) {
    for (const Slot& slot : rank) {
      if (slot.pass == Pass::weight_grad) return true;
    }
  }
  return false;
}

PipelineShape pipeline_shape(const Mesh& mesh, const StepOptions& options) {
  int chunks = options.chunks;
  if (!options.user_schedule.slots.empty()) {
    chunks = options.user_schedule.chunks;
  } else if (chunks == 0) {
    chunks = usual_chunks(placement_of(options));
  }
  return {.ranks = mesh.size(Axis::pp),
          .chunks = chunks,
          .micro_batches = options.micro_batches,
          .group = options.group};
}

std::vector<std::vector<Slot>> slots_of_step(const Mesh& mesh, const StepOptions& options) {
  if (!options.user_schedule.slots.empty()) return options.user_schedule.slots;
  return slots_of(find_schedule(options.schedule), pipeline_shape(mesh, options));
}

std::vector<int> stage_layers(const ModelConfig& model, const Mesh& mesh,
                              const StepOptions& options) {
  const PipelineShape shape = pipeline_shape(mesh, options);
  const int stages = shape.ranks * shape.chunks, total = static_cast<int>(model.layers);
  if (!options.layout.empty() && !mutated("layout_ignored")) {
    const int sum = std::accumulate(options.layout.begin(), options.layout.end(), 0);
    require(static_cast<int>(options.layout.size()) == stages && sum == total, "layout= has ",
            options.layout.size(), " stages and ", sum, " layers; give the layers of each of ",
            stages, " stages (pp=", shape.ranks, " x ", shape.chunks, " chunks), ", total,
            " in all");
    for (int s = 1; s + 1 < stages; ++s)
      require(options.layout[s] > 0, "layout= leaves stage ", s,
              " without a layer; only the first and the last stage, which have embedding and head, "
              "may be");
    return options.layout;
  }
  require(total >= stages, "model.layers=", total, " do not fill ", stages,
          " stages (pp=", shape.ranks, " x ", shape.chunks,
          " chunks) with a layer each; give fewer, or a layout= in which the first or last stage "
          "has none");
  if (total % stages == 0 || mutated("last_layers_dropped"))
    return std::vector<int>(stages, total / stages);
  const double layer = layer_multiply_adds(model);
  const double head = static_cast<double>(model.hidden) * static_cast<double>(model.vocabulary);
  std::vector<int> layers(stages, 1);
  for (int i = stages; i < total; ++i) {
    int least = 0;
    const auto work = [&](int s) { return layers[s] * layer + (s == stages - 1 ? head : 0); };
    // Later stages first: they keep fewer micro-batches.
    for (int s = 1; s < stages; ++s) {
      if (work(s) <= work(least)) least = s;
    }
    ++layers[least];
  }
  return layers;
}

BlockShape block_shape(const Mesh& mesh, const StepOptions& options) {
  return {.batch = options.micro_batch,
          .dtype = options.dtype,
          .ways = mesh.size(Axis::tp),
          .sequence_parallel = options.sequence_parallel,
          .context_ways = mesh.size(Axis::cp),
          .context = options.context,
          .expert_ways = mesh.size(Axis::ep),
          .dropout = options.dropout,
          .tensor_chunks = options.tensor_chunks};
}

}  // namespace mb
