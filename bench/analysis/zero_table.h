// Model state of a rank under ZeRO as its paper counts it: bytes per parameter, without padding,
// activations and buffers (Rajbhandari et al., ZeRO, 2020, figure 1).
#pragma once

#include <string_view>
#include <vector>

namespace mb {

struct StateBytes {
  std::string_view name, help;
  double parameter = 0, gradient = 0, optimizer = 0;  // per parameter, not divided
};
// 2 + 2 + 12 of the paper; ours with 16 bits, whose gradients are fp32; ours with fp32. Each with
// AdamW.
const std::vector<StateBytes>& state_conventions();

// Per parameter on one of `owners` ranks: stage 1 divides the optimizer state, 2 also gradients, 3
// also parameters.
double zero_bytes(const StateBytes& state, int stage, int owners);

}  // namespace mb
