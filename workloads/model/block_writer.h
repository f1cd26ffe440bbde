// BlockWriter: collects a Block's parameters, tensors and steps.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "workloads/base/rng.h"
#include "workloads/model/layers.h"

namespace mb {

using StepList = std::vector<BlockStep> Block::*;
inline constexpr StepList kForward = &Block::forward, kBackward = &Block::backward;

class BlockWriter {
 public:
  BlockWriter(const ModelConfig& model, const BlockShape& shape, std::string name)
      : model_(model), shape_(shape), rows_(shape.batch * model.sequence / shape.context_ways) {
    block_.name = std::move(name);
  }

  const ModelConfig& model() const { return model_; }
  const BlockShape& shape() const { return shape_; }
  std::int64_t rows() const { return rows_; }                              // in divided parts
  std::int64_t share() const { return rows_ / shape_.row_ways(); }         // between them
  std::int64_t share_elements() const { return share() * model_.hidden; }  // of a block's input
  int ways() const { return shape_.ways; }
  // Of the rows between divided parts.
  TokenSplit share_split() const {
    TokenSplit split = shape_.split();
    split.row_ways = static_cast<int>(shape_.row_ways());
    return split;
  }

  int tensor(std::string name, Role role, std::int64_t elements) {
    return add({std::move(name), role, shape_.dtype, elements, -1});
  }
  // Of main_dtype: a number for every row and the like.
  int statistic(std::string name, Role role, std::int64_t elements) {
    return add({std::move(name), role, main_dtype(shape_.dtype), elements, -1});
  }
  int indices(std::string name, Role role, std::int64_t elements) {
    return add({std::move(name), role, DType::int32, elements, -1});
  }
  int view(int base, std::int64_t first, std::int64_t elements) {
    const BlockTensor of = block_.tensors[base];
    return add({of.name, Role::view, of.dtype, elements, -1, base, first});
  }
  std::int64_t elements(int tensor) const { return block_.tensors[tensor].elements; }
  int scalars() { return add({"scalars", Role::scalars, DType::fp64, kScalars, -1}); }

  int parameter(ParameterSpec spec) {
    spec.ways = shape_.ways;
    if (spec.experts > 1) spec.expert_ways = shape_.expert_ways;
    if (spec.padded_rows == 0) spec.padded_rows = spec.rows;
    const std::int64_t elements = spec.local_elements();
    const std::string name = spec.name;
    block_.parameters.push_back(std::move(spec));
    return add({name, Role::parameter, shape_.dtype, elements,
                static_cast<int>(block_.parameters.size()) - 1});
  }
  int matrix(std::string name, std::int64_t rows, std::int64_t columns, Split split, double std,
             std::vector<RowBlock> blocks = {}) {
    return parameter({.name = std::move(name),
                      .rows = rows,
                      .columns = columns,
                      .split = split,
                      .blocks = std::move(blocks),
                      .init_std = std,
                      .decay = true});
  }
  int vector(std::string name, std::int64_t n, Init init, Split split = Split::none,
             std::vector<RowBlock> blocks = {}) {
    return parameter({.name = std::move(name),
                      .rows = n,
                      .columns = 1,
                      .split = split,
                      .blocks = std::move(blocks),
                      .init = init});
  }
  // One that works on the rows between divided parts: with sequence parallelism each tensor rank
  // sees some of them only.
  int shared_vector(std::string name, std::int64_t n, Init init) {
    return parameter({.name = std::move(name),
                      .rows = n,
                      .columns = 1,
                      .init = init,
                      .partial_gradient = shape_.row_ways() > 1});
  }

