#include "parallel/cost/eager_kernels.h"

namespace mb {
namespace {

// Sizes of attention over whole sequences, forward or backward.
struct Scores {
  double batch;                 // batch * heads
  double rows, head_dim, keys;  // batch * heads * sequence, ..., sequence
  double heads_of_kv;           // of keys and values, as a share of the queries'
  double size;                  // of an element
  double matrix() const { return rows * keys * size; }
  double vectors() const { return rows * head_dim * size; }
};

Scores scores_of(const auto& op, DType dtype) {
  const auto of = [](auto n) { return static_cast<double>(n); };
  return {.batch = of(op.batch) * of(op.heads),
          .rows = of(op.batch) * of(op.heads) * of(op.sequence),
          .head_dim = of(op.head_dim),
          .keys = of(op.sequence),
          .heads_of_kv = of(op.kv_heads) / of(op.heads),
          .size = of(size_of(dtype))};
}

Kernel product_of(const Scores& s, double n, double k) {
  return {Kernel::Unit::matmul,
          2 * s.rows * s.keys * s.head_dim,
          s.matrix() + s.vectors() * (1 + s.heads_of_kv),
          {s.batch, s.keys, n, k}};
}
Kernel scores_of(const Scores& s) { return product_of(s, s.keys, s.head_dim); }
Kernel weighed_by(const Scores& s) { return product_of(s, s.head_dim, s.keys); }
Kernel pass_over(double bytes) { return {Kernel::Unit::memory, 0, bytes}; }

// Softmax with scale and mask. Megatron-LM's kernel takes four rows of batch * heads at a time;
// where they do not divide, PyTorch's own operations run, in fp32: cast, scale, mask, softmax,
// cast.
void add_softmax(std::vector<Kernel>& kernels, const auto& op, const Scores& s, double passes) {
  if (op.batch * op.heads % 4 == 0) return kernels.push_back(pass_over(passes * s.matrix()));
  const double wide = s.rows * s.keys * sizeof(float);
  kernels.push_back(pass_over(s.matrix() + wide));
  for (int k = 0; k < 2; ++k) kernels.push_back(pass_over(2 * wide));
  kernels.push_back(pass_over(passes * wide));
  kernels.push_back(pass_over(s.matrix() + wide));
}

// Megatron-LM's CoreAttention of 2021 and 2022: scores, softmax with scale and mask, dropout with a
// mask of a byte, product with the values, transposition of what comes out.
std::vector<Kernel> unfused(const Attention& op, DType dtype) {
  const Scores s = scores_of(op, dtype);
  std::vector<Kernel> kernels = {scores_of(s)};
  add_softmax(kernels, op, s, 2);
  if (op.dropout.probability > 0) kernels.push_back(pass_over(s.matrix() * (2 + 1 / s.size)));
  kernels.push_back(weighed_by(s));
  kernels.push_back(pass_over(2 * s.vectors()));
  return kernels;
}
std::vector<Kernel> unfused(const AttentionGradient& op, DType dtype) {
  const Scores s = scores_of(op, dtype);
  std::vector<Kernel> kernels = {pass_over(2 * s.vectors()), weighed_by(s), scores_of(s)};
  if (op.dropout.probability > 0) kernels.push_back(pass_over(s.matrix() * (2 + 1 / s.size)));
  add_softmax(kernels, op, s, 3);
  kernels.push_back(weighed_by(s));
  kernels.push_back(weighed_by(s));
  kernels.push_back(pass_over(2 * s.vectors() * (1 + 2 * s.heads_of_kv)));
  return kernels;
}

double product(auto... sizes) { return (1.0 * ... * static_cast<double>(sizes)); }

// Adds a gradient of `n` elements to what is kept in main_dtype.
Kernel add_to_main(double n, DType dtype) {
  return pass_over(n * static_cast<double>(size_of(dtype) + 2 * size_of(main_dtype(dtype))));
}

// Of a norm by apex: the parameters' gradients from both inputs, in two steps of which the second
// is small, the input's, and the sum with the residual's.
std::vector<Kernel> eager(const NormGradient& op, DType dtype) {
  const double rows = product(op.rows, op.n, size_of(dtype));
  const double columns = product(op.n, size_of(main_dtype(dtype)));
  std::vector<Kernel> kernels = {pass_over(2 * rows), pass_over(2 * columns), pass_over(3 * rows)};
  if (op.residual) kernels.push_back(pass_over(3 * rows));
  const int vectors = op.kind == NormKind::layer ? 2 : 1;
  for (int v = 0; v < vectors; ++v) kernels.push_back(add_to_main(product(op.n), dtype));
  return kernels;
}
// A weight's gradient is a product by itself, then added to what is there.
std::vector<Kernel> eager(const Matmul& op, DType dtype) {
  if (!op.to_main) return {};
  const double size = static_cast<double>(size_of(dtype)), c = product(op.m, op.n);
  return {{Kernel::Unit::matmul, 2 * c * static_cast<double>(op.k),
           size * (product(op.m, op.k) + product(op.k, op.n) + c), product_of(op)},
          add_to_main(c, dtype)};
}
std::vector<Kernel> eager(const BiasGradient& op, DType dtype) {
  return {pass_over(product(op.rows, op.n, size_of(dtype))), add_to_main(product(op.n), dtype)};
}
// All of a table's gradient is cleared, takes the rows that tokens name, and is added to what is
// there.
std::vector<Kernel> eager(const EmbeddingGradient& op, DType dtype) {
  const auto size = static_cast<double>(size_of(dtype));
  const double table = product(op.vocabulary, op.n);
  return {pass_over(size * table), pass_over(3 * size * product(op.rows, op.n)),
          add_to_main(table, dtype)};
}
// Dropout keeps its mask, a byte for each element.
std::vector<Kernel> eager(const Add& op, DType dtype) {
  const double mask = op.dropout.probability > 0 ? 1 : 0;
  return {pass_over(product(op.rows, op.n) * (3 * static_cast<double>(size_of(dtype)) + mask))};
}
std::vector<Kernel> eager(const DropoutRows& op, DType dtype) {
  return {pass_over(product(op.rows, op.n) * (2 * static_cast<double>(size_of(dtype)) + 1))};
}
// The loss over a divided vocabulary: logits to fp32, maximum, difference, exponential, sum,
// quotient; the gradient scales the quotient and rounds it.
std::vector<Kernel> eager(const VocabularyMax& op, DType dtype) {
  const double n = product(op.rows, op.n), size = static_cast<double>(size_of(dtype));
  return {pass_over(n * (size + 4)), pass_over(4 * n)};
}
std::vector<Kernel> eager(const VocabularySums& op, DType) {
  const double n = product(op.rows, op.n);
  return {pass_over(8 * n), pass_over(8 * n), pass_over(4 * n), pass_over(8 * n)};
}
std::vector<Kernel> eager(const CrossEntropyGradient& op, DType dtype) {
  const double n = product(op.rows, op.n), size = static_cast<double>(size_of(dtype));
  return {pass_over(8 * n), pass_over(n * (size + 4))};
}
std::vector<Kernel> eager(const auto&, DType) { return {}; }

}  // namespace

bool is_attention(const Op& op) {
  return std::holds_alternative<Attention>(op.kind) ||
         std::holds_alternative<AttentionGradient>(op.kind);
}

std::vector<Kernel> unfused_attention(const Op& op) {
  if (const auto* forward = std::get_if<Attention>(&op.kind)) return unfused(*forward, op.dtype);
  return unfused(std::get<AttentionGradient>(op.kind), op.dtype);
}

std::vector<Kernel> eager_kernels(const Op& op) {
  return std::visit([&](const auto& kind) { return eager(kind, op.dtype); }, op.kind);
}

}  // namespace mb
