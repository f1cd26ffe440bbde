// What closed forms of steps are made of, each part worked out once for all steps that share it:
// blocks by the shape that ranks give them, data ranks by layout and links, pipelines and orders of
// slots by schedule.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bench/choose/block_form.h"
#include "bench/choose/mesh_links.h"
#include "bench/choose/rank_data.h"
#include "bench/choose/slot_walk.h"
#include "parallel/schedule/schedule.h"

namespace mb {

// Which runs of layers a pipeline's ranks hold.
struct RankLayout {
  std::vector<int> layers;  // by chunk
  int all = 0;
  int embedding = -1, head = -1;  // the chunk that has it
  bool as_before = false;         // as the rank before it
};
struct Pipeline {
  PipelineShape shape;
  Placement placement = Placement::linear;
  bool split = false;
  std::vector<RankLayout> ranks;
};

// The slots of some micro-batches, and what they keep, by rank.
struct SlotOrder {
  std::vector<std::vector<Slot>> slots;
  std::vector<std::vector<InFlight>> in_flight;
};

template <std::size_t n>
struct PartHash {
  std::size_t operator()(const std::array<std::int64_t, n>& key) const {
    std::uint64_t hash = 0x9e3779b97f4a7c15;
    for (const std::int64_t part : key)
      hash = (hash ^ static_cast<std::uint64_t>(part)) * 0xff51afd7ed558ccd, hash ^= hash >> 32;
    return hash;
  }
};
template <std::size_t n, class Value>
using PartCache = std::unordered_map<std::array<std::int64_t, n>, Value, PartHash<n>>;

// What takes longest, for all threads of a search; what it has stays where it is.
struct SharedParts {
  std::mutex mutex;
  PartCache<23, BlockForm> blocks;
  PartCache<9, double> copies;
  std::map<std::vector<std::int64_t>, RankData> data;
};

// Not for several threads at once.
class StepParts {
 public:
  StepParts(const ModelConfig& model, const Machine& machine, const Stack& stack,
            std::shared_ptr<SharedParts> shared)
      : model_(model), machine_(machine), stack_(stack), shared_(std::move(shared)) {}

  const ModelConfig& model() const { return model_; }
  const Machine& machine() const { return machine_; }
  const Stack& stack() const { return stack_; }

  // All that follows is of this mesh; fastest where calls that share one follow each other, and
  // meshes that share the sizes of tp, cp and ep.
  void set_mesh(const Mesh& mesh);
  const Mesh& mesh() const { return *mesh_; }

  const Pipeline& pipeline(const StepOptions& options);
  const BlockForm& block(const StepOptions& options, bool split);
  // Of an offloaded layer, in seconds of a micro-batch.
  double layer_copies_s(const StepOptions& options);
  const std::vector<const RankData*>& data(const StepOptions& options, const Pipeline& pipeline);
  // Of so many bytes, in so many parts of tensor ranks (parts_of_message).
  const MeshLinks::Hops& hops(std::int64_t bytes, int parts);
  const SlotOrder& order(const Pipeline& pipeline, const StepOptions& options, int micro_batches);
  double world_sum_s() const { return world_sum_s_; }

 private:
  const ModelConfig model_;
  const Machine machine_;
  const Stack stack_;

  // Of the mesh at hand.
  std::optional<Mesh> mesh_;
  std::unique_ptr<MeshLinks> links_;
  PartCache<2, const Pipeline*> pipelines_here_;
  PartCache<8, const BlockForm*> blocks_here_;
  PartCache<4, std::vector<const RankData*>> data_here_;
  std::map<std::pair<std::int64_t, int>, MeshLinks::Hops> hops_here_;  // by bytes and parts
  double world_sum_s_ = 0;

  // Of its sizes of tp, cp and ep.
  PartCache<8, std::unique_ptr<BlockPlan>> block_plans_;
  // For all meshes.
  PartCache<3, Pipeline> pipelines_;
  PartCache<5, SlotOrder> orders_;
  std::shared_ptr<SharedParts> shared_;

  // A part of all threads, made by one of them; two that want it at once both make it.
  template <class Parts, class Key, class Make>
  const auto& shared(Parts SharedParts::*parts, const Key& key, Make&& make) {
    {
      const std::lock_guard lock(shared_->mutex);
      const auto found = (*shared_.*parts).find(key);
      if (found != (*shared_.*parts).end()) return found->second;
    }
    auto made = make();
    const std::lock_guard lock(shared_->mutex);
    return (*shared_.*parts).emplace(key, std::move(made)).first->second;
  }
};

}  // namespace mb
