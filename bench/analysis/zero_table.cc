#include "bench/analysis/zero_table.h"

namespace mb {

const std::vector<StateBytes>& state_conventions() {
  static const std::vector<StateBytes> table = {
      {"2 + 2 + 12", "the paper: parameters and gradients of 16 bits; fp32 parameters, two moments",
       2, 2, 12},
      {"2 + 4 + 12", "dtype=bf16 or fp16 here: gradients are fp32", 2, 4, 12},
      {"4 + 4 + 8", "dtype=fp32 here: no second copy of the parameters", 4, 4, 8}};
  return table;
}

double zero_bytes(const StateBytes& state, int stage, int owners) {
  const auto share = [&](double bytes, int from) { return stage >= from ? bytes / owners : bytes; };
  return share(state.parameter, 3) + share(state.gradient, 2) + share(state.optimizer, 1);
}

}  // namespace mb
