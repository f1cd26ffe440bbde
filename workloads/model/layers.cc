#include "workloads/model/layers.h"

#include <optional>
#include <utility>
#include <variant>

#include "workloads/base/error.h"
#include "workloads/base/mutation.h"
#include "workloads/model/attention_part.h"
#include "workloads/model/expert_part.h"
#include "workloads/model/mlp_part.h"

namespace mb {
namespace {

// One MLP or many.
class FeedForward {
 public:
  FeedForward(BlockWriter& w, const std::string& layer)
      : part_(w.model().experts > 1 ? Part(std::in_place_type<ExpertPart>, w, layer)
                                    : Part(std::in_place_type<MlpPart>, w, layer)) {}
  int forward(BlockWriter& w, int x) {
    return std::visit([&](auto& part) { return part.forward(w, x); }, part_);
  }
  void backward(BlockWriter& w, int dy, int x, int dx) const {
    std::visit([&](const auto& part) { part.backward(w, dy, x, dx); }, part_);
  }
  int bias() const {  // added with the residual; -1: there is none
    const auto* mlp = std::get_if<MlpPart>(&part_);
    return mlp ? mlp->down_bias : -1;
  }

 private:
  using Part = std::variant<MlpPart, ExpertPart>;
  Part part_;
};

// y = dropout(a (+ bias)) + b
void add(BlockWriter& w, StepList list, const char* site, int a, int b, int bias, int y,
         const Dropout& dropout = {}) {
  std::vector<int> reads = {a, b};
  if (bias >= 0) reads.push_back(bias);
  Add op{.rows = w.share(), .n = w.model().hidden, .bias = bias >= 0, .dropout = dropout};
  if (dropout.probability > 0) {
    op.batch = w.shape().batch;
    op.sequence = w.model().sequence;
    op.split = w.share_split();
  }
  w.step(list, site, op, std::move(reads), {y});
}

}  // namespace

Op accumulating(Op op) {
  std::visit(
      [](auto& kind) {
        if constexpr (requires { kind.accumulate; }) kind.accumulate = true;
      },
      op.kind);
  return op;
}

Block embedding_block(const ModelConfig& model, const BlockShape& shape) {
  BlockWriter w(model, shape, "embedding");
  const std::int64_t padded = padded_vocabulary(model, shape.ways), local = padded / shape.ways;
  const int table = w.parameter({.name = "embedding.weight",
                                 .rows = model.vocabulary,
                                 .columns = model.hidden,
                                 .split = Split::rows,
                                 .padded_rows = padded,
                                 .init_std = model.init_std,
                                 .decay = true});
  int positions = -1;
  if (model.arch == Arch::gpt) {
    positions = w.parameter({.name = "position.weight",
                             .rows = model.sequence,
                             .columns = model.hidden,
                             .init_std = model.init_std,
                             .decay = true,
                             .partial_gradient = shape.row_ways() > 1});
  }
  const int tokens = w.indices("tokens", Role::tokens, w.rows());
  const int y = w.tensor("embedding", Role::output, w.share_elements());
  const int dy = w.tensor("d.embedding", Role::d_output, w.share_elements());
  const Dropout dropout = w.dropout("embedding");

  const int partial = w.partial_of(y);
  w.forward("embedding", Embedding{w.rows(), model.hidden, local}, {tokens, table}, {partial});
  w.sum_rows(kForward, "embedding", partial, y);
  if (positions >= 0)
    w.forward("position", AddPositions{shape.batch, model.sequence, model.hidden, w.share_split()},
              {positions, y}, {y});
  if (dropout.probability > 0)
    w.forward(
        "embedding.dropout",
        DropoutRows{w.share(), model.hidden, dropout, shape.batch, model.sequence, w.share_split()},
        {y}, {y});

  const int dx = w.through_dropout("embedding.dropout", dropout, dy);
  if (positions >= 0)
    w.backward_to(
        "position",
        PositionGradient{shape.batch, model.sequence, model.hidden, false, w.share_split()}, {dx},
        {}, {positions});
  w.backward_to("embedding", EmbeddingGradient{w.rows(), model.hidden, local},
                {tokens, w.gather_rows(kBackward, "embedding", dx, true)}, {}, {table});
  return w.take();
}

Block layer_block(const ModelConfig& model, const BlockShape& shape, int layer) {
  BlockWriter w(model, shape, "layer");
  const std::string name = cat("layers.", layer);
  const bool pre = model.norm == NormPlace::pre;
  const std::int64_t elements = w.share_elements();
  // Parameters in the order of the forward, so that the backward finishes them from the last to the
  // first.
  NormSite norm1(w, "norm1", name + ".norm1");
  AttentionPart attention(w, name);
  NormSite norm2(w, "norm2", name + ".norm2");
  FeedForward mlp(w, name);
  const Dropout drop1 = w.dropout(name + ".attention.residual"),
                drop2 = w.dropout(name + ".mlp.residual");

  const int x = w.tensor("x", Role::input, elements), y = w.tensor("y", Role::output, elements);
  const int dy = w.tensor("dy", Role::d_output, elements),
            dx = w.tensor("dx", Role::d_input, elements);
  if (pre) {
    const int n1 = w.tensor("norm1", Role::activation, elements),
              x1 = w.tensor("x1", Role::activation, elements);
    const int n2 = w.tensor("norm2", Role::activation, elements);
    norm1.forward(w, x, n1);
    add(w, kForward, "attention.residual", attention.forward(w, n1), x, attention.out_bias, x1,
        drop1);
    norm2.forward(w, x1, n2);
    add(w, kForward, "mlp.residual", mlp.forward(w, n2), x1, mlp.bias(), y, drop2);

    const int dn2 = w.tensor("d.norm2", Role::temporary, elements),
              dx1 = w.tensor("d.x1", Role::temporary, elements);
    const int dn1 = w.tensor("d.norm1", Role::temporary, elements);
    mlp.backward(w, w.through_dropout("mlp.residual", drop2, dy), n2, dn2);
    norm2.backward(w, dn2, x1, dy, dx1);
    attention.backward(w, w.through_dropout("attention.residual", drop1, dx1), n1, dn1);
    norm1.backward(w, dn1, x, dx1, dx);
  } else {
    const int r1 = w.tensor("r1", Role::activation, elements),
              x1 = w.tensor("norm1", Role::activation, elements);
    const int r2 = w.tensor("r2", Role::activation, elements);
    add(w, kForward, "attention.residual", attention.forward(w, x), x, attention.out_bias, r1,
        drop1);
    norm1.forward(w, r1, x1);
    add(w, kForward, "mlp.residual", mlp.forward(w, x1), x1, mlp.bias(), r2, drop2);
    norm2.forward(w, r2, y);

    const int dr2 = w.tensor("d.r2", Role::temporary, elements),
              dm = w.tensor("d.mlp", Role::temporary, elements);
    const int dx1 = w.tensor("d.norm1", Role::temporary, elements),
              dr1 = w.tensor("d.r1", Role::temporary, elements);
    const int da = w.tensor("d.attention", Role::temporary, elements);
    norm2.backward(w, dy, r2, -1, dr2);
    mlp.backward(w, w.through_dropout("mlp.residual", drop2, dr2), x1, dm);
    add(w, kBackward, "mlp.residual", dm, dr2, -1, dx1);
    norm1.backward(w, dx1, r1, -1, dr1);
    attention.backward(w, w.through_dropout("attention.residual", drop1, dr1), x, da);
    add(w, kBackward, "attention.residual", da, dr1, -1, dx);
  }
  return w.take();
}

Block head_block(const ModelConfig& model, const BlockShape& shape) {
  BlockWriter w(model, shape, "head");
  const std::int64_t padded = padded_vocabulary(model, shape.ways), local = padded / shape.ways;
  const std::int64_t elements = w.share_elements(), rows = w.rows();
  const bool pre = model.norm == NormPlace::pre;
  const int x = w.tensor("x", Role::input, elements), dx = w.tensor("dx", Role::d_input, elements);
  const int labels = w.indices("labels", Role::labels, rows), scalars = w.scalars();
  int n = x, dn = dx;
  std::optional<NormSite> norm;
  if (pre) {
    norm.emplace(w, "final_norm", "final_norm");
    n = w.tensor("final_norm", Role::activation, elements);
    dn = w.tensor("d.final_norm", Role::temporary, elements);
  }
  Linear head{rows, model.hidden, local,
              w.parameter({.name = model.tied ? "embedding.weight" : "head.weight",
                           .rows = model.vocabulary,
                           .columns = model.hidden,
                           .split = Split::rows,
                           .padded_rows = padded,
                           .init_std = model.init_std,
                           .decay = true})};
  const int logits = w.tensor("logits", Role::activation, rows * local);
  const int maximum = w.statistic("loss.max", Role::activation, rows),
            sums = w.statistic("loss.sums", Role::activation, 2 * rows);

  if (norm) norm->forward(w, x, n);
  head.forward(w, "head", w.gather_rows(kForward, "head", n), logits);
  w.forward("loss.max", VocabularyMax{rows, local, model.vocabulary}, {logits}, {maximum});
  w.exchange(kForward, "loss.max", {Exchange::Kind::maximum}, {maximum}, maximum);
  w.forward("loss.sums", VocabularySums{rows, local, model.vocabulary}, {logits, labels, maximum},
            {sums});
  if (!mutated("loss_of_a_slice")) w.sum(kForward, "loss.sums", sums);
  w.forward("loss", CrossEntropy{rows}, {labels, sums, scalars}, {scalars});

  w.backward("loss", CrossEntropyGradient{rows, local, model.vocabulary},
             {labels, maximum, sums, scalars, logits}, {logits});
  const int n_all = w.gather_rows(kBackward, "head", n, true);
  const int partial = w.partial_of(dn);
  head.input_gradient(w, "head", logits, partial);
  w.sum_rows(kBackward, "head", partial, dn);
  head.weight_gradient(w, "head", logits, n_all);
  if (norm) norm->backward(w, dn, x, -1, dx);
  return w.take();
}

}  // namespace mb
