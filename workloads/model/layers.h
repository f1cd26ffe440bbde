// A model as blocks of operations: embedding, layer, head, each with a forward and a backward. A
// block is a template: who computes it, how often and when is not known here.
//
// `ways` is the number of tensor ranks that share a block: heads, ffn columns and vocabulary rows
// are divided by it (Shoeybi et al., Megatron-LM, 2019). Where partial results of the shards have
// to be combined, the block holds an Exchange; with ways = 1 there is none and the block is the
// unsharded model.
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
  gradient,    // of that parameter
  activation,  // written by the forward and read by the backward
  temporary,   // lives within one direction
  tokens,
  labels,
  input,
  output,
  d_output,
  d_input,  // [rows, hidden] between blocks; the embedding has no input, the head no output
  scalars   // kScalars
};

struct BlockTensor {
  std::string name;
  Role role = Role::temporary;
  DType dtype = DType::fp32;
  std::int64_t elements = 0;
  int parameter = -1;
};

// Combine the shards' values of a tensor: it is read and written.
struct Exchange {
  bool maximum = false;  // else the sum
};

struct BlockStep {
  std::variant<Op, Exchange> what;
  std::string site;                // "mlp.up"
  std::vector<int> reads, writes;  // of Block::tensors
  bool weight_half = false;        // backward only: nothing but a parameter gradient depends on it
};

struct Block {
  std::string name;  // "embedding", "layer", "head"
  std::vector<ParameterSpec> parameters;
  std::vector<BlockTensor> tensors;
  std::vector<BlockStep> forward, backward;
};

struct BlockShape {
  std::int64_t batch = 1;  // sequences in a micro-batch
  int ways = 1;            // tensor ranks
  DType dtype = DType::fp32;
};

// `accumulate`: gradients are added to what is there; else they overwrite it (a step's first
// micro-batch). `tied_here`: embedding and head of a tied model are on the same rank, so that the
// head's gradient comes first and the embedding's is always added.
Block embedding_block(const ModelConfig& model, const BlockShape& shape, bool accumulate,
                      bool tied_here);
Block layer_block(const ModelConfig& model, const BlockShape& shape, int layer, bool accumulate);
Block head_block(const ModelConfig& model, const BlockShape& shape, bool accumulate);

}  // namespace mb
