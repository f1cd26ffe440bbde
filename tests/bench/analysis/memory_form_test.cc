#include "bench/analysis/memory_form.h"

#include <gtest/gtest.h>

#include <random>

#include "bench/analysis/activation_form.h"
#include "bench/analysis/memory.h"
#include "bench/analysis/state_form.h"
#include "bench/analysis/zero_table.h"
#include "bench/cli/case.h"
#include "parallel/strategy/layout.h"
#include "parallel/strategy/step.h"
#include "tests/bench/synthetic.h"
#include "workloads/model/counts.h"
#include "workloads/model/data.h"

namespace mb {
namespace {

StepShape shape_of(const std::string& line) {
  const Case c = parse_case(split_words(line));
  return {c.model, c.mesh, c.options};
}
std::int64_t message_bytes(const StepShape& shape) {
  return hidden_elements(shape.model, block_shape(shape.mesh, shape.options)) *
         size_of(shape.options.dtype);
}

void hold_against_plan(const StepShape& shape, const std::string& line) {
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  const StepOptions& options = shape.options;
  const std::int64_t message = message_bytes(shape);
  for (int rank = 0; rank < shape.stages(); ++rank) {
    const MemoryForm form = memory_form(shape, rank);
    const MemoryPeak peak = memory_peak(plan.programs[rank]);
    const auto more = [&](MemoryClass c) {
      return peak.class_peak[static_cast<int>(c)] - *form.of(c).bytes;
    };
    std::int64_t layer = 0;
    for (const RankBlock& block : blocks_of(shape, rank)) {
      const BlockActivations saved = block_activations(shape, block, true);
      if (block.kind == BlockKind::layer)
        layer = std::max(layer, saved.kept.sum() + saved.recomputed.sum());
    }
    for (MemoryClass c : {MemoryClass::parameter, MemoryClass::gradient,
                          MemoryClass::main_parameter, MemoryClass::moment, MemoryClass::input})
      EXPECT_EQ(more(c), 0) << name_of(c) << " of stage " << rank << ": " << line;
    // Parameters that only recomputation reads are gathered for every micro-batch.
    if (options.recompute_micro_batches == IntRange{}) {
      EXPECT_EQ(more(MemoryClass::gathered), 0) << "stage " << rank << ": " << line;
    }
    EXPECT_LE(more(MemoryClass::bucket), 0) << "stage " << rank << ": " << line;
    EXPECT_GE(2 * more(MemoryClass::bucket), -*form.of(MemoryClass::bucket).bytes) << line;

    const std::int64_t activation = more(MemoryClass::activation);
    if (options.offload_activations) {
      EXPECT_LE(std::abs(activation), 6 * message + layer) << "stage " << rank << ": " << line;
      EXPECT_GE(peak.host_bytes, *form.host.bytes) << line;
      EXPECT_LE(peak.host_bytes, *form.host.bytes + 2 * message) << line;
    } else {
      EXPECT_GE(activation, 0) << "stage " << rank << ": " << line;
      EXPECT_LE(activation, 4 * message + (options.recompute == Recompute::none ? 0 : layer))
          << "stage " << rank << ": " << line;
      if (options.recompute == Recompute::none) {
        EXPECT_EQ(activation % message, 0) << "stage " << rank << ": " << line;
      }
      EXPECT_EQ(peak.host_bytes, *form.host.bytes) << line;
    }
  }
}

TEST(ZeroTable, IsFigureOneOfThePaper) {
  const StateBytes& paper = state_conventions().front();
  const auto gb = [&](int stage, int owners) { return 7.5 * zero_bytes(paper, stage, owners); };
  EXPECT_DOUBLE_EQ(gb(0, 64), 120);
  EXPECT_NEAR(gb(1, 64), 31.4, 0.05);
  EXPECT_NEAR(gb(2, 64), 16.6, 0.05);
  EXPECT_NEAR(gb(3, 64), 1.9, 0.05);
}

TEST(ZeroTable, IsWhatFlatBucketsTakeUpToPadding) {
  for (const auto& [dtype, convention] : {std::pair("bf16", 1), std::pair("fp32", 2)}) {
    for (int zero = 0; zero <= 3; ++zero) {
      const StepShape shape =
          shape_of(cat("model=gpt2 mesh=dp8 micro_batch=1 mode=sim dtype=", dtype, " zero=", zero));
      const MemoryForm form = memory_form(shape, 0);
      double bytes = 0;
      for (MemoryClass c : {MemoryClass::parameter, MemoryClass::gradient,
                            MemoryClass::main_parameter, MemoryClass::moment})
        bytes += static_cast<double>(*form.of(c).bytes);
      const double expected = zero_bytes(state_conventions()[convention], zero, 8) *
                              static_cast<double>(parameter_count(shape.model));
      EXPECT_NEAR(bytes / expected, 1, 1e-3) << dtype << " zero=" << zero;
    }
  }
}

// Korthikanti et al., 2022, table 2, without dropout's masks (2 s b h) and with the log-sum-exp of
// attention instead of 5 a s^2 b; statistics are of fp32.
TEST(ActivationForm, OfGptIn16BitsIsThePapersWithoutMasksAndScores) {
  const std::int64_t s = 1024, b = 4, h = 768, a = 12, statistics = 4 * (a * s * b + 4 * s * b);
  const RankBlock layer{BlockKind::layer, 0, 0};
  const auto kept = [&](const std::string& words) {
    return block_activations(shape_of("model=gpt2 micro_batch=4 dtype=bf16 mode=sim " + words),
                             layer, true);
  };
  EXPECT_EQ(kept("").kept.sum(), 32 * s * b * h + statistics);
  EXPECT_EQ(kept("mesh=tp4").kept.sum(),
            (8 + 24 / 4) * s * b * h + 4 * (a / 4 * s * b + 4 * s * b));
  EXPECT_EQ(kept("mesh=tp4 sequence_parallel=on").kept.sum(), (32 * s * b * h + statistics) / 4);
  EXPECT_EQ(kept("mesh=cp2").kept.sum(), (32 * s * b * h + statistics) / 2);
  EXPECT_EQ(kept("recompute=full").kept.sum(), 2 * s * b * h);
  EXPECT_EQ(kept("recompute=full mesh=tp4").kept.sum(), 2 * s * b * h);
  EXPECT_EQ(kept("recompute=full mesh=tp4 sequence_parallel=on").kept.sum(), 2 * s * b * h / 4);
  const BlockActivations selective = kept("recompute=attention");
  EXPECT_EQ(selective.recomputed.sum(), 2 * s * b * h + 4 * a * s * b);
  EXPECT_EQ(selective.kept.sum() + selective.recomputed.sum(), kept("").kept.sum());
}

TEST(ActivationForm, OfGptIsSixteenAndTheStatisticsInElements) {
  const std::int64_t s = 1024, b = 4, h = 768, a = 12;
  const BlockActivations gpt = block_activations(shape_of("model=gpt2 micro_batch=4 mode=sim"),
                                                 {BlockKind::layer, 0, 0}, true);
  EXPECT_EQ(gpt.kept.sum() / 4, 16 * s * b * h + a * s * b + 4 * s * b);
}

TEST(ActivationForm, OfLlamaKeepsGateUpAndNoMeans) {
  const BlockActivations llama =
      block_activations(shape_of("model=llama-tiny micro_batch=3"), {BlockKind::layer, 0, 0}, true);
  const std::int64_t tokens = 3 * 16;
  EXPECT_EQ(llama.kept.sum() / 4, tokens * (4 * 32 + (64 + 32) + 4 + 3 * 88 + 2));
}

TEST(StateForm, LocalParametersOfOneRankAreTheModels) {
  StepShape shape = small_shape("1", "1f1b", 1, 3);
  shape.model.vocabulary_multiple = 1;
  EXPECT_EQ(local_parameters(shape, 0), parameter_count(shape.model));
}

TEST(StateForm, TensorRanksThatShareAKeyValueHeadHoldAllOfIt) {
  for (const char* kv_heads : {"1", "2"}) {
    const StepShape shape =
        shape_of(cat("model=llama-tiny model.kv_heads=", kv_heads, " mesh=tp4 micro_batch=1"));
    const ModelConfig& m = shape.model;
    const LocalParameter qkv = parameters_of(shape, 0)[2];  // after table and norm
    EXPECT_EQ(qkv.elements, (m.heads / 4 + 2) * m.head_dim * m.hidden);
  }
}

// Of one bucket for all, and of a bucket for each parameter, some of which have fewer elements than
// there are owners.
TEST(StateForm, PaddingMakesSlicesEqualHoweverManyOwnersThereAre) {
  for (int owners : {1, 2, 3, 4, 5, 7, 11, 64, 255}) {
    for (const char* bucket : {"1GiB", "1"}) {
      const StepShape shape = shape_of(cat("model=gpt-tiny model.layers=1 mesh=dp", owners,
                                           " micro_batch=1 zero=1 bucket=", bucket));
      const std::vector<FlatBucket> buckets = flat_buckets(shape, 0);
      std::int64_t padded = 0, expected = 0;
      for (const FlatBucket& b : buckets) {
        EXPECT_EQ(b.slice() * owners, b.elements);
        padded += b.elements;
      }
      const auto pad = [&](std::int64_t n) { return n + (owners - n % owners) % owners; };
      if (buckets.size() == 1) {
        expected = pad(local_parameters(shape, 0));
      } else {
        for (const LocalParameter& p : parameters_of(shape, 0)) expected += pad(p.elements);
      }
      EXPECT_EQ(padded, expected) << owners << " owners, bucket=" << bucket;
      hold_against_plan(shape, cat("dp", owners, " bucket=", bucket));
    }
  }
}

TEST(MemoryForm, ActivationsAreChunksInFlightTimesTheirLayers) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved"}) {
    const StepShape shape =
        shape_of(cat("model=gpt-tiny model.layers=16 mesh=pp4 global_batch=8 ",
                     "chunks=", schedule[0] == 'i' ? 2 : 1, " schedule=", schedule));
    for (int rank = 1; rank < 3; ++rank) {
      const std::int64_t layers = schedule[0] == 'i' ? 2 : 4;
      const std::int64_t layer =
          block_activations(shape, {BlockKind::layer, 0, 0}, false).kept.sum();
      EXPECT_EQ(memory_form(shape, rank).of(MemoryClass::activation).bytes,
                *chunks_in_flight(shape, rank) * layers * layer)
          << schedule << " rank " << rank;
    }
  }
}

