#include "bench/analysis/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bench/analysis/traffic.h"
#include "parallel/strategy/layout.h"
#include "parallel/strategy/step.h"
#include "tests/bench/synthetic.h"
#include "workloads/base/error.h"
#include "workloads/model/data.h"

namespace mb {
namespace {

using Kind = CollectiveKind;

constexpr Group kTensor = group_of(Axis::tp), kContext = group_of(Axis::cp),
                kData = group_of(Axis::dp), kPipeline = group_of(Axis::pp);

std::string text(const Traffic& traffic) {
  std::string all;
  for (const auto& [key, count] : traffic)
    all += cat(name_of(key.group), ", ", name_of(key.site), ", ", kind_name(key), ": ", count.calls,
               " calls, ", count.elements, " elements, ", count.bytes, " bytes\n");
  return all;
}

// A number in mixed radix whose digits choose options.
class Digits {
 public:
  explicit Digits(std::uint64_t number) : number_(number) {}
  template <class T>
  T one_of(const std::vector<T>& choices) {
    const T choice = choices[number_ % choices.size()];
    number_ /= choices.size();
    return choice;
  }
  bool flag() { return one_of<int>({0, 1}) != 0; }

 private:
  std::uint64_t number_;
};

ModelConfig model_of(Digits& digits) {
  ModelConfig model =
      find_model(digits.one_of<const char*>({"gpt-tiny", "llama-tiny", "moe-tiny"}));
  set_field(model, "layers", "6");
  model.tied = digits.flag();
  model.norm = digits.one_of<NormPlace>({NormPlace::pre, NormPlace::pre, NormPlace::post});
  if (model.experts > 1) model.capacity_factor = digits.one_of<double>({0, 1.25});
  return model;
}

StepOptions options_of(Digits& digits, int ranks) {
  StepOptions o;
  o.schedule = digits.one_of<const char*>(
      {"1f1b", "zb-v", "interleaved", "gpipe", "zb-h1", "interleaved-zb", "dualpipe-v"});
  o.micro_batches = digits.one_of<int>({ranks, 2 * ranks, ranks + 1, std::max(1, ranks - 1)});
  o.micro_batch = digits.one_of<int>({1, 2});
  o.dtype = digits.one_of<DType>({DType::fp32, DType::bf16, DType::fp64});
  o.zero = digits.one_of<int>({3, 0, 1, 2});
  o.reshard = digits.flag();
  o.sequence_parallel = digits.flag();
  o.tensor_chunks = digits.one_of<int>({1, 2});
  o.context = digits.one_of<ContextKind>({ContextKind::ring, ContextKind::ulysses});
  o.recompute = digits.one_of<Recompute>({Recompute::none, Recompute::full, Recompute::attention});
  o.recompute_layers = digits.one_of<IntRange>({{}, {1, 3}});
  o.recompute_micro_batches = digits.one_of<IntRange>({{}, {0, 0}, {1, 5}});
  o.reduce_in_dtype = digits.flag();
  o.bucket_bytes = digits.one_of<std::int64_t>({25 << 20, 20000, 1});
  o.overlap.reduce = digits.flag();
  o.overlap.gather = digits.flag();
  o.overlap.sends = digits.flag();
  o.offload_optimizer = digits.flag();
  o.offload_activations = digits.flag();
  o.dropout = digits.one_of<double>({0, 0.1});
  o.optimizer.kind = digits.one_of<Optimizer>({Optimizer::adamw, Optimizer::sgd});
  return o;
}

// As uneven as may be: the first stage has the embedding alone.
void set_uneven_layout(StepShape& shape) {
  const int stages = static_cast<int>(stage_layers(shape.model, shape.mesh, shape.options).size());
  if (stages == 1) return;
  shape.options.layout.assign(stages, 1);
  shape.options.layout.front() = 0;
  shape.options.layout.back() = static_cast<int>(shape.model.layers) - (stages - 2);
}

StepShape shape_of(const char* mesh, std::uint64_t number) {
  Digits digits(number);
  StepShape shape{.mesh = Mesh::parse(mesh)};
  const bool uneven = digits.flag();
  shape.model = model_of(digits);
  shape.options = options_of(digits, shape.mesh.size(Axis::pp));
  if (uneven) set_uneven_layout(shape);
  return shape;
}

bool is_legal(const StepShape& shape) {
  try {
    check_step(shape.model, shape.mesh, shape.options);
    return true;
  } catch (const Error&) {
    return false;
  }
}

class LedgerOf : public testing::TestWithParam<const char*> {};

TEST_P(LedgerOf, EveryStageIsThatOfThePlan) {
  constexpr int kWanted = 40;
  int checked = 0;
  for (std::uint64_t i = 0; checked < kWanted && i < 4000; ++i) {
    StepShape shape;
    try {
      shape = shape_of(GetParam(), i * 0x9E3779B97F4A7C15);
    } catch (const Error&) {
      continue;  // a layout for more stages than there are layers
    }
    if (!is_legal(shape)) continue;
    ++checked;
    const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
    for (int stage = 0; stage < shape.stages(); ++stage)
      ASSERT_EQ(text(ledger(shape, stage)), text(planned_traffic(plan, stage)))
          << "case " << i << ", stage " << stage << ", " << shape.model.name << ", "
          << shape.options.schedule << ", zero " << shape.options.zero << ", sequence parallel "
          << shape.options.sequence_parallel << ", recompute "
          << static_cast<int>(shape.options.recompute);
  }
  EXPECT_EQ(checked, kWanted);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, LedgerOf,
    testing::Values("1", "dp2", "tp2", "tp4", "pp2", "pp3", "cp2", "ep2", "rdp2", "rdp2.dp2", "dp3",
                    "dp2.tp2", "dp2.pp2", "pp2.tp2", "cp2.tp2", "dp2.cp2", "pp3.cp2", "ep2.tp2",
                    "dp2.ep2", "cp2.ep2", "pp2.ep2", "dp2.pp2.tp2", "rdp2.dp2.tp2", "dp2.cp2.tp2",
                    "pp2.cp2.tp2", "rdp2.dp2.ep2", "dp2.cp2.ep2", "pp2.ep2.tp2", "rdp2.dp2.pp2.tp2",
                    "dp2.pp2.cp2.tp2", "dp2.pp2.ep2.tp2", "rdp2.cp2.ep2.tp2", "pp4.tp4"));

// --- What textbooks say ---

StepShape textbook(const char* mesh, StepOptions options, int layers = 4) {
  ModelConfig model = find_model("gpt-tiny");
  model.layers = layers;
  options.micro_batch = 2;
  return {.model = model, .mesh = Mesh::parse(mesh), .options = std::move(options)};
}
std::int64_t hidden(const StepShape& s) { return 2 * s.model.sequence * s.model.hidden; }

CommCount at(const Traffic& traffic, Group group, Site site, std::optional<Kind> kind) {
  const auto found = traffic.find({group, site, kind});
  return found == traffic.end() ? CommCount{} : found->second;
}

TEST(Ledger, MegatronReducesFourTimesALayerAndMicroBatch) {
  const StepShape s = textbook("tp2", {.micro_batches = 3});
  const Traffic traffic = ledger(s, 0);
  for (const Site site : {Site::layer_forward, Site::layer_backward}) {
    const CommCount count = at(traffic, kTensor, site, Kind::all_reduce);
    EXPECT_EQ(count.calls, 2 * 4 * 3);
    EXPECT_EQ(count.elements, 2 * 4 * 3 * hidden(s));
  }
}

TEST(Ledger, SequenceParallelismGathersSixAndScattersFourTimesALayer) {
  const StepShape s = textbook("tp2", {.micro_batches = 3, .sequence_parallel = true});
  const Traffic traffic = ledger(s, 0);
  std::int64_t gathers = 0, scatters = 0;
  for (const Site site : {Site::layer_forward, Site::layer_backward, Site::layer_inputs}) {
    gathers += at(traffic, kTensor, site, Kind::all_gather).elements;
    scatters += at(traffic, kTensor, site, Kind::reduce_scatter).elements;
  }
  EXPECT_EQ(gathers, 6 * 4 * 3 * hidden(s));
  EXPECT_EQ(scatters, 4 * 4 * 3 * hidden(s));
}

TEST(Ledger, FullRecomputationSumsOnceMoreALayerAndTwiceWhereNormsComeLast) {
  StepShape s = textbook("tp2", {.recompute = Recompute::full});
  EXPECT_EQ(at(ledger(s, 0), kTensor, Site::layer_replay, Kind::all_reduce).calls, 4);
  s.model.norm = NormPlace::post;
  EXPECT_EQ(at(ledger(s, 0), kTensor, Site::layer_replay, Kind::all_reduce).calls, 8);
  s.options.recompute = Recompute::attention;
  EXPECT_EQ(at(ledger(s, 0), kTensor, Site::layer_replay, Kind::all_reduce).calls, 0);
}

TEST(Ledger, ZeroOneAndTwoCarryWhatPlainDataParallelismDoesAndZeroThreeHalfAsMuchMore) {
  StepShape s = textbook("dp2", {});
  s.model.tied = false;
  const double plain = data_wire_bytes(s.mesh, ledger(s, 0));
  for (const int zero : {1, 2}) {
    s.options.zero = zero;
    EXPECT_EQ(data_wire_bytes(s.mesh, ledger(s, 0)), plain);
  }
  // The embedding's backward, which reads no table, does not gather it again.
  const std::int64_t once = (s.model.vocabulary + s.model.sequence) * s.model.hidden;
  s.options.zero = 3;
  EXPECT_EQ(data_wire_bytes(s.mesh, ledger(s, 0)), 1.5 * plain - 0.5 * 4.0 * once);
  s.options.reshard = false;
  EXPECT_EQ(data_wire_bytes(s.mesh, ledger(s, 0)), plain);
}

TEST(Ledger, ReplicasReduceWhatAnOwnerKeeps) {
  const StepShape s = textbook("rdp2.dp2", {.zero = 1});
  const Traffic traffic = ledger(s, 0);
  EXPECT_EQ(at(traffic, kReplicas, Site::gradients, Kind::all_reduce).elements,
            at(traffic, kData, Site::gradients, Kind::reduce_scatter).elements / 2);
}

std::int64_t messages(const StepShape& s) {
  std::int64_t sends = 0;
  for (int stage = 0; stage < s.stages(); ++stage) {
    for (const Site site : {Site::activations, Site::gradients})
      sends += at(ledger(s, stage), kPipeline, site, std::nullopt).calls;
  }
  return sends;
}

TEST(Ledger, MessagesCrossEveryBoundaryBetweenRanksBothWays) {
  const int p = 4, m = 8;
  EXPECT_EQ(messages(textbook("pp4", {.schedule = "1f1b", .micro_batches = m})), 2 * (p - 1) * m);
  EXPECT_EQ(messages(textbook("pp4", {.schedule = "interleaved", .micro_batches = m}, 8)),
            2 * (2 * p - 1) * m);
  EXPECT_EQ(messages(textbook("pp4", {.schedule = "zb-v", .micro_batches = m}, 8)),
            2 * (2 * p - 2) * m);
}

TEST(Ledger, MessagesShrinkWithContextAndSequenceParallelism) {
  const StepShape whole = textbook("pp2", {.schedule = "1f1b"});
  const StepShape shared = textbook("pp2.cp2.tp2", {.schedule = "1f1b", .sequence_parallel = true});
  EXPECT_EQ(4 * at(ledger(shared, 0), kPipeline, Site::activations, std::nullopt).elements,
            at(ledger(whole, 0), kPipeline, Site::activations, std::nullopt).elements);
}

TEST(Ledger, RingsShiftKeysAndValuesAndTheirGradients) {
  const StepShape s = textbook("cp4", {.micro_batches = 3});
  const Traffic traffic = ledger(s, 0);
  EXPECT_EQ(at(traffic, kContext, Site::layer_forward, Kind::shift).calls, 4 * 3 * 3);
  EXPECT_EQ(at(traffic, kContext, Site::layer_backward, Kind::shift).calls, 4 * (3 + 4) * 3);
}

TEST(Ledger, ATiedTableIsSummedOnlyWhereTheEndsOfThePipelineAreTwoRanks) {
  const StepShape linear = textbook("pp2", {.schedule = "1f1b"});
  EXPECT_EQ(at(ledger(linear, 0), kEnds, Site::tied_embedding, Kind::all_reduce).elements,
            linear.model.vocabulary * linear.model.hidden);
  const StepShape v = textbook("pp2", {.schedule = "zb-v", .micro_batches = 4});
  EXPECT_EQ(at(ledger(v, 0), kEnds, Site::tied_embedding, Kind::all_reduce).calls, 0);
}

TEST(Ledger, WireBytesFollowTheRing) {
  const Mesh mesh = Mesh::parse("dp4.pp2");
  EXPECT_EQ(wire_bytes(mesh, {kData, Site::gradients, Kind::all_reduce}, 100), 150);
  EXPECT_EQ(wire_bytes(mesh, {kData, Site::parameters, Kind::all_gather}, 100), 75);
  EXPECT_EQ(wire_bytes(mesh, {kPipeline, Site::gradients, std::nullopt}, 100), 100);
}

// --- What communicators count ---

struct LiveRun {
  const char *model, *mesh;
  StepOptions options;
};

TEST(Ledger, CommunicatorsCountItOnEveryRank) {
  StepOptions zero3{.micro_batches = 2, .zero = 3, .sequence_parallel = true};
  zero3.recompute = Recompute::full;
  StepOptions half{.micro_batches = 2, .dtype = DType::bf16, .zero = 2};
  half.reduce_in_dtype = true;
  StepOptions zb_v{.schedule = "zb-v", .micro_batches = 4, .zero = 1};
  StepOptions ulysses{.micro_batches = 2, .zero = 1, .context = ContextKind::ulysses};
  ulysses.recompute = Recompute::attention;
  const std::vector<LiveRun> runs = {
      {"gpt-tiny", "dp2", {.micro_batches = 2}},
      {"gpt-tiny", "dp2.tp2", zero3},
      {"gpt-tiny", "dp2.tp2", half},
      {"llama-tiny", "tp4", {.micro_batches = 2}},
      {"gpt-tiny", "pp2.tp2", zb_v},
      {"gpt-tiny", "dp2.pp2", {.schedule = "interleaved", .micro_batches = 2, .zero = 2}},
      {"gpt-tiny", "cp2.tp2", {.micro_batches = 2, .recompute = Recompute::full}},
      {"gpt-tiny", "dp2.cp2", ulysses},
      {"gpt-tiny", "rdp2.dp2", {.micro_batches = 2, .zero = 3, .reshard = false}},
      {"moe-tiny", "ep2", {.micro_batches = 2}},
      {"moe-tiny", "dp2.ep2.tp2", zero3},
      {"moe-tiny", "cp2.ep2", {.micro_batches = 2, .zero = 1, .recompute = Recompute::full}},
  };
  for (const LiveRun& run : runs) {
    StepShape shape{find_model(run.model), Mesh::parse(run.mesh), run.options};
    shape.model.layers = 4;
    const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
    const int shares = shape.mesh.data_size();
    const auto source = make_markov_source(shape.model.vocabulary, 1);
    const auto batches = make_batches(*source, shares * shape.options.micro_batches, shares);
    const auto executor = make_thread_executor(plan, {.batches = batches.get()});
    executor->step();
    for (const TrafficRow& row : traffic_report(plan, shape, counted_traffic(plan, *executor)))
      EXPECT_TRUE(row.numbers.equal && row.numbers.counted)
          << run.model << ' ' << run.mesh << ": " << name_of(row.key.group) << ' '
          << name_of(row.key.site) << ' ' << kind_name(row.key) << " on rank " << row.rank;
  }
}

}  // namespace
}  // namespace mb
