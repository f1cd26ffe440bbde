// Which activations the backward computes anew instead of finding them kept (Chen et al., 2016;
// selectively: Korthikanti et al., 2022).
#include <algorithm>
#include <string_view>

#include "parallel/strategy/stage.h"

namespace mb {
namespace {

// The core's results; its inputs are kept.
bool is_attention_core(std::string_view name) {
  return name.starts_with("attention.core") || name == "attention.lse";
}

}  // namespace

void choose_recomputation(const Block& block, Recompute recompute, PreparedBlock& prepared) {
  const std::size_t count = block.tensors.size();
  const auto root = [&](int t) { return block.tensors[t].base < 0 ? t : block.tensors[t].base; };
  std::vector<bool> wanted(count, false);  // by the backward
  for (const BlockStep& step : block.backward) {
    for (int t : step.reads) wanted[root(t)] = true;
  }
  const auto is_activation = [&](std::size_t t) {
    return block.tensors[t].role == Role::activation;
  };
  std::vector<bool> dropped(count, false);
  for (std::size_t t = 0; t < count; ++t) {
    dropped[t] = is_activation(t) &&
                 (recompute == Recompute::full ||
                  (recompute == Recompute::attention && is_attention_core(block.tensors[t].name)));
  }
  // What comes out together with the block's result is kept: the result is not computed twice.
  for (const BlockStep& step : block.forward) {
    const auto is_output = [&](int t) { return block.tensors[t].role == Role::output; };
    if (std::none_of(step.writes.begin(), step.writes.end(), is_output)) continue;
    for (int t : step.writes) dropped[root(t)] = false;
  }

  // Back from what is wanted: a step is replayed if it writes something that is missing.
  std::vector<bool> missing(count, false), kept(count, false);
  for (std::size_t t = 0; t < count; ++t) missing[t] = wanted[t] && dropped[t];
  std::vector<int> replay;
  for (int s = static_cast<int>(block.forward.size()) - 1; s >= 0; --s) {
    const BlockStep& step = block.forward[s];
    const auto is_missing = [&](int t) { return missing[root(t)]; };
    if (std::none_of(step.writes.begin(), step.writes.end(), is_missing)) continue;
    replay.push_back(s);
    for (int t : step.writes) {
      if (t == root(t)) missing[t] = false;  // a view is a part: others come before it
    }
    for (int read : step.reads) {
      const int t = root(read);
      if (block.tensors[t].role == Role::temporary || dropped[t]) missing[t] = true;
    }
  }
  std::reverse(replay.begin(), replay.end());

  for (std::size_t t = 0; t < count; ++t) kept[t] = wanted[t] && is_activation(t) && !dropped[t];
  for (int s : replay) {
    for (int read : block.forward[s].reads) {
      const int t = root(read);
      kept[t] = kept[t] || (is_activation(t) && !dropped[t]);
    }
  }
  prepared.replay = std::move(replay);
  prepared.wanted.assign(prepared.instances.size(), false);
  prepared.saved.assign(prepared.instances.size(), false);
  prepared.dropped.assign(prepared.instances.size(), false);
  for (std::size_t t = 0; t < count; ++t) {
    const PreparedTensor& tensor = prepared.tensors[t];
    if (tensor.source != PreparedTensor::Source::instance) continue;
    prepared.wanted[tensor.index] = wanted[t] && is_activation(t);
    prepared.saved[tensor.index] = kept[t];
    prepared.dropped[tensor.index] = !kept[t];
  }
}

}  // namespace mb