TEST(MemoryForm, GatheredParametersAreTwoBlocksOrAll) {
  const StepShape two = shape_of("model=gpt-tiny model.layers=8 mesh=dp2 zero=3"),
                  one = shape_of("model=gpt-tiny model.layers=8 mesh=dp2 zero=3 overlap=none"),
                  all = shape_of("model=gpt-tiny model.layers=8 mesh=dp2 zero=3 reshard=off");
  const std::int64_t layer = 4 * layer_parameter_count(two.model);
  EXPECT_EQ(memory_form(one, 0).of(MemoryClass::gathered).bytes, layer);
  EXPECT_EQ(memory_form(two, 0).of(MemoryClass::gathered).bytes, 2 * layer);
  EXPECT_EQ(memory_form(all, 0).of(MemoryClass::gathered).bytes, 4 * parameter_count(all.model));
}

// With ZeRO-2 and 3 a weight gradient that waits must not hold up a whole micro-batch's gradients.
TEST(MemoryForm, SplitBackwardsKeepNoMoreGradientsOnTheirWayThanOthers) {
  const auto most = [](const char* schedule) {
    const StepShape shape = shape_of(cat(
        "model=gpt-tiny model.layers=16 mesh=dp2.pp4 global_batch=32 zero=3 schedule=", schedule));
    return memory_peak(plan_step(shape.model, shape.mesh, shape.options).programs[2])
        .class_peak[static_cast<int>(MemoryClass::bucket)];
  };
  EXPECT_LE(most("zb-h1"), 1.5 * static_cast<double>(most("1f1b")));
}

