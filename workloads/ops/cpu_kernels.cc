// All CPU kernels, for one instruction set. CMake compiles this file once for each, with
// MB_KERNELS naming the table that it defines; nothing else here has external linkage.
#include "workloads/base/mutation.h"
#include "workloads/ops/activation.h"
#include "workloads/ops/builtin_matmul.h"
#include "workloads/ops/cpu_attention.h"
#include "workloads/ops/cpu_call.h"
#include "workloads/ops/cpu_context.h"
#include "workloads/ops/cpu_experts.h"
#include "workloads/ops/cpu_isa.h"
#include "workloads/ops/cpu_optimizer.h"
#include "workloads/ops/dropout.h"
#include "workloads/ops/norm.h"
#include "workloads/ops/rotary.h"
#include "workloads/ops/softmax.h"
#include "workloads/ops/stream.h"
#include "workloads/ops/team.h"
#include "workloads/ops/tokens.h"

namespace mb {
namespace {

// for_each_run of an operation's rows on this rank.
template <class Op, class F>
void for_each_run(const Op& op, const OpContext& context, F f) {
  for_each_run(op.split, op.batch, op.sequence, context.context_index, context.shard_index, f);
}

template <class T>
void run(const LoadBatch& op, const KernelCall<T>& call) {
  const OpContext& context = call.context;
  std::int32_t* tokens = op.tokens ? out<std::int32_t>(call, 0) : nullptr;
  std::int32_t* labels = op.labels ? out<std::int32_t>(call, op.tokens ? 1 : 0) : nullptr;
  const auto load = [&](std::int32_t* to_tokens, std::int32_t* to_labels) {
    context.batches->load(context.step, context.data_index, context.micro_batch, op.batch,
                          op.sequence, to_tokens, to_labels);
  };
  if (!is_split(op.split)) return load(tokens, labels);
  const std::int64_t size = op.batch * op.sequence;
  auto* all =
      static_cast<std::int32_t*>(thread_scratch(Scratch::batch, 2 * size * sizeof(std::int32_t)));
  load(tokens ? all : nullptr, labels ? all + size : nullptr);
  for_each_run(op, context, [&](std::int64_t row, const TokenPlace& place, std::int64_t count) {
    const std::int32_t* from = all + place.sequence * op.sequence + place.position;
    if (tokens) __builtin_memcpy(tokens + row, from, count * sizeof(std::int32_t));
    if (labels) __builtin_memcpy(labels + row, from + size, count * sizeof(std::int32_t));
  });
}

template <class T>
void run(const Embedding& op, const KernelCall<T>& call) {
  const auto* tokens = in<std::int32_t>(call, 0);
  const T* table = in<T>(call, 1);
  T* y = out<T>(call, 0);
  for (std::int64_t r = 0; r < op.rows; ++r, y += op.n) {
    const std::int64_t entry = tokens[r] - call.context.shard_index * op.vocabulary;
    if (entry >= 0 && entry < op.vocabulary) {
      __builtin_memcpy(y, table + entry * op.n, sizeof(T) * op.n);
    } else {
      fill_zero(y, op.n);
    }
  }
}

template <class T>
void run(const EmbeddingGradient& op, const KernelCall<T>& call) {
  const auto* tokens = in<std::int32_t>(call, 0);
  const T* dy = in<T>(call, 1);
  Main<T>* dtable = out<Main<T>>(call, 0);
  if (!op.accumulate) fill_zero(dtable, op.vocabulary * op.n);
  for (std::int64_t r = 0; r < op.rows; ++r, dy += op.n) {
    const std::int64_t entry = tokens[r] - call.context.shard_index * op.vocabulary;
    if (entry >= 0 && entry < op.vocabulary) add_to(kTeam, dy, dtable + entry * op.n, op.n);
  }
}

template <class T>
void run(const AddPositions& op, const KernelCall<T>& call) {
  const T* positions = in<T>(call, 0);
  T* x = out<T>(call, 0);
  for_each_run(op, call.context, [&](std::int64_t row, const TokenPlace& place, std::int64_t rows) {
    add_to(kTeam, positions + place.position * op.n, x + row * op.n, rows * op.n);
  });
}

template <class T>
void run(const PositionGradient& op, const KernelCall<T>& call) {
  const T* dy = in<T>(call, 0);
  Main<T>* dpositions = out<Main<T>>(call, 0);
  if (!op.accumulate) fill_zero(dpositions, op.sequence * op.n);
  for_each_run(op, call.context, [&](std::int64_t row, const TokenPlace& place, std::int64_t rows) {
    add_to(kTeam, dy + row * op.n, dpositions + place.position * op.n, rows * op.n);
  });
}

template <class T>
void run(const Norm& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const T* x = in<T>(call, 0);
  const T* w = in<T>(call, 1);
  T* y = out<T>(call, 0);
  M* rstd = out<M>(call, 1);
  for (std::int64_t r = 0; r < op.rows; ++r, x += op.n, y += op.n) {
    if (op.kind == NormKind::layer) {
      layer_norm_row(kTeam, x, w, in<T>(call, 2), y, rstd + r, out<M>(call, 2) + r, op.n,
                     M(op.epsilon));
    } else {
      rms_norm_row(kTeam, x, w, y, rstd + r, op.n, M(op.epsilon));
    }
  }
}

template <bool kLayer, class T>
void norm_gradient(const NormGradient& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const T* dy = in<T>(call, 0);
  const T* x = in<T>(call, 1);
  const T* w = in<T>(call, 2);
  const M* rstd = in<M>(call, 3);
  const M* mean = kLayer ? in<M>(call, 4) : nullptr;
  const T* residual = op.residual ? in<T>(call, kLayer ? 5 : 4) : nullptr;
  T* dx = out<T>(call, 0);
  M* dw = out<M>(call, 1);
  M* db = kLayer ? out<M>(call, 2) : nullptr;
  if (!op.accumulate) {
    fill_zero(dw, op.n);
    if (db) fill_zero(db, op.n);
  }
  for (std::int64_t r = 0; r < op.rows; ++r) {
    const std::int64_t at = r * op.n;
    const M center = kLayer ? mean[r] : M(0);
    norm_weight_gradient_row(kTeam, dy + at, x + at, rstd[r], center, dw, db, op.n);
    norm_gradient_row<kLayer>(kTeam, dy + at, x + at, w, rstd[r], center,
                              residual ? residual + at : nullptr, dx + at, op.n);
  }
}

template <class T>
void run(const NormGradient& op, const KernelCall<T>& call) {
  op.kind == NormKind::layer ? norm_gradient<true>(op, call) : norm_gradient<false>(op, call);
}

template <class T>
void run(const Matmul& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const MatmulShape shape = shape_of(op);
  const T* bias = op.bias ? in<T>(call, 2) : nullptr;
  if (call.half_matmul) {
    return call.half_matmul(shape, in<T>(call, 0), in<T>(call, 1), bias, out<void>(call, 0),
                            op.to_main);
  }
  const std::int64_t size = op.m * op.n;
  M* c = op.to_main ? out<M>(call, 0)
                    : widen_result(out<T>(call, 0), size, Scratch::wide_c, op.accumulate);
  call.matmul(shape, widen(in<T>(call, 0), op.m * op.k, Scratch::wide_a),
              widen(in<T>(call, 1), op.k * op.n, Scratch::wide_b),
              bias ? widen(bias, op.n, Scratch::wide_d) : nullptr, c);
  if (!op.to_main) narrow(c, out<T>(call, 0), size);
}

template <class T>
void run(const Rotary& op, const KernelCall<T>& call) {
  const std::int64_t half = op.head_dim / 2;
  const std::int64_t row = (op.heads + 2 * op.kv_heads) * op.head_dim;
  using M = Main<T>;
  const M* cosines = rotary_table(op.sequence, op.head_dim, op.base, M());
  const M* sines = cosines + op.sequence * half;
  T* qkv = out<T>(call, 0);
  for_each_run(op, call.context, [&](std::int64_t, const TokenPlace& place, std::int64_t rows) {
    const std::int64_t begin = place.position * half, end = begin + rows * half;
    for (std::int64_t at = begin; at < end; at += half, qkv += row) {
      for (std::int64_t head = 0; head < op.heads + op.kv_heads; ++head) {
        rotate_head(kTeam, qkv + head * op.head_dim, cosines + at, sines + at,
                    op.inverse ? M(-1) : M(1), half);
      }
    }
  });
}

template <class T>
void run(const Attention& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const AttentionStep step = whole_attention(op, call.context);
  const HeadLayout& l = step.layout;
  const M* qkv = widen(in<T>(call, 0), l.rows() * l.q_row, Scratch::wide_a);
  M* y = widen_result(out<T>(call, 0), l.rows() * l.out_row, Scratch::wide_b);
  attention<M>(step, call.matmul, qkv, qkv + l.out_row, y, out<M>(call, 1));
  narrow(y, out<T>(call, 0), l.rows() * l.out_row);
}

template <class T>
void run(const AttentionGradient& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const AttentionStep step = whole_attention(op, call.context);
  const HeadLayout& l = step.layout;
  const M* dy = widen(in<T>(call, 0), l.rows() * l.out_row, Scratch::wide_a);
  const M* qkv = widen(in<T>(call, 1), l.rows() * l.q_row, Scratch::wide_b);
  const M* y = widen(in<T>(call, 2), l.rows() * l.out_row, Scratch::wide_c);
  M* dqkv = widen_result(out<T>(call, 0), l.rows() * l.q_row, Scratch::wide_d);
  attention_gradient<M>(step, call.matmul, dy, qkv, qkv + l.out_row, y, in<M>(call, 3), dqkv,
                        dqkv + l.out_row);
  narrow(dqkv, out<T>(call, 0), l.rows() * l.q_row);
}

template <class T>
void run(const Gelu& op, const KernelCall<T>& call) {
  // A fault that costs time and changes no bit: what a comparison of times has to notice.
  for (int again = mutated("gelu_repeated") ? 15 : 0; again >= 0; --again)
    gelu(kTeam, in<T>(call, 0), out<T>(call, 0), op.rows * op.n);
}

template <class T>
void run(const GeluGradient& op, const KernelCall<T>& call) {
  gelu_gradient(kTeam, in<T>(call, 0), in<T>(call, 1), out<T>(call, 0), op.rows * op.n);
}

template <class T>
void run(const Swiglu& op, const KernelCall<T>& call) {
  const T* gate = in<T>(call, 0);
  T* y = out<T>(call, 0);
  for (std::int64_t r = 0; r < op.rows; ++r, gate += 2 * op.n, y += op.n) {
    swiglu_row(kTeam, gate, gate + op.n, y, op.n);
  }
}

template <class T>
void run(const SwigluGradient& op, const KernelCall<T>& call) {
  const T* dy = in<T>(call, 0);
  const T* gate = in<T>(call, 1);
  T* dgate = out<T>(call, 0);
  for (std::int64_t r = 0; r < op.rows; ++r, dy += op.n, gate += 2 * op.n, dgate += 2 * op.n) {
    swiglu_gradient_row(kTeam, dy, gate, gate + op.n, dgate, dgate + op.n, op.n);
  }
}

// Index of a row's first element for dropout; those of a run follow each other.
template <class Op>
std::int64_t dropout_index(const Op& op, const OpContext& context, const TokenPlace& place) {
  return ((context.first_sample + place.sequence) * op.sequence + place.position) * op.n;
}

template <class T>
void run(const Add& op, const KernelCall<T>& call) {
  const T* a = in<T>(call, 0);
  const T* b = in<T>(call, 1);
  const T* bias = op.bias ? in<T>(call, 2) : nullptr;
  T* y = out<T>(call, 0);
  if (op.dropout.probability == 0) {
    for (std::int64_t at = 0; at < op.rows * op.n; at += op.n) {
      add_row(kTeam, a + at, b + at, bias, y + at, op.n);
    }
    return;
  }
  const DropoutMask mask = dropout_mask(op.dropout, call.context);
  for_each_run(op, call.context, [&](std::int64_t row, const TokenPlace& place, std::int64_t rows) {
    std::int64_t index = dropout_index(op, call.context, place);
    for (std::int64_t r = row; r < row + rows; ++r, index += op.n) {
      const std::int64_t at = r * op.n;
      add_dropped_row(kTeam, a + at, b + at, bias, y + at, op.n, mask, index);
    }
  });
}

template <class T>
void run(const DropoutRows& op, const KernelCall<T>& call) {
  const DropoutMask mask = dropout_mask(op.dropout, call.context);
  for_each_run(op, call.context, [&](std::int64_t row, const TokenPlace& place, std::int64_t rows) {
    const T* x = in<T>(call, 0) + row * op.n;
    T* y = out<T>(call, 0) + row * op.n;
    const std::int64_t index = dropout_index(op, call.context, place);
    kTeam.for_each(rows * op.n,
                   [=](std::int64_t i) { y[i] = dropout_of(mask, index + i, Main<T>(x[i])); });
  });
}

template <class T>
void run(const BiasGradient& op, const KernelCall<T>& call) {
  const T* dy = in<T>(call, 0);
  Main<T>* db = out<Main<T>>(call, 0);
  if (!op.accumulate) fill_zero(db, op.n);
  std::int64_t r = 0;
  for (; r + 4 <= op.rows; r += 4) {
    const T* x = dy + r * op.n;
    kTeam.for_each(op.n, [=, n = op.n](std::int64_t i) {
      db[i] += (x[i] + x[n + i]) + (x[2 * n + i] + x[3 * n + i]);
    });
  }
  for (; r < op.rows; ++r) add_to(kTeam, dy + r * op.n, db, op.n);
}

template <class T>
void run(const VocabularyMax& op, const KernelCall<T>& call) {
  const std::int64_t valid = valid_columns(op.vocabulary, op.n, call.context.shard_index);
  for (std::int64_t r = 0; r < op.rows; ++r) {
    out<Main<T>>(call, 0)[r] = max_row(kTeam, in<T>(call, 0) + r * op.n, valid);
  }
}

template <class T>
void run(const VocabularySums& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const int shard = call.context.shard_index;
  const std::int64_t valid = valid_columns(op.vocabulary, op.n, shard);
  const auto* labels = in<std::int32_t>(call, 1);
  const M* max = in<M>(call, 2);
  M* sums = out<M>(call, 0);
  for (std::int64_t r = 0; r < op.rows; ++r) {
    const T* x = in<T>(call, 0) + r * op.n;
    const std::int64_t column = label_column(labels[r], valid, op.n, shard);
    sums[r] = exp_sum_row(kTeam, x, max[r], valid);
    if (mutated("gathered_logits")) sums[r] *= M((op.vocabulary + op.n - 1) / op.n);
    sums[op.rows + r] = column < 0 ? M(0) : x[column] - max[r];
  }
}

template <class T>
void run(const CrossEntropy& op, const KernelCall<T>& call) {
  if (call.context.shard_index != 0) return;
  const auto* labels = in<std::int32_t>(call, 0);
  const Main<T>* sums = in<Main<T>>(call, 1);
  double loss = 0, tokens = 0;
  for (std::int64_t r = 0; r < op.rows; ++r) {
    if (labels[r] < 0) continue;
    loss += __builtin_log(double(sums[r])) - double(sums[op.rows + r]);
    tokens += 1;
  }
  out<double>(call, 0)[0] += loss;
  out<double>(call, 0)[1] += tokens;
}

template <class T>
void run(const CrossEntropyGradient& op, const KernelCall<T>& call) {
  using M = Main<T>;
  const int shard = call.context.shard_index;
  const std::int64_t valid = valid_columns(op.vocabulary, op.n, shard);
  const auto* labels = in<std::int32_t>(call, 0);
  const M* max = in<M>(call, 1);
  const M* sums = in<M>(call, 2);
  M loss_scale = M(in<double>(call, 3)[4]);
  if (mutated("mean_of_means")) {
    std::int64_t tokens = 0;
    for (std::int64_t r = 0; r < op.rows; ++r) tokens += labels[r] >= 0;
    loss_scale *= M(op.rows) / M(tokens > 0 ? tokens : 1);
  }
  for (std::int64_t r = 0; r < op.rows; ++r) {
    cross_entropy_gradient_row(kTeam, out<T>(call, 0) + r * op.n, max[r], sums[r], loss_scale,
                               labels[r] >= 0, label_column(labels[r], valid, op.n, shard), valid,
                               op.n);
  }
}

// 20 chains of r = r * x + y hide the latency of two multiply-adds a cycle.
template <class T>
double multiply_add(std::int64_t rounds) {
  constexpr int kChains = kVectorBytes == 64 ? 20 : 12;
  using V = typename VectorOf<T>::Type;
  V x = V{} + T(0.999), y = V{} + T(0.001), chain[kChains];
#pragma GCC unroll 20
  for (int c = 0; c < kChains; ++c) chain[c] = V{} + T(c);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 20
    for (int c = 0; c < kChains; ++c) chain[c] = chain[c] * x + y;
  }
#pragma GCC unroll 20
  for (int c = 0; c < kChains; ++c) asm volatile("" : : "x"(chain[c]));
  return 2.0 * rounds * kChains * kLanes<T>;
}

template <class T, class... Kinds>
constexpr KernelTable<T, OpKind> table_of(const std::variant<Kinds...>*) {
  return {Kernel<T, Kinds>{static_cast<void (*)(const Kinds&, const KernelCall<T>&)>(run)}...};
}

}  // namespace

constinit const CpuKernels MB_KERNELS = {
    .isa = MB_ISA_NAME,
    .fp32 = table_of<float>(static_cast<const OpKind*>(nullptr)),
    .fp64 = table_of<double>(static_cast<const OpKind*>(nullptr)),
    .bf16 = table_of<Bf16>(static_cast<const OpKind*>(nullptr)),
    .fp16 = table_of<Fp16>(static_cast<const OpKind*>(nullptr)),
    .matmul_fp32 = builtin_matmul<float>,
    .matmul_fp64 = builtin_matmul<double>,
    .multiply_add_fp32 = multiply_add<float>,
    .multiply_add_fp64 = multiply_add<double>,
    .triad = {triad<false>, triad<true>},
    .stream_copy = {stream_copy<false>, stream_copy<true>},
};

}  // namespace mb
