// All CPU kernels, for one instruction set. CMake compiles this file once for each, with
// MB_KERNELS naming the table that it defines; nothing else here has external linkage.
#include "workloads/ops/activation.h"
#include "workloads/ops/adamw.h"
#include "workloads/ops/builtin_matmul.h"
#include "workloads/ops/cpu_attention.h"
#include "workloads/ops/cpu_call.h"
#include "workloads/ops/cpu_context.h"
#include "workloads/ops/cpu_experts.h"
#include "workloads/ops/cpu_isa.h"
#include "workloads/ops/norm.h"
#include "workloads/ops/rotary.h"
#include "workloads/ops/softmax.h"
#include "workloads/ops/team.h"

namespace mb {
namespace {

// Operations whose kernel is still to come.
template <class Kind, class T>
void run(const Kind&, const KernelCall<T>&) {
  __builtin_trap();
}

template <class T>
void run(const LoadBatch& op, const KernelCall<T>& call) {
  const OpContext& context = call.context;
  context.batches->load(context.step, context.data_index, context.micro_batch, op.batch,
                        op.sequence, op.tokens ? out<std::int32_t>(call, 0) : nullptr,
                        op.labels ? out<std::int32_t>(call, op.tokens ? 1 : 0) : nullptr);
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
  T* dtable = out<T>(call, 0);
  if (!op.accumulate) fill_zero(dtable, op.vocabulary * op.n);
  for (std::int64_t r = 0; r < op.rows; ++r, dy += op.n) {
    const std::int64_t entry = tokens[r] - call.context.shard_index * op.vocabulary;
    if (entry >= 0 && entry < op.vocabulary) add_to(kTeam, dy, dtable + entry * op.n, op.n);
  }
}

template <class T>
void run(const AddPositions& op, const KernelCall<T>& call) {
  const std::int64_t size = op.sequence * op.n;
  for (std::int64_t b = 0; b < op.batch; ++b) {
    add_to(kTeam, in<T>(call, 0), out<T>(call, 0) + b * size, size);
  }
}

template <class T>
void run(const PositionGradient& op, const KernelCall<T>& call) {
  const std::int64_t size = op.sequence * op.n;
  T* dpositions = out<T>(call, 0);
  if (!op.accumulate) fill_zero(dpositions, size);
  for (std::int64_t b = 0; b < op.batch; ++b) {
    add_to(kTeam, in<T>(call, 0) + b * size, dpositions, size);
  }
}

template <class T>
void run(const Norm& op, const KernelCall<T>& call) {
  const T* x = in<T>(call, 0);
  const T* w = in<T>(call, 1);
  T* y = out<T>(call, 0);
  T* rstd = out<T>(call, 1);
  for (std::int64_t r = 0; r < op.rows; ++r, x += op.n, y += op.n) {
    if (op.kind == NormKind::layer) {
      layer_norm_row(kTeam, x, w, in<T>(call, 2), y, rstd + r, out<T>(call, 2) + r, op.n,
                     T(op.epsilon));
    } else {
      rms_norm_row(kTeam, x, w, y, rstd + r, op.n, T(op.epsilon));
    }
  }
}

template <bool kLayer, class T>
void norm_gradient(const NormGradient& op, const KernelCall<T>& call) {
  const T* dy = in<T>(call, 0);
  const T* x = in<T>(call, 1);
  const T* w = in<T>(call, 2);
  const T* rstd = in<T>(call, 3);
  const T* mean = kLayer ? in<T>(call, 4) : nullptr;
  const T* residual = op.residual ? in<T>(call, kLayer ? 5 : 4) : nullptr;
  T* dx = out<T>(call, 0);
  T* dw = out<T>(call, 1);
  T* db = kLayer ? out<T>(call, 2) : nullptr;
  if (!op.accumulate) {
    fill_zero(dw, op.n);
    if (db) fill_zero(db, op.n);
  }
  for (std::int64_t r = 0; r < op.rows; ++r) {
    const std::int64_t at = r * op.n;
    const T center = kLayer ? mean[r] : T(0);
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
  call.matmul({.m = op.m,
               .n = op.n,
               .k = op.k,
               .lda = op.transpose_a ? op.m : op.k,
               .ldb = op.transpose_b ? op.k : op.n,
               .ldc = op.n,
               .transpose_a = op.transpose_a,
               .transpose_b = op.transpose_b,
               .bias = op.bias,
               .accumulate = op.accumulate},
              in<T>(call, 0), in<T>(call, 1), op.bias ? in<T>(call, 2) : nullptr, out<T>(call, 0));
}

template <class T>
void run(const Rotary& op, const KernelCall<T>& call) {
  const std::int64_t half = op.head_dim / 2;
  const std::int64_t row = (op.heads + 2 * op.kv_heads) * op.head_dim;
  const T* cosine = rotary_table(op.sequence, op.head_dim, op.base, T());
  const T* sine = cosine + op.sequence * half;
  T* qkv = out<T>(call, 0);
  for (std::int64_t b = 0; b < op.batch; ++b) {
    for (std::int64_t s = 0; s < op.sequence; ++s, qkv += row) {
      for (std::int64_t head = 0; head < op.heads + op.kv_heads; ++head) {
        rotate_head(kTeam, qkv + head * op.head_dim, cosine + s * half, sine + s * half,
                    op.inverse ? T(-1) : T(1), half);
      }
    }
  }
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

template <class T>
void run(const Add& op, const KernelCall<T>& call) {
  const T* bias = op.bias ? in<T>(call, 2) : nullptr;
  for (std::int64_t r = 0; r < op.rows; ++r) {
    const std::int64_t at = r * op.n;
    add_row(kTeam, in<T>(call, 0) + at, in<T>(call, 1) + at, bias, out<T>(call, 0) + at, op.n);
  }
}

template <class T>
void run(const BiasGradient& op, const KernelCall<T>& call) {
  const T* dy = in<T>(call, 0);
  T* db = out<T>(call, 0);
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
    out<T>(call, 0)[r] = max_row(kTeam, in<T>(call, 0) + r * op.n, valid);
  }
}

template <class T>
void run(const VocabularySums& op, const KernelCall<T>& call) {
  const int shard = call.context.shard_index;
  const std::int64_t valid = valid_columns(op.vocabulary, op.n, shard);
  const auto* labels = in<std::int32_t>(call, 1);
  const T* max = in<T>(call, 2);
  T* sums = out<T>(call, 0);
  for (std::int64_t r = 0; r < op.rows; ++r) {
    const T* x = in<T>(call, 0) + r * op.n;
    const std::int64_t column = label_column(labels[r], valid, op.n, shard);
    sums[r] = exp_sum_row(kTeam, x, max[r], valid);
    sums[op.rows + r] = column < 0 ? T(0) : x[column] - max[r];
  }
}

template <class T>
void run(const CrossEntropy& op, const KernelCall<T>& call) {
  if (call.context.shard_index != 0) return;
  const auto* labels = in<std::int32_t>(call, 0);
  const T* sums = in<T>(call, 1);
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
  const int shard = call.context.shard_index;
  const std::int64_t valid = valid_columns(op.vocabulary, op.n, shard);
  const auto* labels = in<std::int32_t>(call, 0);
  const T* max = in<T>(call, 1);
  const T* sums = in<T>(call, 2);
  for (std::int64_t r = 0; r < op.rows; ++r) {
    cross_entropy_gradient_row(kTeam, out<T>(call, 0) + r * op.n, max[r], sums[r], labels[r] >= 0,
                               label_column(labels[r], valid, op.n, shard), valid, op.n);
  }
}

template <class T>
void run(const Zero& op, const KernelCall<T>& call) {
  fill_zero(out<T>(call, 0), op.n);
}

template <class T>
void run(const SumSquares& op, const KernelCall<T>& call) {
  const OpContext& context = call.context;
  if (context.data_index != 0 || (op.replicated && context.shard_index != 0)) return;
  const T* gradient = in<T>(call, 0);
  out<double>(call, 0)[2] += kTeam.sum<double>(
      op.n, [=](std::int64_t i) { return double(gradient[i]) * double(gradient[i]); });
}

template <class T>
void run(const AdamW& op, const KernelCall<T>& call) {
  adamw(kTeam, op, gradient_scale(in<double>(call, 1), op.clip), call.context.step, in<T>(call, 0),
        out<T>(call, 0), out<T>(call, 1), out<T>(call, 2));
}

template <class T>
void run(const Sgd& op, const KernelCall<T>& call) {
  sgd(kTeam, op, gradient_scale(in<double>(call, 1), op.clip), in<T>(call, 0), out<T>(call, 0));
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
    .matmul_fp32 = builtin_matmul<float>,
    .matmul_fp64 = builtin_matmul<double>,
    .multiply_add_fp32 = multiply_add<float>,
    .multiply_add_fp64 = multiply_add<double>,
};

}  // namespace mb