// --- Against the Plan
// ------------------------------------------------------------------------------

// Words of one value each, drawn by a fixed seed: legal cases of every kind.
std::string draw_case(std::mt19937& draw) {
  const std::vector<std::vector<const char*>> words = {
      {"model=gpt-tiny", "model=llama-tiny", "model=llama-tiny model.tied=true",
       "model=gpt-tiny model.norm=post", "model=gpt-tiny model.experts=4 model.experts_per_token=2",
       "model=gpt-tiny model.experts=4 model.capacity_factor=1"},
      {"model.layers=4", "model.layers=6", "model.layers=8"},
      {"mesh=1", "mesh=dp2", "mesh=tp2", "mesh=tp4", "mesh=cp2", "mesh=pp2", "mesh=pp4",
       "mesh=dp2.pp2", "mesh=dp2.tp2", "mesh=ep2.dp2", "mesh=dp3", "mesh=dp2.rdp2", "mesh=cp2.tp2",
       "mesh=pp2.tp2.dp2", "mesh=ep2.pp2"},
      {"schedule=1f1b", "schedule=gpipe", "schedule=interleaved chunks=2", "schedule=zb-h1",
       "schedule=interleaved-zb chunks=2", "schedule=zb-v", "schedule=dualpipe-v"},
      {"micro_batch=1", "micro_batch=2"},
      {"global_batch=8", "global_batch=12", "global_batch=16"},
      {"dtype=fp32", "dtype=bf16", "dtype=fp64"},
      {"zero=0", "zero=1", "zero=2", "zero=3", "zero=3 reshard=off"},
      {"sequence_parallel=off", "sequence_parallel=on"},
      {"context=ring", "context=ulysses"},
      {"recompute=none", "recompute=attention", "recompute=full",
       "recompute=full recompute_layers=0-1", "recompute=full recompute_micro_batches=1-2"},
      {"offload=none", "offload=optimizer", "offload=activations", "offload=all"},
      {"overlap=all", "overlap=none"},
      {"reduce_dtype=main", "reduce_dtype=dtype"},
      {"optimizer=adamw", "optimizer=sgd"},
      {"bucket=1KiB", "bucket=4KiB", "bucket=25MiB"},
      {"dropout=0", "dropout=0.1"}};
  std::string line;
  for (const std::vector<const char*>& choices : words)
    line += cat(line.empty() ? "" : " ", choices[draw() % choices.size()]);
  return line;
}

