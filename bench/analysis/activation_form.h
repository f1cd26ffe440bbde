// Closed form of what one block keeps of one micro-batch for its backward (Korthikanti et al.,
// "Reducing Activation Recomputation in Large Transformer Models", 2022, section 4).
//
// Differences from that paper: nothing is kept of dropout, whose masks are computed again from
// counters, and attention keeps the log-sum-exp of each row and head instead of scores and softmax
// (Dao et al., FlashAttention, 2022). With 16 bits a gpt layer keeps s b h (8 + 24/t) bytes where
// the paper has s b h (10 + 24/t) + 5 a s^2 b / t; statistics come on top, of fp32.
#pragma once

#include <cstdint>

#include "bench/analysis/state_form.h"

namespace mb {

// Bytes by how long they are needed: split backwards keep the inputs of weight gradients longer.
struct SavedBytes {
  std::int64_t until_input_grad = 0, until_weight_grad = 0;
  std::int64_t sum() const { return until_input_grad + until_weight_grad; }
};
struct BlockActivations {
  SavedBytes kept;        // from the forward on, the block's input included
  SavedBytes recomputed;  // by the backward
};
// Of one rank. Without recomputation, of a gpt layer with `t` tensor ranks, in elements: 4 s b h
// whole on each (with sequence parallelism all of it over t), (4 h + 2 ffn) s b / t, a s b / t of
// log-sum-exp, 4 s b of norm statistics; s is what context ranks leave of the sequence. Statistics
// are of main_dtype. full: the layer's input, 2 s b h in 16 bits; attention: all but the core's
// output and log-sum-exp.
BlockActivations block_activations(const StepShape& shape, const RankBlock& block, bool recompute);

}  // namespace mb
