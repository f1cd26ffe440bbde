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
#include <vector>

#include "workloads/base/dtype.h"

namespace mb {

// The tokens of a micro-batch that a rank holds. Context ranks divide every sequence: into as many
// runs, or, zig-zag, into twice as many, of which rank i has the i-th from the front and the i-th
// from the back, so that causal attention is the same work for all (Llama 3, 2024, section 3.3.2).
// Row = (sequence in the micro-batch) * (tokens of it here) + (place among them). Of these rows,
// sequence parallelism gives every tensor rank an equal run.
struct TokenSplit {
  int context_ways = 1;
  bool zigzag = false;
  int row_ways = 1;
  bool operator==(const TokenSplit&) const = default;
};

// Elements are dropped with this probability and the others divided by its complement. What is
// dropped is a function of (seed, step, stream, global index of the element) alone, so that every
// mesh drops the same: of [token, column], index = (sample * sequence + position) * n + column,
// with `sample` counted over the global batch; of attention, index = ((sample * heads + head) *
// sequence + query) * sequence + key, with `head` counted over all ranks.
struct Dropout {
  double probability = 0;  // 0: nothing is drawn
  std::uint64_t stream = 0;
  bool operator==(const Dropout&) const = default;
};

// Tokens and labels of one micro-batch.                     -> tokens[rows] int32, labels[rows]
// int32
struct LoadBatch {
  std::int64_t batch, sequence;
  bool tokens = true, labels = true;  // what is wanted; the other is not written
  TokenSplit split = {};
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
  TokenSplit split = {};
  bool operator==(const AddPositions&) const = default;
};
// dy (, dpositions) -> dpositions[sequence, n]
struct PositionGradient {
  std::int64_t batch, sequence, n;
  bool accumulate;
  TokenSplit split = {};
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
  bool to_main = false;  // c is of main_dtype(dtype): the gradient of a parameter
  bool operator==(const Matmul&) const = default;
};

// Rotary position embedding of the q and k heads inside packed qkv rows, in place; pairs are (i, i
// + head_dim / 2) as in Llama's public weights. `inverse` rotates back, which is the gradient. qkv
// -> qkv
struct Rotary {
  std::int64_t batch, sequence, heads, kv_heads, head_dim;
  float base;
  bool inverse;
  TokenSplit split = {};
  bool operator==(const Rotary&) const = default;
};

// Causal attention that keeps only the log-sum-exp of each score row (Dao et al., FlashAttention,
// 2022). A row of qkv is [heads q | kv_heads k | kv_heads v], each of head_dim. qkv -> out[rows,
// heads * head_dim], lse[batch, heads, sequence]
struct Attention {
  std::int64_t batch, sequence, heads, kv_heads, head_dim;
  Dropout dropout = {};  // of the probabilities
  // The heads of a tensor rank are divided over so many context ranks (DeepSpeed-Ulysses).
  int head_ways = 1;
  int total_heads = 0;  // of all ranks, for dropout; 0: no other tensor rank has any
  bool operator==(const Attention&) const = default;
};
// dout, qkv, out, lse -> dqkv
struct AttentionGradient {
  std::int64_t batch, sequence, heads, kv_heads, head_dim;
  Dropout dropout = {};
  int head_ways = 1;
  int total_heads = 0;
  bool operator==(const AttentionGradient&) const = default;
};

// One step of ring attention over context ranks (Liu, Zaharia, Abbeel, 2023): the queries of this
// rank's rows against the keys and values of the rank `step` places before it in the ring, as far
// as they are causal. out and lse are merged with those of the steps before; step 0 starts them. kv
// is [rows, kv_heads k | kv_heads v].       qkv, kv (, out, lse) -> out[rows, heads * head_dim],
// lse[batch, heads, rows of a sequence]
struct RingAttention {
  std::int64_t batch, sequence, heads, kv_heads, head_dim;
  TokenSplit split;
  int step;
  Dropout dropout = {};
  int total_heads = 0;
  bool operator==(const RingAttention&) const = default;
};
// The q part of dqkv and dkv, which travels with kv, are written at step 0 and added to after; the
// k and v part of dqkv is left alone.        dout, qkv, kv, out, lse (, dqkv, dkv) -> dqkv, dkv
struct RingAttentionGradient {
  std::int64_t batch, sequence, heads, kv_heads, head_dim;
  TokenSplit split;
  int step;
  Dropout dropout = {};
  int total_heads = 0;
  bool operator==(const RingAttentionGradient&) const = default;
};
// The k and v part of packed rows by itself: qkv -> kv. `inverse` puts it back: kv, qkv -> qkv
struct PackKv {
  std::int64_t rows, heads, kv_heads, head_dim;
  bool inverse;
  bool operator==(const PackKv&) const = default;
};
// Rows by head, for an all-to-all over context ranks (Jacobs et al., DeepSpeed-Ulysses, 2023): part
// i of y holds share i of the q, k and v heads of every row; kv_heads is 0 for rows of one kind.
// x[rows, (heads + 2 kv_heads) head_dim] -> y[ways, rows, as much / ways]; `inverse` y -> x
struct HeadShuffle {
  std::int64_t rows, ways, heads, kv_heads, head_dim;
  bool inverse;
  bool operator==(const HeadShuffle&) const = default;
};
// Rows of all context ranks, one rank after the other, in the order of the sequence.
// x[ways, batch * sequence / ways, n] -> y[batch * sequence, n]; `inverse` y -> x
struct TokenShuffle {
  std::int64_t batch, sequence, n;
  TokenSplit split;
  bool inverse;
  bool operator==(const TokenShuffle&) const = default;
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

// y = dropout(a (+ bias on each row)) + b.                    a, b (, bias) -> y[rows, n]; y may be
// b
struct Add {
  std::int64_t rows, n;
  bool bias;
  Dropout dropout = {};
  std::int64_t batch = 0, sequence = 0;  // where the rows stand; of use to dropout alone
  TokenSplit split = {};
  bool operator==(const Add&) const = default;
};
// y = dropout(x): also its own gradient, dy -> dx.            x[rows, n] -> y; y may be x
struct DropoutRows {
  std::int64_t rows, n;
  Dropout dropout;
  std::int64_t batch, sequence;
  TokenSplit split;
  bool operator==(const DropoutRows&) const = default;
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
// dlogits = loss scale * (softmax - onehot), not divided by the token count, in place.
// labels, max, sums, scalars, logits -> logits
struct CrossEntropyGradient {
  std::int64_t rows, n, vocabulary;
  bool operator==(const CrossEntropyGradient&) const = default;
};

// --- Mixed precision and flat optimizer state --------------------------------------------------
//
// With 16-bit parameters and activations, gradients, moments and main parameters are fp32, as are
// the statistics of rows (rstd, mean, lse, the loss's max and sums): main_dtype(dtype).

// Sums of a step and the loss scale, always fp64. The first kStepSums are zeroed when a step starts
// and summed over all ranks before the optimizer reads them: [0] loss, [1] valid tokens, [2] sum of
// squares of the undivided (and scaled) gradient, [3] balance loss of routers; then [4] the loss
// scale, [5] steps since it last changed, [6] steps that were skipped so far, [7] the scale of this
// step.
inline constexpr int kStepSums = 4;
inline constexpr int kScalars = 8;

// Zeroes the sums; before the first step it also sets the loss scale.            scalars -> scalars
struct StartStep {
  double loss_scale = 1;
  bool operator==(const StartStep&) const = default;
};
// Dynamic loss scale (Micikevicius et al., ICLR 2018): a step whose sum of squares is not finite
// was skipped by the update, and halves the scale; `growth_steps` good ones double it.
// scalars -> scalars
struct UpdateLossScale {
  int growth_steps = 1000;
  bool operator==(const UpdateLossScale&) const = default;
};

// A parameter's run in a flat bucket of parameters.
struct Segment {
  std::int64_t begin = 0, end = 0;
  bool decay = false;
  // Neighbouring tensor ranks that hold the same values, of which the first counts in the norm: 1
  // where each has its own, all of them where the parameter is not divided, 0 where this copy never
  // counts (a tied embedding's second).
  int copies = 1;
  bool operator==(const Segment&) const = default;
};
// One slice of a bucket that `ways` ranks own together: elements [i n, (i + 1) n) of it for the
// i-th owner; padding belongs to no segment. Operands hold the slice, or the whole bucket where it
// is said.
struct FlatSlice {
  std::int64_t n = 0;
  int ways = 1;
  bool expert = false;  // owners are the ranks that share the expert
  std::vector<Segment> segments;
  bool operator==(const FlatSlice&) const = default;
};
// Adds the slice's sum of squares to scalars[2], where this rank counts it: of replicas, and of
// owners that all hold everything (ways = 1), the first.         gradient (main), scalars ->
// scalars
struct GradientNorm {
  FlatSlice slice;
  bool whole_gradient;  // the operand is the whole bucket
  bool operator==(const GradientNorm&) const = default;
};
// AdamW as PyTorch's (decay first, epsilon outside the root after bias correction), or plain SGD
// with `moments` off; for each segment with its own decay. The gradient is scaled by 1 / (valid
// tokens * loss scale) and by min(1, clip / (norm + 1e-6)), clip 0 being off; one whose norm is not
// finite changes nothing. With 16-bit parameters `value` is the fp32 main slice, and `rounded`, the
// 16-bit parameter, receives it.
// gradient (main), scalars, value (, m, v) (, rounded) -> value (, m, v) (, rounded)
struct UpdateParameters {
  FlatSlice slice;
  bool whole_gradient, whole_value;  // the gradient; `rounded` if there is one, else `value`
  bool moments;
  double learning_rate, beta1, beta2, epsilon, weight_decay, clip;
  bool operator==(const UpdateParameters&) const = default;
};
// x of the operation's dtype to y of main_dtype(dtype), or back, rounding to nearest even.  x -> y
struct Cast {
  std::int64_t n;
  bool to_main;
  bool operator==(const Cast&) const = default;
};
// y = x, or y += x, both of main_dtype(dtype).                                      x (, y) -> y
struct Accumulate {
  std::int64_t n;
  bool accumulate;
  bool operator==(const Accumulate&) const = default;
};

// --- Experts ------------------------------------------------------------------------------------
//
// A router sends every token to `top` of `experts` (Shazeer et al., 2017). Tokens stand in a buffer
// sorted by expert. Without a capacity the buffer is as long as the tokens ask for and `counts`
// says how many rows each expert has; with one, each expert has `capacity` rows for every sequence
// of the micro-batch, the tokens of a sequence take them in order, and those that come too late are
// dropped (slot -1; they add nothing). Unused rows are zero, and `counts` are of the used ones.
// slot = first row of the expert (with a capacity, of (expert, sequence)) + place, in the order of
// tokens, then of a token's choices.
struct Routing {
  std::int64_t batch = 1, sequence = 1;  // of the whole micro-batch
  TokenSplit split;                      // row_ways is 1: every tensor rank routes all rows
  std::int64_t experts = 1, top = 1, capacity = 0;
  std::int64_t rows() const { return batch * sequence / split.context_ways; }
  std::int64_t buffer_rows() const { return capacity ? experts * batch * capacity : rows() * top; }
  bool operator==(const Routing&) const = default;
};
// Probabilities are a softmax over all experts; gates are those of the chosen, divided by their sum
// if top > 1. Equal logits: the expert with the lower number. balance[2, batch, experts]: this
// rank's number of choices, dropped ones too, and sum of probabilities, for each sequence.
// logits[rows, experts] -> probabilities[rows, experts] (main), choice[rows, top] int32, gate[rows,
// top] (main), slot[rows, top] int32, counts[experts] int32, balance (main)
struct Route {
  Routing routing;
  bool operator==(const Route&) const = default;
};
// Adds the load-balancing loss (Fedus et al., Switch Transformer, 2022, for each sequence by
// itself) to scalars[3]: coefficient * sequence * experts / top * sum over e of f_e P_e, where f_e
// and P_e are balance / sequence, already summed over context ranks. Tensor rank 0 and context rank
// 0 alone.                                                             balance, scalars -> scalars
struct BalanceLoss {
  Routing routing;
  double coefficient;
  bool operator==(const BalanceLoss&) const = default;
};
// Gradient through gates and, on tensor rank 0, of the balance loss (times the loss scale). d_gate
// may be one shard's part of a sum: all else is linear in it.
// d_gate (main), probabilities, choice, gate, balance, scalars -> d_logits
struct RouteGradient {
  Routing routing;
  double coefficient;
  bool operator==(const RouteGradient&) const = default;
};
// buffer[slot] = x; rows of the buffer that no token has are zero.   x[rows, n], slot -> buffer
// Gradient: dx = sum of d_buffer[slot].                              d_buffer, slot -> dx[rows, n]
struct Dispatch {
  Routing routing;
  std::int64_t n;
  bool gradient;
  bool operator==(const Dispatch&) const = default;
};
// y = sum of gate * buffer[slot].                                buffer, slot, gate -> y[rows, n]
struct Combine {
  Routing routing;
  std::int64_t n;
  bool operator==(const Combine&) const = default;
};
// dy, buffer, slot, gate -> d_buffer (unused rows zero), d_gate (main)
struct CombineGradient {
  Routing routing;
  std::int64_t n;
  bool operator==(const CombineGradient&) const = default;
};
// What an expert rank has received: from each of `sources` ranks the rows of its `experts` local
// experts, sorted by expert, one source right after the other. counts[sources, experts] int32 says
// how many, or it is not an operand and each count is `fixed`.
struct ExpertRows {
  std::int64_t sources = 1, experts = 1;
  std::int64_t buffer_rows = 0;  // that there is room for
  std::int64_t rows = 0;         // that come if all experts get the same, for FLOPs
  std::int64_t fixed = 0;        // 0: counts are an operand, the last of the reads but accumulators
  bool operator==(const ExpertRows&) const = default;
};
// For each expert e: forward y = x w[e]^T, x[buffer, k], w[experts, n, k] (, counts) -> y[buffer,
// n] input_gradient dx = dy w[e], dy, w (, counts) -> dx; weight_gradient dw[e] (+)= dy^T x, dy, x
// (, counts) (, dw) -> dw; an expert without rows has gradient 0.
enum class ExpertProduct : std::uint8_t { forward, input_gradient, weight_gradient };
struct ExpertMatmul {
  ExpertRows rows;
  std::int64_t n, k;
  ExpertProduct product;
  bool accumulate = false;  // of the weight gradient
  bool operator==(const ExpertMatmul&) const = default;
};
// Gelu, or Swiglu on [n gate | n up], on the rows that are there.        u (, counts) -> y[buffer,
// n]
struct ExpertActivation {
  ExpertRows rows;
  std::int64_t n;
  bool gated;
  bool operator==(const ExpertActivation&) const = default;
};
// dy, u (, counts) -> du
struct ExpertActivationGradient {
  ExpertRows rows;
  std::int64_t n;
  bool gated;
  bool operator==(const ExpertActivationGradient&) const = default;
};

using OpKind =
    std::variant<LoadBatch, Embedding, EmbeddingGradient, AddPositions, PositionGradient, Norm,
                 NormGradient, Matmul, Rotary, Attention, AttentionGradient, Gelu, GeluGradient,
                 Swiglu, SwigluGradient, Add, BiasGradient, VocabularyMax, VocabularySums,
                 CrossEntropy, CrossEntropyGradient, RingAttention, RingAttentionGradient, PackKv,
                 HeadShuffle, TokenShuffle, DropoutRows, StartStep, UpdateLossScale, GradientNorm,
                 UpdateParameters, Cast, Accumulate, Route, BalanceLoss, RouteGradient, Dispatch,
                 Combine, CombineGradient, ExpertMatmul, ExpertActivation,
                 ExpertActivationGradient>;

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