TEST(MemoryForm, HoldsForThePlanOfEveryKindOfCase) {
  std::mt19937 draw(2);
  int held = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = draw_case(draw);
    try {
      const StepShape shape = shape_of(line);
      hold_against_plan(shape, line);
      ++held;
    } catch (const Error&) {  // breaks a rule
    }
  }
  EXPECT_GT(held, 400);
}

TEST(MemoryForm, HoldsForLayersThatDoNotDivide) {
  for (const char* line :
       {"model=gpt-tiny model.layers=7 mesh=pp4 global_batch=8",
        "model=gpt-tiny model.layers=6 mesh=pp4 layout=0,3,3,0 global_batch=8",
        "model=llama-tiny model.layers=5 mesh=pp2.dp2 global_batch=8 schedule=zb-v zero=2",
        "model=gpt-tiny model.vocabulary=101 mesh=tp4 model.vocabulary_multiple=8"})
    hold_against_plan(shape_of(line), line);
}

// --- Against what ranks count
// ----------------------------------------------------------------------

class Counted : public testing::TestWithParam<const char*> {};

TEST_P(Counted, RanksCountWhatThePlanSays) {
  const Case c = parse_case(split_words(cat(GetParam(), " micro_batch=1 bucket=4KiB")));
  const Plan plan = plan_step(c.model, c.mesh, c.options);
  const auto source = make_markov_source(c.model.vocabulary, 1);
  const auto batches = make_batches(*source, c.global_batch, c.mesh.data_size());
  const auto executor = make_thread_executor(plan, {.batches = batches.get()});
  executor->step();
  for (int rank = 0; rank < c.mesh.world(); ++rank) {
    const MemoryPeak planned = memory_peak(plan.program_of(rank));
    const MemoryPeak counted = *executor->memory(rank);
    EXPECT_EQ(counted.class_peak, planned.class_peak) << "rank " << rank;
    EXPECT_EQ(counted.total_bytes, planned.total_bytes) << "rank " << rank;
    EXPECT_EQ(counted.host_bytes, planned.host_bytes) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Counted,
    testing::Values(
        "model=gpt-tiny mesh=dp2 zero=1 dtype=bf16", "model=gpt-tiny mesh=dp2 zero=2",
        "model=gpt-tiny mesh=dp2 zero=3", "model=gpt-tiny mesh=dp2 zero=3 reshard=off overlap=none",
        "model=gpt-tiny mesh=dp2 zero=2 dtype=bf16 reduce_dtype=dtype",
        "model=gpt-tiny mesh=dp2 zero=1 dtype=bf16 offload=all",
        "model=gpt-tiny mesh=pp2 recompute=full offload=activations",
        "model=gpt-tiny mesh=tp2 sequence_parallel=on recompute=attention",
        "model=llama-tiny mesh=cp2 context=ring",
        "model=gpt-tiny mesh=cp2 context=ulysses dtype=bf16",
        "model=gpt-tiny model.experts=4 model.experts_per_token=2 mesh=ep2 zero=2",
        "model=gpt-tiny model.layers=4 mesh=dp2.pp2 schedule=zb-v zero=3 global_batch=16",
        "model=gpt-tiny model.layers=4 mesh=dp2.pp2 schedule=zb-h1 zero=2 sequence_parallel=on",
        "model=llama-tiny model.kv_heads=1 mesh=tp4", "model=gpt-tiny mesh=dp2.rdp2 zero=3"));

}  // namespace
}  // namespace mb
