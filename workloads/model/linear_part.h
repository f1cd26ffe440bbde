// Linear layers and norms of a block, with what surrounds them on tensor ranks. Part of layers.cc.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "workloads/model/block_writer.h"

namespace mb {

// y = x w^T (+ bias), and its two gradients.
struct Linear {
  std::int64_t rows, in, out;
  int weight, bias = -1;

  void forward(BlockWriter& w, const char* site, int x, int y) const {
    std::vector<int> reads = {x, weight};
    if (bias >= 0) reads.push_back(bias);
    w.forward(site, Matmul{.m = rows, .n = out, .k = in, .transpose_b = true, .bias = bias >= 0},
              std::move(reads), {y});
  }
  // Likewise of all rows, x being of the rows between divided parts.
  void forward_of_share(BlockWriter& w, const char* site, int x, int y) const {
    const std::int64_t parts = w.shape().row_ways() > 1 ? w.shape().tensor_chunks : 1;
    if (parts == 1) return forward(w, site, w.gather_rows(kForward, site, x), y);
    const std::int64_t part = w.share() / parts;
    const Linear run{part, in, out, weight, bias};
    for (std::int64_t p = 0; p < parts; ++p) {
      const int all = w.gather_rows(kForward, site, w.view(x, p * part * in, part * in));
      for (std::int64_t rank = 0; rank < w.ways(); ++rank)
        run.forward(w, site, w.view(all, rank * part * in, part * in),
                    w.view(y, (rank * w.share() + p * part) * out, part * out));
    }
  }
  // The sum over tensor ranks of y = x w^T, or of dx = dy w, to the rows between divided parts.
  void forward_to_share(BlockWriter& w, const char* site, int x, int y) const {
    to_share(w, kForward, site, {in, x}, {out, y},
             [&](const Linear& run, int from, int to) { run.forward(w, site, from, to); });
  }
  void input_gradient_to_share(BlockWriter& w, const char* site, int dy, int dx) const {
    to_share(w, kBackward, site, {out, dy}, {in, dx},
             [&](const Linear& run, int from, int to) { run.input_gradient(w, site, from, to); });
  }
  void input_gradient(BlockWriter& w, const char* site, int dy, int dx) const {
    w.backward(site, Matmul{.m = rows, .n = in, .k = out}, {dy, weight}, {dx});
  }
  void weight_gradient(BlockWriter& w, const char* site, int dy, int x) const {
    w.backward_to(site, Matmul{.m = out, .n = in, .k = rows, .transpose_a = true, .to_main = true},
                  {dy, x}, {}, {weight});
    if (bias >= 0) w.backward_to(site, BiasGradient{rows, out}, {dy}, {}, {bias});
  }

 private:
  struct Matrix {
    std::int64_t columns;
    int tensor;
  };
  template <class Product>
  void to_share(BlockWriter& w, StepList list, const char* site, Matrix from, Matrix to,
                Product product) const {
    const std::int64_t parts = w.ways() > 1 ? w.shape().tensor_chunks : 1;
    if (parts == 1) {
      const int partial = w.partial_of(to.tensor);
      product(*this, from.tensor, partial);
      w.sum_rows(list, site, partial, to.tensor);
      return;
    }
    const std::int64_t part = w.share() / parts, ranks = w.shape().row_ways();
    const Linear run{part, in, out, weight, bias};
    const auto rows_of = [&](const Matrix& matrix, std::int64_t row) {
      return w.view(matrix.tensor, row * matrix.columns, part * matrix.columns);
    };
    for (std::int64_t p = 0; p < parts; ++p) {
      const Matrix partial{
          to.columns, w.tensor(cat(site, ".partial"), Role::temporary, ranks * part * to.columns)};
      for (std::int64_t rank = 0; rank < ranks; ++rank)
        product(run, rows_of(from, rank * w.share() + p * part), rows_of(partial, rank * part));
      w.exchange(list, site, {ranks > 1 ? Exchange::Kind::scatter : Exchange::Kind::sum},
                 {partial.tensor}, rows_of(to, p * part));
    }
  }
};

struct NormSite {
  int weight, bias = -1, rstd = -1, mean = -1;
  const char* site;

  NormSite(BlockWriter& w, const char* site, const std::string& name) : site(site) {
    weight = w.shared_vector(name + ".weight", w.model().hidden, Init::ones);
    if (kind(w) == NormKind::layer)
      bias = w.shared_vector(name + ".bias", w.model().hidden, Init::zeros);
  }
  static NormKind kind(const BlockWriter& w) {
    return w.model().arch == Arch::gpt ? NormKind::layer : NormKind::rms;
  }

  void forward(BlockWriter& w, int x, int y) {
    std::vector<int> reads = {x, weight}, writes = {y};
    rstd = w.statistic(std::string(site) + ".rstd", Role::activation, w.share());
    writes.push_back(rstd);
    if (bias >= 0) {
      reads.push_back(bias);
      mean = w.statistic(std::string(site) + ".mean", Role::activation, w.share());
      writes.push_back(mean);
    }
    w.forward(site, Norm{kind(w), w.share(), w.model().hidden, w.model().norm_epsilon}, reads,
              writes);
  }
  // dx = gradient through the norm, plus `residual` if it is a tensor.
  void backward(BlockWriter& w, int dy, int x, int residual, int dx) const {
    std::vector<int> reads = {dy, x, weight, rstd}, parameters = {weight};
    if (mean >= 0) reads.push_back(mean), parameters.push_back(bias);
    if (residual >= 0) reads.push_back(residual);
    w.backward_to(site, NormGradient{kind(w), w.share(), w.model().hidden, residual >= 0}, reads,
                  {dx}, parameters);
  }
};

}  // namespace mb
