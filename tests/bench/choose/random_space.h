// Small questions drawn at random, whose every case can be simulated.
#pragma once

#include <random>
#include <vector>

#include "bench/choose/space.h"

namespace mb::test {

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  template <class T>
  T of(const std::vector<T>& values) {
    return values[random_() % values.size()];
  }

 private:
  std::mt19937 random_;
};

// Of 2 to 16 GPUs on nodes of 2 to 8, a model of some layers that is bound by anything between
// launches and products, and memory that some of the cases may not find enough.
inline Question random_question(Draw& draw) {
  Question q;
  q.model = find_model(draw.of<std::string>({"gpt-1m", "gpt3-125m", "gpt3-1.3b"}));
  q.model.layers = draw.of<int>({4, 6, 8});
  q.model.sequence = draw.of<int>({256, 1024});
  q.machine = find_machine(draw.of<std::string>({"a100x8", "h100x8"}));
  q.machine.ranks_per_node = draw.of<int>({2, 4, 8});
  q.machine.nics_per_node = draw.of<int>({1, q.machine.ranks_per_node});
  q.machine.inter.gb_per_s *= draw.of<double>({0.1, 1});
  q.machine.memory_gb = draw.of<double>({8, 16, 80});
  q.stack = find_stack(draw.of<std::string>({"kernels", "megatron-2021", "megatron-vtrain"}));
  q.gpus = draw.of<int>({2, 4, 8, 16});
  q.global_batch = q.gpus * draw.of<int>({1, 2, 4, 8});
  q.options.dtype = DType::bf16;
  q.memory_bytes = 1e9 * q.machine.memory_gb;
  return q;
}

// Some choices fixed, so that exhausting the rest takes a moment.
inline void narrow(Question& q, Draw& draw) {
  q.micro_batch = draw.of<std::int64_t>({1, 1, 2});
  q.recompute = draw.of<Recompute>({Recompute::none, Recompute::full});
  q.sequence_parallel = draw.of<int>({0, 1}) == 1;
  q.offload = {{false, false}};
  if (draw.of<int>({0, 1}) == 1) q.zero = draw.of<int>({0, 1, 2, 3});
  if (draw.of<int>({0, 1}) == 1)
    q.schedule = draw.of<std::string>({"1f1b", "zb-h1", "interleaved"});
  // Of what multiplies cases, one is free.
  enum { none, context, replicas, chunks };
  const int free = draw.of<int>({none, context, replicas, chunks});
  if (free != context) q.cp = draw.of<int>({1, 1, 1, 2});
  if (free != context) q.context = draw.of<ContextKind>({ContextKind::ring, ContextKind::ulysses});
  if (free != replicas || q.zero == 0) q.rdp = 1;
  if (free != chunks) q.tensor_chunks = draw.of<int>({1, 1, 2, 4});
}

inline std::vector<Candidate> all_of(const Space& space) {
  std::vector<Candidate> all;
  for (int mesh = 0; mesh < static_cast<int>(space.meshes().size()); ++mesh)
    space.visit(
        mesh, [&](const Candidate& c, const StepOptions&) { all.push_back(c); },
        [](const Refusal&) {});
  return all;
}

}  // namespace mb::test
