// What closed forms of steps are made of, each part worked out once for all steps that share it:
// blocks by the shape that ranks give them, data ranks by layout and links, pipelines and orders of
// slots by schedule.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
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

// Not for several threads at once.
class StepParts {
 public:
  StepParts(const ModelConfig& model, const Machine& machine, const Stack& stack)
      : model_(model), machine_(machine), stack_(stack) {}

  const ModelConfig& model() const { return model_; }
  const Machine& machine() const { return machine_; }
  const Stack& stack() const { return stack_; }

  // All that follows is of this mesh; fastest where calls that share one follow each other.
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
  template <std::size_t n>
  struct KeyHash {
    std::size_t operator()(const std::array<std::int64_t, n>& key) const {
      std::uint64_t hash = 0x9e3779b97f4a7c15;
      for (const std::int64_t part : key)
        hash = (hash ^ static_cast<std::uint64_t>(part)) * 0xff51afd7ed558ccd, hash ^= hash >> 32;
      return hash;
    }
  };
  template <std::size_t n, class Value>
  using Cache = std::unordered_map<std::array<std::int64_t, n>, Value, KeyHash<n>>;

  const ModelConfig model_;
  const Machine machine_;
  const Stack stack_;

  // Of the mesh at hand.
  std::optional<Mesh> mesh_;
  std::unique_ptr<MeshLinks> links_;
  Cache<2, const Pipeline*> pipelines_here_;
  Cache<8, const BlockForm*> blocks_here_;
  Cache<4, std::vector<const RankData*>> data_here_;
  std::map<std::pair<std::int64_t, int>, MeshLinks::Hops> hops_here_;  // by bytes and parts
  double world_sum_s_ = 0;

  // For all meshes.
  Cache<3, Pipeline> pipelines_;
  Cache<23, BlockForm> blocks_;
  Cache<9, double> copies_;
  std::map<std::vector<std::int64_t>, RankData> data_;
  Cache<5, SlotOrder> orders_;
};

}  // namespace mb
