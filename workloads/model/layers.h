// A model as blocks of operations: embedding, layer, head, each with a forward and a backward. A
// block is a template: who computes it, how often and when is not known here.
//
// BlockShape says how many ranks share a block. Tensor ranks divide heads, ffn columns and
// vocabulary rows (Shoeybi et al., Megatron-LM, 2019) and, with sequence_parallel, between the
// divided parts also the tokens (Korthikanti et al., 2022); context ranks divide every sequence.
// Where values of several ranks have to be combined, the block holds an Exchange; one rank has none
// and its block is the unsharded model.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "workloads/model/config.h"
#include "workloads/model/parameter.h"
#include "workloads/ops/op.h"

namespace mb {

enum class Role : std::uint8_t {
  parameter,   // `parameter` is the index into Block::parameters
  gradient,    // of that parameter, of main_dtype
  activation,  // written by the forward and read by the backward
  temporary,   // lives within one direction
  tokens,
  labels,
  input,
  output,
  d_output,
  d_input,  // [rows, hidden] between blocks; the embedding has no input, the head no output
  scalars,  // kScalars
  view      // some consecutive elements of `base`
};

struct BlockTensor {
  std::string name;
  Role role = Role::temporary;
  DType dtype = DType::fp32;
  std::int64_t elements = 0;
  int parameter = -1;
  int base = -1;           // of a view: index into Block::tensors,
  std::int64_t first = 0;  // and the element there that it begins with
};

// Ranks exchange values: reads to writes, or in place where these are the same tensor.
struct Exchange {
  enum class Kind : std::uint8_t {
    sum,           // of all ranks, to all
    maximum,       // likewise
    gather,        // the ranks' parts one after the other
    scatter,       // each rank's part of the sum
    shift,         // from the rank before in the ring
    all_to_all,    // part i to rank i
    all_to_all_v,  // rows, sent counts, received counts -> rows; of `unit` elements each
  };
  enum class Over : std::uint8_t { tensor, context, expert };
  Kind kind = Kind::sum;
  Over over = Over::tensor;
  std::int64_t unit = 1;
};

struct BlockStep {
  std::variant<Op, Exchange> what;
  std::string site;                // "mlp.up"
  std::vector<int> reads, writes;  // of Block::tensors
  // Parameter gradients, which follow `writes`. The step is the one that overwrites them; to add to
  // what is there, see accumulating().
  std::vector<int> gradients = {};
  bool weight_half = false;  // backward only: nothing but a parameter gradient depends on it
};

// The same operation, adding to the gradients that it writes.
Op accumulating(Op op);

struct Block {
  std::string name;  // "embedding", "layer", "head"
  std::vector<ParameterSpec> parameters;
  std::vector<BlockTensor> tensors;
  std::vector<BlockStep> forward, backward;
};

enum class ContextKind : std::uint8_t {
  ring,    // keys and values go round (Liu et al., 2023), zig-zag
  ulysses  // heads are exchanged for tokens (Jacobs et al., 2023)
};

struct BlockShape {
  std::int64_t batch = 1;  // sequences in a micro-batch
  DType dtype = DType::fp32;
  int ways = 1;  // tensor ranks
  bool sequence_parallel = false;
  int context_ways = 1;
  ContextKind context = ContextKind::ring;
  int expert_ways = 1;
  double dropout = 0;
  // Above 1: a matmul next to an exchange over tensor ranks is cut into so many runs of rows, so
  // that the exchange of one runs beside the product of the next.
  int tensor_chunks = 1;

  TokenSplit split() const {  // of what all tensor ranks hold
    return {.context_ways = context_ways,
            .zigzag = context_ways > 1 && context == ContextKind::ring};
  }
  std::int64_t row_ways() const { return sequence_parallel ? ways : 1; }
};

Block embedding_block(const ModelConfig& model, const BlockShape& shape);
Block layer_block(const ModelConfig& model, const BlockShape& shape, int layer);
Block head_block(const ModelConfig& model, const BlockShape& shape);

// Elements of a block's input and output on one rank.
inline std::int64_t hidden_elements(const ModelConfig& model, const BlockShape& shape) {
  return shape.batch * model.sequence / shape.context_ways / shape.row_ways() * model.hidden;
}
// Key/value heads that each of `ways` tensor ranks holds; neighbours share one where there are
// fewer heads than ranks.
inline std::int64_t local_kv_heads(const ModelConfig& model, int ways) {
  return model.kv_heads < ways ? 1 : model.kv_heads / ways;
}

}  // namespace mb