  void step(StepList list, const char* site, OpKind kind, std::vector<int> reads,
            std::vector<int> writes, bool weight_half = false) {
    (block_.*list)
        .push_back({Op{std::move(kind), shape_.dtype},
                    site,
                    std::move(reads),
                    std::move(writes),
                    {},
                    weight_half});
  }
  void forward(const char* site, OpKind kind, std::vector<int> reads, std::vector<int> writes) {
    step(kForward, site, std::move(kind), std::move(reads), std::move(writes));
  }
  void backward(const char* site, OpKind kind, std::vector<int> reads, std::vector<int> writes) {
    step(kBackward, site, std::move(kind), std::move(reads), std::move(writes));
  }
  // An operation whose results are `writes`, if any, and then the gradients of `parameters`.
  void backward_to(const char* site, OpKind kind, std::vector<int> reads, std::vector<int> writes,
                   const std::vector<int>& parameters) {
    const bool weight_half = writes.empty();
    std::vector<int> gradients;
    for (int p : parameters) gradients.push_back(gradient_of(p));
    block_.backward.push_back({Op{std::move(kind), shape_.dtype}, site, std::move(reads),
                               std::move(writes), std::move(gradients), weight_half});
  }

  int ranks(Exchange::Over over) const {
    return over == Exchange::Over::tensor    ? shape_.ways
           : over == Exchange::Over::context ? shape_.context_ways
                                             : shape_.expert_ways;
  }
  // Nothing for one rank: then `to` has to be `from`.
  void exchange(StepList list, const char* site, Exchange what, std::vector<int> from, int to,
                bool weight_half = false) {
    if (ranks(what.over) > 1)
      (block_.*list).push_back({what, site, std::move(from), {to}, {}, weight_half});
  }
  void sum(StepList list, const char* site, int tensor) {
    exchange(list, site, {Exchange::Kind::sum}, {tensor}, tensor);
  }

  // From the rows between divided parts to all rows (f, or g bar of sequence parallelism), and
  // back with the sum of all tensor ranks' values: a tensor of its own with sequence parallelism,
  // else the same one.
  int gather_rows(StepList list, const char* site, int x, bool weight_half = false) {
    if (shape_.row_ways() == 1) return x;
    const int all = tensor(cat(block_.tensors[x].name, ".all"), Role::temporary,
                           block_.tensors[x].elements * shape_.ways);
    exchange(list, site, {Exchange::Kind::gather}, {x}, all, weight_half);
    return all;
  }
  // A tensor to compute partial sums for `to` into; `sum_rows` then combines them.
  int partial_of(int to) {
    if (shape_.row_ways() == 1) return to;
    return tensor(cat(block_.tensors[to].name, ".partial"), Role::temporary,
                  block_.tensors[to].elements * shape_.ways);
  }
  void sum_rows(StepList list, const char* site, int partial, int to) {
    if (shape_.row_ways() == 1) {
      sum(list, site, to);
    } else {
      exchange(list, site, {Exchange::Kind::scatter}, {partial}, to);
    }
  }

  Dropout dropout(const std::string& name) const {
    if (shape_.dropout == 0) return {};
    return {shape_.dropout, stream_of(name)};
  }
  // The gradient in front of a dropout: `dy` itself if nothing is dropped.
  int through_dropout(const char* site, const Dropout& dropout, int dy) {
    if (dropout.probability == 0) return dy;
    const int dx = tensor(cat("d.", site, ".dropped"), Role::temporary, share_elements());
    backward(
        site,
        DropoutRows{share(), model_.hidden, dropout, shape_.batch, model_.sequence, share_split()},
        {dy}, {dx});
    return dx;
  }

  Block take() { return std::move(block_); }

 private:
  int add(BlockTensor tensor) {
    block_.tensors.push_back(std::move(tensor));
    return static_cast<int>(block_.tensors.size()) - 1;
  }
  int gradient_of(int parameter) {
    const BlockTensor of = block_.tensors[parameter];
    return add({of.name, Role::gradient, main_dtype(of.dtype), of.elements, of.parameter});
  }

  const ModelConfig& model_;
  BlockShape shape_;
  std::int64_t rows_;
  Block block_;
};

}  // namespace mb
