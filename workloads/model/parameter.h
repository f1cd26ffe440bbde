// A parameter of the unsharded model: its shape, how it is divided over tensor ranks, its initial
// values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mb {

enum class Split : std::uint8_t { none, rows, columns };
enum class Init : std::uint8_t { normal, zeros, ones };

// A parameter of the unsharded model, and how its matrix [rows, columns] is divided over `ways`
// shards.
struct ParameterSpec {
  std::string name;  // "layers.3.attention.qkv.weight"
  std::int64_t rows = 0, columns = 0;
  Split split = Split::none;
  std::vector<std::int64_t> blocks =
      {};  // split by rows: consecutive row blocks, each divided by itself (q, k, v)
  std::int64_t padded_rows =
      0;  // `rows`, or more where the vocabulary is padded; pad rows are zero
  Init init = Init::normal;
  double init_std = 0;
  bool decay = false;  // weight decay: matrices only, as llm.c and nanoGPT
  int ways = 1;

  std::int64_t local_rows() const;
  std::int64_t local_columns() const;
  std::int64_t local_elements() const { return local_rows() * local_columns(); }
  // Row-major index in the unsharded matrix of element `local` of a shard; -1 for a pad row.
  std::int64_t global_index(int shard, std::int64_t local) const;
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
