#include "bench/choose/step_form.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "parallel/exec/predict.h"
#include "parallel/schedule/closed_form.h"

namespace mb {
namespace {

// ZeRO-2 and 3 hold a layer up until what travels beside it is there.
double beside(double own, double travels, bool overlaps) {
  return overlaps ? std::max(own, travels) : own + travels;
}

// 1F1B: a micro-batch through all ranks, and a round of the slowest cycle for each other one. Ranks
// k to l of a cycle have l - k + 1 micro-batches on their way, and the hops between them both ways.
double one_f_one_b_s(double sum, double most, int ranks, int micro_batches, double hops_s) {
  const double cycle = std::max(most, (sum + hops_s) / ranks);
  const double settled = std::max(0, micro_batches - ranks);
  return sum + hops_s + (micro_batches - 1 - settled) * most + settled * cycle;
}

// Of all other schedules: their closed form for equal ranks. Zero-bubble V's is for F = I = W.
double idle_s(const std::string& schedule, const PipelineShape& shape, const PassSeconds& mean,
              bool split) {
  if (schedule == "zb-v") {
    const double each = (mean.forward + mean.input_grad + mean.weight_grad) / 3;
    return idle_closed_form(schedule, shape, each, each, each).value_or(0);
  }
  return idle_closed_form(schedule, shape, mean.forward, split ? mean.input_grad : mean.backward,
                          mean.weight_grad)
      .value_or(0);
}

}  // namespace

StepForm::StepForm(StepParts& parts, const StepOptions& options)
    : parts_(parts),
      options_(options),
      pipeline_(parts.pipeline(options)),
      block_(parts.block(options, pipeline_.split)),
      data_(parts.data(options, pipeline_)) {
  if (options.offload_activations) layer_copies_s_ = parts.layer_copies_s(options);
  if (pipeline_.shape.ranks == 1) return;
  const Mesh& mesh = parts.mesh();
  const std::int64_t rows = options.micro_batch * parts.model().sequence / mesh.size(Axis::cp) /
                            (options.sequence_parallel ? mesh.size(Axis::tp) : 1);
  hops_ = &parts.hops(rows * parts.model().hidden * size_of(options.dtype),
                      parts_of_message(mesh, parts.stack(), options.sequence_parallel));
}

PassSeconds StepForm::layer(const RankData& d) const {
  PassSeconds s = block_.layer;
  if (options_.zero < 2) return s;
  const double gather = options_.zero == 3 && options_.reshard ? d.layer_gather_s : 0;
  const bool ahead = options_.overlap.gather, summed = options_.overlap.reduce;
  s.forward = beside(s.forward, gather, ahead);
  s.input_grad = beside(s.input_grad, gather, ahead);
  s.weight_grad = beside(s.weight_grad, d.layer_reduce_s, summed);
  s.backward = ahead && summed
                   ? std::max(s.backward, gather + d.layer_reduce_s)
                   : beside(beside(s.backward, gather, ahead), d.layer_reduce_s, summed);
  return s;
}

PassSeconds StepForm::chunk(int rank, int chunk, const PassSeconds& layer) const {
  const RankLayout& layout = pipeline_.ranks[rank];
  PassSeconds s = static_cast<double>(layout.layers[chunk]) * layer;
  if (layout.embedding == chunk) s += block_.embedding;
  if (layout.head == chunk) s += block_.head;
  if (options_.zero >= 2) travel(s, *data_[rank], layout, chunk);
  return s;
}

PassSeconds StepForm::rank(int rank) const {
  const PassSeconds one = layer(*data_[rank]);
  PassSeconds s;
  for (int c = 0; c < pipeline_.shape.chunks; ++c) s += chunk(rank, c, one);
  return s;
}

// A chunk takes at least what its gathers and sums take one after the other; adding the sums of a
// micro-batch to those before comes on top.
void StepForm::travel(PassSeconds& s, const RankData& d, const RankLayout& layout,
                      int chunk) const {
  const int layers = layout.layers[chunk];
  const int ends = (layout.embedding >= 0) + (layout.head >= 0);
  const double share =
      ends == 0 ? 0 : 1.0 * ((layout.embedding == chunk) + (layout.head == chunk)) / ends;
  const double gather = options_.zero == 3 && options_.reshard
                            ? layers * d.layer_gather_s + share * d.ends_gather_s
                            : 0;
  const double reduce = layers * d.layer_reduce_s + share * d.ends_reduce_s;
  s.forward = std::max(s.forward, gather);
  s.input_grad = std::max(s.input_grad, gather);
  s.weight_grad = std::max(s.weight_grad, reduce);
  s.backward = std::max(s.backward, gather + reduce);
  const double add = d.add_s * layers / std::max(1, layout.all);
  s.backward += add;
  s.weight_grad += add;
}

bool StepForm::gathers_once() const {
  return options_.zero == 1 || options_.zero == 2 || (options_.zero == 3 && !options_.reshard);
}

// What a rank's copies of offloaded activations take, one after the other.
double StepForm::copies_s(int rank) const {
  return options_.micro_batches * pipeline_.ranks[rank].all * layer_copies_s_;
}

// Of a micro-batch on a rank, at least.
double StepForm::work_s(const PassSeconds& s) const {
  if (!pipeline_.split) return s.forward + s.backward;
  const double halves = s.input_grad + s.weight_grad;
  return s.forward + (options_.schedule == "dualpipe-v" ? std::min(halves, s.backward) : halves);
}

// What the first forward of a rank waits for, beside its own layers.
double StepForm::start_s(int rank, double forward) const {
  const RankData& d = *data_[rank];
  if (!gathers_once()) return d.first_gather_s;
  const double one = forward / std::max(1, pipeline_.ranks[rank].all);
  if (!options_.overlap.gather) return options_.zero == 3 ? d.gather_s : 0;
  return std::max(d.first_gather_s, d.gather_s + one - forward);
}

// From the end of a rank's last slot to the end of its sums of gradients.
double StepForm::exposed_s(int rank, const PassSeconds& own) const {
  const RankData& d = *data_[rank];
  // With ZeRO-2 and 3 the backward holds the sums that it waits for.
  const double held = options_.zero >= 2 ? d.reduce_s - d.last_reduce_s : 0;
  const double sums = d.reduce_s - held + d.replicas_s;
  if (!options_.overlap.reduce) return sums + d.end_sums_s;
  const RankLayout& layout = pipeline_.ranks[rank];
  const double share = 1.0 * (layout.all - 1) / std::max(1, layout.all);
  // Halves of the last chunk's backward follow each other, those of others have time.
  const int chunks = pipeline_.shape.chunks;
  const double window =
      share *
      (pipeline_.split ? own.weight_grad + own.input_grad * (chunks - 1) / chunks : own.backward);
  return std::max(d.last_reduce_s + d.last_replicas_s, sums - std::max(0.0, window - held)) +
         d.end_sums_s;
}

double StepForm::update_s(int rank) const {
  const RankData& d = *data_[rank];
  const bool after = !options_.overlap.gather && options_.zero > 0 && options_.zero < 3;
  return d.update_s + (after ? d.gather_s : 0);
}

// From when each rank has ended its slots.
template <class EndOf>
double StepForm::finish(EndOf&& end_of) const {
  double summed = 0, update = 0;
  for (int r = 0; r < pipeline_.shape.ranks; ++r) {
    summed = std::max(summed, end_of(r) + data_[r]->norm_s);
    update = std::max(update, update_s(r));
  }
  return summed + parts_.world_sum_s() + update;
}

double StepForm::formula_s() const {
  const int ranks = pipeline_.shape.ranks, m = options_.micro_batches;
  PassSeconds sum, own;
  double all = 0, most = 0, start = 0, exposed = 0, own_work = 0, own_exposed = 0;
  for (int r = 0; r < ranks; ++r) {
    // Most ranks between the ends are alike.
    if (!pipeline_.ranks[r].as_before || data_[r] != data_[r - 1]) {
      own = rank(r);
      own_work = work_s(own);
      own_exposed = exposed_s(r, own);
    }
    sum += own;
    all += own_work;
    most = std::max(most, own_work);
    // Ranks behind the first have ended a backward earlier.
    exposed = std::max(exposed, own_exposed - (r == 0 ? 0 : own.backward));
    if (r == 0) start = start_s(r, own.forward);
  }
  double hops_s = 0;  // from the first rank to the last and back
  for (int r = 0; r + 1 < ranks; ++r) hops_s += hops_->next[r] + hops_->before[r + 1];
  double work = m * most;
  if (ranks > 1 && options_.schedule == "1f1b") {
    work = one_f_one_b_s(all, most, ranks, m, hops_s);
  } else if (ranks > 1) {
    PipelineShape shape = pipeline_.shape;
    shape.micro_batches = m;
    work += idle_s(options_.schedule, shape, 1.0 / ranks * sum, pipeline_.split) + hops_s;
  }
  if (!options_.overlap.sends && ranks > 1) work += m * hops_s / (ranks - 1);
  for (int r = 0; r < ranks; ++r) work = std::max(work, copies_s(r));
  return finish([&](int) { return start + work + exposed; });
}

double StepForm::walk_s(int micro_batches) const {
  const int ranks = pipeline_.shape.ranks;
  std::vector<RankSlots> work(ranks);
  std::vector<PassSeconds> own(ranks);
  for (int r = 0; r < ranks; ++r) {
    const PassSeconds one = layer(*data_[r]);
    double before = 0;
    const RankData& d = *data_[r];
    const int layers = std::max(1, pipeline_.ranks[r].all);
    for (int c = 0; c < pipeline_.shape.chunks; ++c) {
      work[r].chunks.push_back(chunk(r, c, one));
      own[r] += work[r].chunks.back();
      before += d.gather_s * pipeline_.ranks[r].layers[c] / layers;
      const bool waits = gathers_once() && options_.overlap.gather;
      work[r].first_forward_s.push_back(waits ? before + one.forward : 0);
    }
    work[r].first_forward_s[0] = std::max(work[r].first_forward_s[0],
                                          start_s(r, own[r].forward) + work[r].chunks[0].forward);
  }
  static const MeshLinks::Hops kNone{{0}, {0}};
  const SlotOrder& order = parts_.order(pipeline_, options_, micro_batches);
  const std::vector<double> ends = slot_ends(order.slots, pipeline_.placement, work,
                                             hops_ ? *hops_ : kNone, !options_.overlap.sends);
  return finish([&](int r) { return std::max(ends[r], copies_s(r)) + exposed_s(r, own[r]); });
}

double StepForm::walked_s() const {
  const Rounds rounds = rounds_of(parts_.mesh(), options_);
  const double all = walk_s(rounds.walked);
  if (rounds.walked == options_.micro_batches) return all;
  const double before = walk_s(rounds.walked - rounds.round);
  return all + (all - before) * (options_.micro_batches - rounds.walked) / rounds.round;
}

double StepForm::memory_bytes() const {
  const SlotOrder& order =
      parts_.order(pipeline_, options_, rounds_of(parts_.mesh(), options_).walked);
  double most = 0;
  const BlockBytes& b = block_.bytes;
  for (int r = 0; r < pipeline_.shape.ranks; ++r) {
    const RankLayout& layout = pipeline_.ranks[r];
    const double chunks = pipeline_.shape.chunks;
    const double layers = layout.all / chunks;  // of a chunk
    // With offload two layers are on the device, whatever is in flight.
    const double kept = options_.offload_activations ? 0 : static_cast<double>(b.layer) * layers;
    const double pending = static_cast<double>(b.layer_pending) * layers;
    double activations = 0;
    for (const InFlight& f : order.in_flight[r])
      activations = std::max(activations, f.whole * kept + f.pending * pending);
    if (options_.offload_activations) activations += 2.0 * static_cast<double>(b.layer);
    if (layout.embedding >= 0) activations += static_cast<double>(b.embedding);
    const auto work = layout.head >= 0 ? std::max(b.layer_work, b.head_work) : b.layer_work;
    const RankData& d = *data_[r];
    activations += static_cast<double>(d.moving_bytes + work);
    // The update comes when activations are gone.
    most = std::max(most, static_cast<double>(d.state_bytes) +
                              std::max(activations, static_cast<double>(d.staged_bytes)));
  }
  constexpr double kSegment = 2 << 20;
  return most + static_cast<double>(fragmentation_of(std::llround(most), parts_.stack())) +
         kSegment + static_cast<double>(library_bytes(parts_.mesh(), parts_.machine())) +
         1e9 * parts_.machine().context_gb;
}

}  // namespace mb
