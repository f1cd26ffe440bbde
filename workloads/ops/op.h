// The operations that a step is made of, as plain data: shapes, FLOPs, bytes moved. Kernels are in
// cpu_ops.cc.
//
// Matrices are row-major. `rows` is the number of tokens in a micro-batch unless said otherwise.
// The comment beside an operation gives its operands in order. An operand that is updated in place,
// a gradient that accumulates for example, stands in both lists (last among the reads); kernels
// take it from the writes.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "workloads/base/dtype.h"

namespace mb {

// Tokens and labels of one micro-batch.                     -> tokens[rows] int32, labels[rows]
// int32
struct LoadBatch {
  std::int64_t batch, sequence;
  bool tokens = true, labels = true;  // what is wanted; the other is not written
  bool operator==(const LoadBatch&) const = default;
};

// y = table[token], zero where the shard's `vocabulary` rows do not hold the token.   tokens, table
// -> y[rows, n]
struct Embedding {
  std::int64_t rows, n, vocabulary;
  bool operator==(const Embedding&) const = default;
};
// tokens, dy (, dtable) -> dtable[vocabulary, n]
struct EmbeddingGradient {
  std::int64_t rows, n, vocabulary;
  bool accumulate;
  bool operator==(const EmbeddingGradient&) const = default;
};

// x += positions, in place.                                  positions[sequence, n], x -> x[batch *
// sequence, n]
struct AddPositions {
  std::int64_t batch, sequence, n;
  bool operator==(const AddPositions&) const = default;
};
// dy (, dpositions) -> dpositions[sequence, n]
struct PositionGradient {
  std::int64_t batch, sequence, n;
  bool accumulate;
  bool operator==(const PositionGradient&) const = default;
};

// Norm over each row. rms: x, w -> y, rstd[rows].   layer: x, w, b -> y, rstd[rows], mean[rows]
enum class NormKind : std::uint8_t { layer, rms };
struct Norm {
  NormKind kind;
  std::int64_t rows, n;
  float epsilon;
  bool operator==(const Norm&) const = default;
};
// dx = gradient through the norm (+ d_residual).
// rms:   dy, x, w, rstd (, d_residual) (, dw) -> dx, dw.
// layer: dy, x, w, rstd, mean (, d_residual) (, dw, db) -> dx, dw, db
struct NormGradient {
  NormKind kind;
  std::int64_t rows, n;
  bool residual, accumulate;
  bool operator==(const NormGradient&) const = default;
};

// c[m, n] = a b (+ bias[n] on each row) (+ c). a is [m, k], or stored [k, m] if transpose_a; b is
// [k, n], or stored [n, k] if transpose_b.                                      a, b (, bias) (, c)
// -> c
struct Matmul {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, bias = false, accumulate = false;
  bool operator==(const Matmul&) const = default;
};

// Rotary position embedding of the q and k heads inside packed qkv rows, in place; pairs are (i, i
// + head_dim / 2) as in Llama's public weights. `inverse` rotates back, which is the gradient. qkv
// -> qkv
struct Rotary {
  std::int64_t batch, sequence, heads, kv_heads, head_dim;
  float base;
  bool inverse;
  bool operator==(const Rotary&) const = default;
};

// Causal attention that keeps only the log-sum-exp of each score row (Dao et al., FlashAttention,
// 2022). A row of qkv is [heads q | kv_heads k | kv_heads v], each of head_dim. qkv -> out[rows,
// heads * head_dim], lse[batch, heads, sequence]
struct Attention {
  std::int64_t batch, sequence, heads, kv_heads, head_dim;
  bool operator==(const Attention&) const = default;
};
// dout, qkv, out, lse -> dqkv
struct AttentionGradient {
  std::int64_t batch, sequence, heads, kv_heads, head_dim;
  bool operator==(const AttentionGradient&) const = default;
};

// GELU with the tanh approximation of GPT-2.                  u[rows, n] -> y[rows, n]
struct Gelu {
  std::int64_t rows, n;
  bool operator==(const Gelu&) const = default;
};
// dy, u -> du
struct GeluGradient {
  std::int64_t rows, n;
  bool operator==(const GeluGradient&) const = default;
};
// silu(gate) * up, with a row [n gate | n up].                gate_up[rows, 2 n] -> y[rows, n]
struct Swiglu {
  std::int64_t rows, n;
  bool operator==(const Swiglu&) const = default;
};
// dy, gate_up -> dgate_up
struct SwigluGradient {
  std::int64_t rows, n;
  bool operator==(const SwigluGradient&) const = default;
};

// y = a + b (+ bias on each row).                             a, b (, bias) -> y[rows, n]; y may be
// b
struct Add {
  std::int64_t rows, n;
  bool bias;
  bool operator==(const Add&) const = default;
};
// Column sums.                                                dy[rows, n] (, db) -> db[n]
struct BiasGradient {
  std::int64_t rows, n;
  bool accumulate;
  bool operator==(const BiasGradient&) const = default;
};

// Cross-entropy over a vocabulary split in shards of n columns (Megatron-LM, Shoeybi et al. 2019,
// section 3): between the steps, `max` takes the maximum and `sums` the sum over shards. Columns
// from `vocabulary` on (counted over all shards) are padding and take no part. A label below 0 is
// not a valid token: no loss, no gradient. logits[rows, n] -> max[rows]
struct VocabularyMax {
  std::int64_t rows, n, vocabulary;
  bool operator==(const VocabularyMax&) const = default;
};
// logits, labels, max -> sums[2, rows]: sum of exp(logit - max), logit - max of the label or 0
// where another shard has it
struct VocabularySums {
  std::int64_t rows, n, vocabulary;
  bool operator==(const VocabularySums&) const = default;
};
// Adds the summed loss and the number of valid tokens to scalars[0] and [1]; shard 0 alone, so that
// a sum over all ranks counts each token once.                               labels, sums, scalars
// -> scalars
struct CrossEntropy {
  std::int64_t rows;
  bool operator==(const CrossEntropy&) const = default;
};
// dlogits = softmax - onehot, not divided by the token count, in place.   labels, max, sums, logits
// -> logits
struct CrossEntropyGradient {
  std::int64_t rows, n, vocabulary;
  bool operator==(const CrossEntropyGradient&) const = default;
};

// Numbers of a step, always fp64, summed over all ranks before the optimizer reads them:
// scalars[0] loss sum, [1] valid tokens, [2] sum of squares of the undivided gradient.
inline constexpr int kStepScalars = 3;

// -> x[n], all zero
struct Zero {
  std::int64_t n;
  bool operator==(const Zero&) const = default;
};
// Adds the sum of squares of a gradient to scalars[2], where this rank is the one that counts it:
// data index 0, and shard 0 if the parameter is `replicated` over shards.       gradient[n],
// scalars -> scalars
struct SumSquares {
  std::int64_t n;
  bool replicated;
  bool operator==(const SumSquares&) const = default;
};
// Both optimizers scale the gradient by 1 / valid tokens and by min(1, clip / (norm + 1e-6)); clip
// 0 is off. AdamW as PyTorch's: decay first, epsilon outside the root after bias correction.
// gradient[n], scalars, parameter, m, v -> parameter, m, v
struct AdamW {
  std::int64_t n;
  double learning_rate, beta1, beta2, epsilon, weight_decay, clip;
  bool operator==(const AdamW&) const = default;
};
// gradient[n], scalars, parameter -> parameter
struct Sgd {
  std::int64_t n;
  double learning_rate, clip;
  bool operator==(const Sgd&) const = default;
};

using OpKind =
    std::variant<LoadBatch, Embedding, EmbeddingGradient, AddPositions, PositionGradient, Norm,
                 NormGradient, Matmul, Rotary, Attention, AttentionGradient, Gelu, GeluGradient,
                 Swiglu, SwigluGradient, Add, BiasGradient, VocabularyMax, VocabularySums,
                 CrossEntropy, CrossEntropyGradient, Zero, SumSquares, AdamW, Sgd>;

struct Op {
  OpKind kind;
  DType dtype = DType::fp32;  // of parameters and activations; tokens are int32, step scalars fp64
  bool operator==(const Op&) const = default;
};

// Useful floating-point operations: 2 m n k for a matmul; causal attention counts half of the
// square, and its backward twice the forward, without the scores that it computes again. Row
// operations count 0: no MFU convention has them.
double flops(const Op& op);

// Bytes that must cross memory if nothing stays in a cache: every operand once, read and written
// ones twice.
double bytes_moved(const Op& op);

// Short name, "matmul", and the name with its shape, "matmul 512x1536x384 nt bias".
std::string name_of(const Op& op);
std::string to_text(const Op& op);

}  // namespace mb
