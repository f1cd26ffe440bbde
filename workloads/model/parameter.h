// A parameter of the unsharded model: its shape, how it is divided over ranks, its initial values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mb {

enum class Split : std::uint8_t { none, rows, columns };
enum class Init : std::uint8_t { normal, zeros, ones };

// Consecutive rows that are divided by themselves: of a packed q, k, v matrix for example. Over
// `ways` shards there are `parts` different parts (0: as many as shards); with fewer parts than
// shards, neighbouring shards hold the same one.
struct RowBlock {
  std::int64_t rows = 0;
  int parts = 0;
};

// A parameter of the unsharded model, and how its matrix [rows, columns], or one such matrix for
// each of `experts`, is divided over `ways` tensor shards (and the experts over `expert_ways`).
struct ParameterSpec {
  std::string name;  // "layers.3.attention.qkv.weight"
  std::int64_t rows = 0, columns = 0;
  Split split = Split::none;
  std::vector<RowBlock> blocks = {};  // of Split::rows; none: one block
  std::int64_t padded_rows =
      0;  // `rows`, or more where the vocabulary is padded; pad rows are zero
  Init init = Init::normal;
  double init_std = 0;
  bool decay = false;  // weight decay: matrices only, as llm.c and nanoGPT
  int ways = 1;
  std::int64_t experts = 1;  // above 1: one matrix each, all divided over the expert ranks
  int expert_ways = 1;
  // Each tensor rank's backward sees a share of the tokens, or of the sum over ranks, and so only a
  // part of the gradient, which is to be summed over the tensor ranks.
  bool partial_gradient = false;

  std::int64_t local_rows() const;
  std::int64_t local_columns() const;
  std::int64_t local_elements() const {
    return experts / expert_ways * local_rows() * local_columns();
  }
  // Row-major index in the unsharded parameter of element `local` of a shard; -1 for a pad row.
  std::int64_t global_index(int shard, int expert_shard, std::int64_t local) const;

  // Runs of local elements that are the same on `copies` neighbouring tensor shards.
  struct Run {
    std::int64_t begin, end;
    int copies;
  };
  std::vector<Run> runs() const;

 private:
  std::int64_t local_rows(const RowBlock& block) const;
};

// How initial values are made; `perturbed` moves norms and biases off 1 and 0 so that tests see
// every gradient.
struct InitOptions {
  std::uint64_t seed = 1;
  bool perturbed = false;
};
// Value of one element of the unsharded parameter: a function of (seed, name, index), the same on
// every mesh.
double initial_value(const ParameterSpec& spec, const InitOptions& options,
                     std::int64_t global_index);

}  // namespace mb
