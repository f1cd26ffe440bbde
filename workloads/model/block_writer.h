// BlockWriter: collects a Block's parameters, tensors and steps.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "workloads/model/layers.h"

namespace mb {

// Collects a Block; `ways` = 1 leaves out every exchange.
class BlockWriter {
 public:
  BlockWriter(const ModelConfig& model, const BlockShape& shape, std::string name, bool accumulate)
      : model_(model), shape_(shape), accumulate_(accumulate), rows_(shape.batch * model.sequence) {
    block_.name = std::move(name);
  }

  std::int64_t rows() const { return rows_; }
  const ModelConfig& model() const { return model_; }
  std::int64_t ways() const { return shape_.ways; }

  int tensor(std::string name, Role role, std::int64_t elements) {
    return add({std::move(name), role, shape_.dtype, elements, -1});
  }
  int tokens(std::string name, Role role) {
    return add({std::move(name), role, DType::int32, rows_, -1});
  }
  int scalars() { return add({"scalars", Role::scalars, DType::fp64, kScalars, -1}); }

  int parameter(ParameterSpec spec) {
    spec.ways = shape_.ways;
    if (spec.padded_rows == 0) spec.padded_rows = spec.rows;
    const std::int64_t elements = spec.local_elements();
    const std::string name = spec.name;
    block_.parameters.push_back(std::move(spec));
    return add({name, Role::parameter, shape_.dtype, elements,
                static_cast<int>(block_.parameters.size()) - 1});
  }
  int matrix(std::string name, std::int64_t rows, std::int64_t columns, Split split, double std,
             std::vector<std::int64_t> blocks = {}) {
    return parameter({.name = std::move(name),
                      .rows = rows,
                      .columns = columns,
                      .split = split,
                      .blocks = std::move(blocks),
                      .init_std = std,
                      .decay = true});
  }
  int vector(std::string name, std::int64_t n, Init init, Split split = Split::none,
             std::vector<std::int64_t> blocks = {}) {
    return parameter({.name = std::move(name),
                      .rows = n,
                      .columns = 1,
                      .split = split,
                      .blocks = std::move(blocks),
                      .init = init});
  }

  void forward(const char* site, OpKind kind, std::vector<int> reads, std::vector<int> writes) {
    block_.forward.push_back({Op{kind, shape_.dtype}, site, std::move(reads), std::move(writes)});
  }
  void backward(const char* site, OpKind kind, std::vector<int> reads, std::vector<int> writes) {
    block_.backward.push_back({Op{kind, shape_.dtype}, site, std::move(reads), std::move(writes)});
  }
  // An operation whose results are gradients of `parameters` alone, or of these and `writes`.
  void backward_to(const char* site, OpKind kind, std::vector<int> reads, std::vector<int> writes,
                   const std::vector<int>& parameters, bool always_accumulate = false) {
    const bool weight_half = writes.empty();
    for (int p : parameters) {
      const int gradient = gradient_of(p);
      if (accumulate_ || always_accumulate) reads.push_back(gradient);
      writes.push_back(gradient);
    }
    block_.backward.push_back(
        {Op{kind, shape_.dtype}, site, std::move(reads), std::move(writes), weight_half});
  }
  void exchange(std::vector<BlockStep> Block::*list, const char* site, int tensor,
                bool maximum = false) {
    if (shape_.ways > 1) (block_.*list).push_back({Exchange{maximum}, site, {tensor}, {tensor}});
  }
  bool accumulate() const { return accumulate_; }
  Block take() { return std::move(block_); }

 private:
  int add(BlockTensor tensor) {
    block_.tensors.push_back(std::move(tensor));
    return static_cast<int>(block_.tensors.size()) - 1;
  }
  int gradient_of(int parameter) {
    const BlockTensor of = block_.tensors[parameter];
    return add({of.name, Role::gradient, of.dtype, of.elements, of.parameter});
  }

  const ModelConfig& model_;
  BlockShape shape_;
  bool accumulate_;
  std::int64_t rows_;
  Block block_;
};

}  // namespace mb
