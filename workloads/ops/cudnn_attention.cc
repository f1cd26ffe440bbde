#include "workloads/ops/cudnn_attention.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "workloads/base/error.h"

namespace mb::cuda {
namespace {

using Tensor = CudnnGraph::Tensor;

// [batch, heads, sequence, head_dim] of rows that are `row` long.
CudnnShape heads_of(const AttentionShape& s, std::int64_t heads, std::int64_t row) {
  return {{s.batch, heads, s.sequence, s.head_dim}, {s.sequence * row, s.head_dim, row, 1}};
}

struct Builder {
  const AttentionShape& s;
  CudnnGraph& g;
  const cudnnDataType_t type;
  const CudnnShape scores, row_numbers, queries;  // of all heads

  Builder(const AttentionShape& shape, CudnnGraph& graph)
      : s(shape),
        g(graph),
        type(shape.type == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF),
        scores(packed({s.batch, s.heads, s.sequence, s.sequence})),
        row_numbers(packed({s.batch, s.heads, s.sequence, 1})),
        queries(packed({s.batch, s.heads, s.sequence, s.head_dim})) {}

  Tensor apply(cudnnPointwiseMode_t mode, Tensor x, const CudnnShape& shape) {
    const Tensor y = g.between(shape);
    g.pointwise(mode, x, y);
    return y;
  }
  Tensor apply(cudnnPointwiseMode_t mode, Tensor x, Tensor b, const CudnnShape& shape) {
    const Tensor y = g.between(shape);
    g.pointwise(mode, x, b, y);
    return y;
  }
  Tensor product(Tensor a, Tensor b, const CudnnShape& shape) {
    const Tensor c = g.between(shape);
    g.matmul(a, b, c);
    return c;
  }
  Tensor row_reduction(cudnnReduceTensorOp_t op, Tensor x) {
    const Tensor y = g.between(row_numbers);
    g.reduce(op, x, y);
    return y;
  }
  // Queries see keys up to their own.
  Tensor causal(Tensor x, Tensor masked) {
    const Tensor query = g.between(scores, CUDNN_DATA_INT32);
    const Tensor key = g.between(scores, CUDNN_DATA_INT32);
    const Tensor sees = g.between(scores, CUDNN_DATA_BOOLEAN);
    const Tensor y = g.between(scores);
    g.index(2, x, query);
    g.index(3, x, key);
    g.pointwise(CUDNN_POINTWISE_CMP_GE, query, key, sees);
    g.select(x, masked, sees, y);
    return y;
  }
  // As [.., keys, queries], in the type of products.
  Tensor transposed_scores(Tensor x) {
    const Tensor y = g.between(transposed(scores), type);
    g.reshape(x, y);
    return y;
  }
  // Products of heads that share keys are summed.
  void keys_product(Tensor a, Tensor b, Tensor into) {
    if (s.heads == s.kv_heads) return g.matmul(a, b, into);
    const Tensor of_heads = g.between(queries, type);
    g.matmul(a, b, of_heads);
    g.reduce(CUDNN_REDUCE_TENSOR_ADD, of_heads, into);
  }
};

void build_forward(const AttentionShape& s, AttentionGraph& made) {
  CudnnGraph& g = made.graph;
  Builder b(s, g);
  const CudnnShape keys = heads_of(s, s.kv_heads, s.kv_row);
  const Tensor q = g.memory(heads_of(s, s.heads, s.q_row), b.type);
  const Tensor k = g.memory(transposed(keys), b.type);
  const Tensor v = g.memory(keys, b.type);
  const Tensor out = g.memory(heads_of(s, s.heads, s.out_row), b.type);
  const Tensor lse = g.memory(b.row_numbers, CUDNN_DATA_FLOAT);
  const Tensor scale = g.scalar(CUDNN_DATA_FLOAT), masked = g.scalar(CUDNN_DATA_FLOAT);
  made.operands = {q, k, v, out, lse};
  made.numbers = {scale, masked};

  const Tensor scores =
      b.causal(b.apply(CUDNN_POINTWISE_MUL, b.product(q, k, b.scores), scale, b.scores), masked);
  const Tensor max = b.row_reduction(CUDNN_REDUCE_TENSOR_MAX, scores);
  const Tensor exps =
      b.apply(CUDNN_POINTWISE_EXP, b.apply(CUDNN_POINTWISE_SUB, scores, max, b.scores), b.scores);
  const Tensor sum = b.row_reduction(CUDNN_REDUCE_TENSOR_ADD, exps);
  g.pointwise(CUDNN_POINTWISE_ADD, max, b.apply(CUDNN_POINTWISE_LOG, sum, b.row_numbers), lse);
  const Tensor probabilities = g.between(b.scores, b.type);
  g.pointwise(CUDNN_POINTWISE_DIV, exps, sum, probabilities);
  g.matmul(probabilities, v, out);
}

void build_gradient(const AttentionShape& s, AttentionGraph& made) {
  CudnnGraph& g = made.graph;
  Builder b(s, g);
  const CudnnShape keys = heads_of(s, s.kv_heads, s.kv_row);
  const CudnnShape results = heads_of(s, s.heads, s.out_row);
  const Tensor dout = g.memory(results, b.type);
  const Tensor q = g.memory(heads_of(s, s.heads, s.q_row), b.type);
  const Tensor k = g.memory(transposed(keys), b.type), v = g.memory(transposed(keys), b.type);
  const Tensor out = g.memory(results, b.type);
  const Tensor lse = g.memory(b.row_numbers, CUDNN_DATA_FLOAT);
  const Tensor dq = g.memory(heads_of(s, s.heads, s.q_row), b.type);
  const Tensor dk = g.memory(keys, b.type), dv = g.memory(keys, b.type);
  const Tensor dq_sums = g.memory(b.queries, CUDNN_DATA_FLOAT);
  const Tensor row_sums = g.memory(b.row_numbers, CUDNN_DATA_FLOAT);
  const Tensor scale = g.scalar(CUDNN_DATA_FLOAT), masked = g.scalar(CUDNN_DATA_FLOAT),
               one = g.scalar(CUDNN_DATA_FLOAT);
  made.operands = {dout, q, k, v, out, lse, dq, dk, dv};
  made.workspace = {dq_sums, row_sums};
  const std::int64_t rows = s.batch * s.heads * s.sequence;
  made.workspace_bytes = {rows * s.head_dim * 4, rows * 4};
  made.numbers = {scale, masked, one};

  // What each row of d_probabilities is short of: sum of dout out.
  g.pointwise(
      CUDNN_POINTWISE_MUL,
      b.row_reduction(CUDNN_REDUCE_TENSOR_ADD, b.apply(CUDNN_POINTWISE_MUL, dout, out, b.queries)),
      one, row_sums);
  const Tensor scores = b.apply(CUDNN_POINTWISE_MUL, b.product(q, k, b.scores), scale, b.scores);
  const Tensor probabilities =
      b.apply(CUDNN_POINTWISE_EXP,
              b.causal(b.apply(CUDNN_POINTWISE_SUB, scores, lse, b.scores), masked), b.scores);
  b.keys_product(b.transposed_scores(probabilities), dout, dv);
  const Tensor d_scores = b.apply(
      CUDNN_POINTWISE_MUL,
      b.apply(CUDNN_POINTWISE_MUL,
              b.apply(CUDNN_POINTWISE_SUB, b.product(dout, v, b.scores), row_sums, b.scores),
              probabilities, b.scores),
      scale, b.scores);
  b.keys_product(b.transposed_scores(d_scores), q, dk);
  const Tensor keys_again = g.between(keys, b.type);
  g.reshape(k, keys_again);
  g.matmul(d_scores, keys_again, dq_sums);
  g.pointwise(CUDNN_POINTWISE_IDENTITY, dq_sums, dq);
}

}  // namespace

AttentionGraph attention_graph(const CudnnApi& api, const AttentionShape& shape) {
  AttentionGraph made{CudnnGraph(api), {}, {}, {}, {}};
  if (shape.gradient) {
    build_gradient(shape, made);
  } else {
    build_forward(shape, made);
  }
  return made;
}

std::array<float, 3> attention_numbers(const AttentionShape& shape) {
  return {1 / std::sqrt(static_cast<float>(shape.head_dim)), std::numeric_limits<float>::lowest(),
          1};
}

}  // namespace mb::cuda
