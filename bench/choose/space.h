// All the ways to run a model on so many ranks that a search looks at, and those that a rule
// forbids.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/step_shape.h"
#include "parallel/cost/machine.h"
#include "parallel/cost/stack.h"

namespace mb {

// What is asked. A choice that is set is fixed; all others are searched.
struct Question {
  ModelConfig model;
  Machine machine;
  Stack stack;
  int gpus = 0;
  std::int64_t global_batch = 0;  // sequences
  StepOptions options;            // what no choice is about
  double memory_bytes = 0;        // that a device may take

  std::optional<Mesh> mesh;  // all sizes
  std::optional<std::string> order;
  std::optional<int> tp, cp, ep, pp, rdp, dp;
  std::optional<std::string> schedule;
  std::optional<int> chunks;
  std::optional<std::int64_t> micro_batch;
  std::optional<int> zero;
  std::optional<Recompute> recompute;
  std::optional<bool> sequence_parallel;
  std::optional<int> tensor_chunks;
  std::optional<ContextKind> context;
  std::optional<std::pair<bool, bool>> offload;  // optimizer, activations
};

// Schedule and chunks of a rank.
struct Order {
  std::string schedule = "1f1b";
  int chunks = 0;  // as in StepOptions
  bool operator==(const Order&) const = default;
};

struct Candidate {
  std::int32_t mesh = 0;  // index into Space::meshes
  std::int32_t micro_batch = 1;
  std::int16_t order = 0;  // index into Space::orders
  std::int8_t zero = 0;
  Recompute recompute = Recompute::none;
  std::int8_t tensor_chunks = 1;
  ContextKind context = ContextKind::ring;
  bool sequence_parallel = false, offload_optimizer = false, offload_activations = false;
  bool operator==(const Candidate&) const = default;
};

// Of one choice that a rule forbids: every other choice that goes with it is forbidden too.
struct Refusal {
  StepShape shape;
  std::string rule;    // the same for all that it forbids: "model.layers=N do not fill N stages"
  std::string reason;  // with the numbers
  std::int64_t cases = 0;  // that it forbids
};

class Space {
 public:
  // Throws Error naming what of the question no case can have.
  explicit Space(Question question);

  const Question& question() const { return question_; }
  // Every mesh with the orders of its axes that may be best: none of them puts each axis on links
  // at least as good as those that it has in another.
  const std::vector<Mesh>& meshes() const { return meshes_; }
  const std::vector<Order>& orders() const { return orders_; }
  // Orders of axes that were left out for a better one.
  std::int64_t dominated_orders() const { return dominated_; }

  // Cases of one mesh, in an order that is always the same, each with its options_of(). Those that
  // differ in tensor_chunks alone follow each other, fewest first.
  using Visitor = std::function<void(const Candidate&, const StepOptions&)>;
  void visit(int mesh, const Visitor& legal,
             const std::function<void(const Refusal&)>& refused) const;
  StepOptions options_of(const Candidate& candidate) const;
  // Legal cases that differ from it in more tensor_chunks alone.
  std::vector<Candidate> in_chunks(const Candidate& candidate) const;

 private:
  void add_meshes();
  // Why no case of a mesh is legal, where that is so.
  std::string refusal_of(const Mesh& mesh) const;
  std::string check_sizes(const Mesh& mesh) const;  // in any order
  void add_orders();

  Question question_;
  std::vector<Mesh> meshes_;
  std::vector<Order> orders_;
  std::int64_t dominated_ = 0;
};

// A message with its numbers taken out, so that all that break one rule read alike.
std::string rule_of(const std::string& message);

}  // namespace mb
