// Faults that other systems had, each by a test that notices it. Those that are named elsewhere:
// delays and memory that was not zeroed (bit_equality_test), one chunk of the interleaved schedules
// (Interleaved.OfOneChunkIsOneFOneBSlotBySlot, InterleavedZb.OfOneChunkIsZbH1), norms that count
// each element once (GradientNorm.CountsEachElementOnceOverOwnersReplicasAndTensorRanks), counts of
// what communicators carry (ThreadExecutor.TrafficIsThatOfThePlanOnEveryRank).
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "parallel/plan/validate.h"
#include "parallel/schedule/schedule.h"
#include "parallel/strategy/layout.h"
#include "parallel/strategy/step.h"
#include "tests/support/error.h"
#include "tests/support/training.h"
#include "workloads/model/data.h"

namespace mb {
namespace {

// AdamW and clipping hide gradients that are wrong by a factor.
constexpr const char* kWords = "dtype=fp64 optimizer=sgd learning_rate=0.1 clip=0 ";
constexpr double kTolerance = 1e-12;

test::Trained train(const std::string& words, int steps = 1) {
  return test::train(test::case_of(kWords + words), {.steps = steps});
}

void expect_one_rank(const std::string& words) {
  SCOPED_TRACE(words);
  const Case c = test::case_of(kWords + words);
  const test::TrainOptions two{.steps = 2, .poison = true};
  EXPECT_EQ(message_of([&] {
              test::expect_equal(test::train(c, two), test::oracle_of(c, {.steps = 2}), kTolerance);
            }),
            "no Error");
}

// Of one step of each case, all by the same data.
void expect_equal_norms(const std::vector<std::string>& cases) {
  const double norm = train(cases.front()).steps[0].gradient_norm;
  for (const std::string& words : cases)
    EXPECT_NEAR(train(words).steps[0].gradient_norm, norm, kTolerance * norm) << words;
}

std::vector<std::string> schedules_of(int micro_batches, const Mesh& mesh) {
  std::vector<std::string> names;
  for (const Schedule& schedule : schedules()) {
    const StepOptions options{.schedule = std::string(schedule.name),
                              .micro_batches = micro_batches};
    if (message_of([&] { schedule.check(pipeline_shape(mesh, options)); }) == "no Error")
      names.push_back(options.schedule);
  }
  return names;
}

// --- layers --------------------------------------------------------------------------------------

TEST(Layers, ThatDoNotDivideByTheStagesAreAllThere) {
  for (const std::string layout : {"", " layout=2,2,2,1", " layout=0,3,4,0", " layout=1,1,1,4"}) {
    const Case c =
        test::case_of(cat(kWords, "model=gpt-tiny model.layers=7 mesh=pp4 global_batch=4", layout));
    const Plan plan = plan_step(c.model, c.mesh, c.options);
    std::vector<int> built;
    std::set<int> distinct;
    for (const Program& program : plan.programs) {
      std::set<int> layers;
      for (const Instruction& i : program.instructions) {
        if (i.label.layer >= 0) layers.insert(i.label.layer);
      }
      built.push_back(static_cast<int>(layers.size()));
      distinct.insert(layers.begin(), layers.end());
    }
    EXPECT_EQ(distinct, (std::set<int>{0, 1, 2, 3, 4, 5, 6})) << layout;
    if (!layout.empty()) {
      EXPECT_EQ(built, c.options.layout);
    }
    expect_one_rank(cat("model=gpt-tiny model.layers=7 mesh=pp4 global_batch=4", layout));
  }
}

TEST(Layers, TooFewForTheStagesAreRefused) {
  EXPECT_NE(message_of([] {
              test::case_of("model=gpt-tiny model.layers=7 mesh=pp4 schedule=zb-v global_batch=8");
            }).find("do not fill 8 stages"),
            std::string::npos);
}

// --- vocabulary and loss -------------------------------------------------------------------------

TEST(Vocabulary, ThatDoesNotDivideByTheTensorRanksTrainsAsOnOne) {
  for (const char* ranks : {"tp2", "tp4", "tp4 sequence_parallel=on", "pp2.tp4"}) {
    for (const char* tied : {"true", "false"})
      expect_one_rank(cat("model=gpt-tiny model.tied=", tied, " global_batch=4 mesh=", ranks));
  }
}

TEST(Loss, OfAFreshModelIsTheLogarithmOfTheVocabularyForAnyTensorRanks) {
  for (const char* ranks : {"1", "tp2", "tp4", "tp4 sequence_parallel=on"}) {
    const Case c = test::case_of(
        cat(kWords, "model=gpt-tiny model.init_std=0.001 global_batch=4 mesh=", ranks));
    const test::Trained trained = test::train(c, {.init = {.seed = 1}});
    EXPECT_NEAR(trained.steps[0].loss, std::log(97.0), 1e-3) << ranks;
  }
}

// We have no label smoothing, whose mean over a local slice was the fault; the loss sums over
// slices as it would.
TEST(Loss, IsTheSameOverAnyNumberOfVocabularySlices) {
  const Training one = train("model=gpt-tiny model.init_std=0.5 global_batch=4 mesh=1").steps[0];
  for (const char* ranks : {"tp2", "tp4", "dp2.tp2", "cp2.tp2"}) {
    const Training other =
        train(cat("model=gpt-tiny model.init_std=0.5 global_batch=4 mesh=", ranks)).steps[0];
    EXPECT_NEAR(other.loss, one.loss, kTolerance * one.loss) << ranks;
    EXPECT_EQ(other.valid_tokens, one.valid_tokens) << ranks;
  }
}

// Labels of some tokens count for nothing: of sample 0 all, of the others each its own number.
class SomeLabels final : public BatchSource {
 public:
  SomeLabels(const BatchSource& all, std::int64_t global_batch, int data_size)
      : all_(all), global_batch_(global_batch), share_(global_batch / data_size) {}
  void load(std::int64_t step, int data_index, int micro_batch, std::int64_t batch,
            std::int64_t sequence, std::int32_t* tokens, std::int32_t* labels) const override {
    all_.load(step, data_index, micro_batch, batch, sequence, tokens, labels);
    if (!labels) return;
    for (std::int64_t row = 0; row < batch; ++row) {
      const std::int64_t sample =
          (step * global_batch_ + data_index * share_ + micro_batch * batch + row) % global_batch_;
      const std::int64_t ignored = sample == 0 ? sequence : 5 * sample % sequence;
      std::fill_n(labels + row * sequence, ignored, -1);
    }
  }

 private:
  const BatchSource& all_;
  std::int64_t global_batch_, share_;
};

TEST(Loss, WeighsEveryValidTokenAlikeHoweverTheyAreSpread) {
  const auto source = make_markov_source(97, 7);
  const auto trained = [&](const std::string& words) {
    const Case c = test::case_of(kWords + words);
    const auto all = make_batches(*source, c.global_batch, c.mesh.data_size());
    const SomeLabels some(*all, c.global_batch, c.mesh.data_size());
    return test::train(c, {.steps = 2, .batches = &some});
  };
  for (const std::string model : {"gpt-tiny", "moe-tiny"}) {
    const test::Trained one = trained(cat("model=", model, " global_batch=8 mesh=1"));
    EXPECT_LT(one.steps[0].valid_tokens, 8 * 16);
    for (const std::string rest :
         {"dp2", "dp4 zero=2", "dp8 zero=1", "dp2 micro_batch=2 zero=3", "pp2.dp2 schedule=zb-h1",
          "cp2.dp2", "tp2.cp2 sequence_parallel=on", "pp2.rdp2.dp2 zero=2"}) {
      SCOPED_TRACE(cat(model, ' ', rest));
      test::expect_equal(trained(cat("model=", model, " global_batch=8 mesh=", rest)), one,
                         kTolerance);
    }
  }
}

// The first rank of old references showed its own loss.
TEST(Loss, ThatIsShownIsOfTheGlobalBatch) {
  const std::string words = "model=gpt-tiny model.layers=4 global_batch=8 mesh=";
  const double one = train(words + "1").steps[0].loss;
  for (const char* mesh : {"dp8", "pp4.dp2", "dp4.tp2"})
    EXPECT_NEAR(train(words + mesh).steps[0].loss, one, kTolerance * one) << mesh;
}

// --- norms ---------------------------------------------------------------------------------------

TEST(Norm, IsTheSameForAnyTensorRanks) {
  for (const std::string model :
       {"model=gpt-tiny", "model=llama-tiny", "model=llama-tiny model.kv_heads=1", "model=moe-tiny",
        "model=gpt-tiny model.tied=false"}) {
    expect_equal_norms({model + " global_batch=4 mesh=1", model + " global_batch=4 mesh=tp2",
                        model + " global_batch=4 mesh=tp4",
                        model + " global_batch=4 mesh=tp4 sequence_parallel=on"});
  }
}

TEST(Norm, IsTheSameForAnyDataRanksAndWhateverTheyDivide) {
  std::vector<std::string> cases = {"model=gpt-tiny global_batch=8 mesh=1"};
  for (const char* mesh : {"dp2", "dp4", "dp8"}) {
    for (int zero = 0; zero <= 3; ++zero)
      cases.push_back(cat("model=gpt-tiny global_batch=8 mesh=", mesh, " zero=", zero));
  }
  cases.push_back("model=gpt-tiny global_batch=8 mesh=rdp2.dp2 zero=1");
  cases.push_back("model=gpt-tiny global_batch=8 mesh=rdp2.dp2.tp2 zero=3");
  expect_equal_norms(cases);
}

TEST(Norm, CountsATiedCopyOnce) {
  for (const char* mesh : {"pp2", "pp2.dp2 zero=1", "pp2.tp2", "pp2 schedule=zb-v"})
    expect_equal_norms({"model=gpt-tiny model.layers=4 global_batch=8 mesh=1",
                        cat("model=gpt-tiny model.layers=4 global_batch=8 mesh=", mesh)});
}

// --- tied embeddings -----------------------------------------------------------------------------

TEST(Tied, WithAShardedOptimizerTrainsAsOneRank) {
  for (int zero = 0; zero <= 3; ++zero)
    expect_one_rank(cat("model=gpt-tiny global_batch=8 mesh=pp2.dp2 zero=", zero));
}

TEST(Tied, TrainsAsOneRankUnderEverySchedule) {
  for (const char* mesh : {"pp2", "pp2.dp2 zero=1", "pp4"}) {
    const std::int64_t data =
        Mesh::parse(std::string(mesh).substr(0, std::string(mesh).find(' '))).data_size();
    const std::string rest =
        cat(" model.layers=8 model.tied=true global_batch=", 8 * data, " mesh=", mesh);
    for (const std::string& schedule :
         schedules_of(8, test::case_of("model=gpt-tiny" + rest).mesh)) {
      expect_one_rank(cat("model=gpt-tiny", rest, " schedule=", schedule));
      expect_one_rank(cat("model=llama-tiny", rest, " schedule=", schedule));
    }
  }
}

// --- flat buckets --------------------------------------------------------------------------------

// Buckets of one parameter each, of 3, 4, 5, 8 and 9 elements on four ranks: fewer than ranks, one
// or two for each, and some more, so that padding falls on one, two or three of them.
TEST(Padding, OnAnyNumberOfRanksTrainsAsOneRank) {
  for (const int hidden : {3, 4, 5, 8, 9}) {
    for (int zero = 1; zero <= 3; ++zero)
      expect_one_rank(cat("model=gpt-tiny model.hidden=", hidden,
                          " model.heads=1 bucket=1 global_batch=8 mesh=dp4 zero=", zero));
  }
}

TEST(Buckets, HoldWhatParametersHeld) {
  for (const std::string mesh :
       {"1", "dp4 zero=1", "dp4 zero=3", "pp2.dp2 zero=2", "rdp2.dp2.tp2 zero=3", "pp2.tp4"}) {
    const Case c = test::case_of(cat("model=gpt-tiny bucket=5000 mesh=", mesh));
    const test::Trainer trainer(c.model, c.mesh, c.options, {.global_batch = c.global_batch});
    const Unsharded held = trainer.parameters();
    for (const Program& program : trainer.plan().programs) {
      for (const Parameter& parameter : program.parameters) {
        const std::vector<double>& values = held.at(parameter.spec.name);
        for (std::size_t i = 0; i < values.size(); ++i)
          ASSERT_EQ(values[i],
                    static_cast<float>(initial_value(parameter.spec, {.seed = 1, .perturbed = true},
                                                     static_cast<std::int64_t>(i))))
              << parameter.spec.name << '[' << i << "] " << mesh;
      }
    }
  }
}

// Of the ranks that share a parameter, one updates each element.
TEST(Buckets, GiveEveryElementOneOwner) {
  for (const std::string words :
       {"model=gpt-tiny mesh=dp4 zero=1", "model=gpt-tiny mesh=dp2.cp2 zero=3",
        "model=moe-tiny mesh=dp2.ep2.tp2 zero=2"}) {
    const Case c = test::case_of(words + " bucket=5000 optimizer=adamw");
    const Plan plan = plan_step(c.model, c.mesh, c.options);
    for (const Bucket& bucket : plan.programs[0].buckets) {
      EXPECT_EQ(plan.programs[0].tensors[bucket.m].elements * c.mesh.group_size(bucket.owners),
                bucket.elements);
      std::set<int> owners;
      for (const int rank : c.mesh.members(bucket.owners, 0))
        owners.insert(c.mesh.index_in(bucket.owners, rank));
      EXPECT_EQ(static_cast<int>(owners.size()), bucket.ways) << words;
    }
  }
}

// --- data ranks and accumulation -----------------------------------------------------------------

TEST(Zero, StagesAgreeAfterThreeSteps) {
  for (const std::string mesh : {"dp4", "pp2.dp2", "dp2.tp2"}) {
    const test::Trained none = train(cat("model=gpt-tiny global_batch=8 mesh=", mesh), 3);
    for (const char* zero : {"1", "2", "3", "3 reshard=off", "2 overlap=none"}) {
      SCOPED_TRACE(cat(mesh, " zero=", zero));
      test::expect_equal(train(cat("model=gpt-tiny global_batch=8 mesh=", mesh, " zero=", zero), 3),
                         none, kTolerance);
    }
  }
}

TEST(Zero, OfAPipelineIn16BitsTrainsAsOneRank) {
  for (const char* dtype : {"bf16", "fp16"}) {
    for (int zero = 0; zero <= 3; ++zero) {
      const Case c = test::case_of(cat("model=gpt-tiny optimizer=sgd global_batch=8 mesh=pp2.dp2 ",
                                       "dtype=", dtype, " zero=", zero));
      test::expect_equal(test::train(c, {.steps = 3}), test::oracle_of(c, {.steps = 3}),
                         tolerance_of(c.options.dtype));
    }
  }
}

TEST(Replicas, TrainAsOneRankWhateverOverlaps) {
  for (const char* overlap : {"all", "none", "reduce", "gather"}) {
    for (int zero = 1; zero <= 3; ++zero)
      expect_one_rank(
          cat("model=gpt-tiny global_batch=8 mesh=rdp2.dp2 zero=", zero, " overlap=", overlap));
  }
}

TEST(Accumulation, OfAnyNumberOfMicroBatchesIsOneLargeBatch) {
  for (int zero = 0; zero <= 3; ++zero) {
    for (const int micro_batch : {4, 2, 1})
      expect_one_rank(
          cat("model=gpt-tiny global_batch=8 mesh=dp2 zero=", zero, " micro_batch=", micro_batch));
  }
  const test::Trained one = train("model=gpt-tiny global_batch=8 micro_batch=8 mesh=1");
  test::expect_equal(train("model=gpt-tiny global_batch=8 mesh=1"), one, kTolerance);
}

// A sum in bf16 would be off by more than 1e-2 after 64 additions.
TEST(Accumulation, Of16BitGradientsIsAsExactForManyMicroBatchesAsForOne) {
  const auto error = [](int micro_batch) {
    const Case c =
        test::case_of(cat("model=gpt-tiny dtype=bf16 optimizer=sgd global_batch=64 mesh=1 ",
                          "micro_batch=", micro_batch));
    return largest_error(test::train(c, {}).gradients,
                         test::oracle_of(test::case_of("model=gpt-tiny dtype=fp64 optimizer=sgd "
                                                       "global_batch=64 mesh=1 micro_batch=64"),
                                         {})
                             .gradients)
        .relative;
  };
  EXPECT_LT(error(1), 1.2 * error(64));
}

// A mean over ranks is their sum, then the scale.
TEST(Mean, OfGradientsIsTheSumOverTheTokensOfAllRanks) {
  for (const char* mesh : {"1", "dp3", "dp3 zero=2", "rdp3.dp1 zero=1", "cp2.dp3"})
    expect_one_rank(cat("model=gpt-tiny global_batch=6 mesh=", mesh));
}

// --- context and tensor ranks --------------------------------------------------------------------

TEST(Context, RanksGetTheGradientsOfOneRank) {
  for (const char* model : {"gpt-tiny", "llama-tiny"}) {
    for (const char* ranks :
         {"cp2", "cp4", "cp2 context=ulysses", "cp2.dp2", "cp2.tp2 sequence_parallel=on"})
      expect_one_rank(cat("model=", model, " global_batch=4 mesh=", ranks));
  }
}

TEST(Dropout, DropsTheSameOnEveryMesh) {
  for (const char* ranks : {"tp4", "tp4 sequence_parallel=on", "tp2.cp2 sequence_parallel=on",
                            "cp4", "cp2.dp2 context=ulysses", "pp2.dp2 schedule=zb-v",
                            "pp2.tp2 recompute=full", "dp4 micro_batch=2"})
    expect_one_rank(cat("model=gpt-tiny model.layers=4 dropout=0.3 global_batch=8 mesh=", ranks));
}

TEST(KeyValueHeads, FewerThanTensorRanksGetTheGradientsOfAll) {
  for (const char* heads : {"1", "2"}) {
    for (const char* ranks : {"tp4", "tp4 sequence_parallel=on", "dp2.tp4 zero=2", "tp2.cp2"})
      expect_one_rank(
          cat("model=llama-tiny model.kv_heads=", heads, " global_batch=4 mesh=", ranks));
  }
}

// --- pipelines -----------------------------------------------------------------------------------

// The watchdog ends a run that hangs.
TEST(Pipeline, WithFewerMicroBatchesThanStagesRunsOrIsRefused) {
  for (const int micro_batches : {1, 2, 3}) {
    int ran = 0;
    for (const std::string& schedule : schedules_of(micro_batches, Mesh::parse("pp4"))) {
      expect_one_rank(cat("model=gpt-tiny model.layers=8 mesh=pp4 global_batch=", micro_batches,
                          " schedule=", schedule));
      ++ran;
    }
    EXPECT_GE(ran, 4) << micro_batches;
  }
}

// validate walks a plan with sends that no buffer takes.
TEST(Pipeline, EndsWithoutAnyBufferUnderEverySchedule) {
  ModelConfig model = find_model("gpt-tiny");
  for (int p = 2; p <= 8; ++p) {
    const Mesh mesh = Mesh::parse(cat("pp", p));
    model.layers = 2 * p;
    for (const int m : {1, p - 1, p, p + 1, 2 * p, 2 * p + 1}) {
      for (const std::string& schedule : schedules_of(m, mesh)) {
        StepOptions options{.schedule = schedule, .micro_batches = m};
        EXPECT_EQ(message_of([&] { validate(plan_step(model, mesh, options)); }), "no Error")
            << schedule << " p=" << p << " m=" << m;
        options.overlap.sends = false;
        EXPECT_EQ(message_of([&] { validate(plan_step(model, mesh, options)); }), "no Error")
            << schedule << " p=" << p << " m=" << m << " sends wait";
      }
    }
  }
}

TEST(SplitBackward, OfTiedWeightsHasTheBitsOfTheWhole) {
  for (const std::string mesh : {"1", "pp2", "pp2.tp2"}) {
    const std::string words = cat("model=gpt-tiny global_batch=4 mesh=", mesh);
    const test::Trained whole = train(words + " schedule=1f1b", 2);
    const test::Trained split = train(words + " schedule=zb-h1", 2);
    EXPECT_EQ(split.gradients, whole.gradients) << mesh;
    EXPECT_EQ(split.parameters, whole.parameters) << mesh;
  }
}

TEST(SplitBackward, GradientsAreSummedOverDataRanks) {
  for (const char* schedule : {"zb-h1", "zb-v", "interleaved-zb", "dualpipe-v"}) {
    for (int zero = 0; zero <= 3; ++zero)
      expect_one_rank(cat("model=gpt-tiny model.layers=4 global_batch=8 mesh=pp2.dp2 schedule=",
                          schedule, " zero=", zero));
  }
}

// --- the end of a step ---------------------------------------------------------------------------

// Sums over the world are of the step's sums alone: what stands next to them stays.
TEST(StepScalars, NextToTheSumsAreSummedByNobody) {
  const Case c = test::case_of("model=gpt-tiny mesh=dp4.tp2 loss_scale=64");
  test::Trainer trainer(c.model, c.mesh, c.options, {.global_batch = c.global_batch});
  for (int step = 0; step < 2; ++step) EXPECT_EQ(trainer.step().loss_scale, 64);
  for (int rank = 0; rank < 8; ++rank) {
    const auto scalars = trainer.executor().read(rank, trainer.plan().programs[0].scalars);
    EXPECT_EQ(std::vector<double>(scalars.begin() + 4, scalars.end()),
              (std::vector<double>{64, 0, 0, 64}));
  }
}

TEST(Overflow, IsSkippedByAllRanksWhichThenTrainWithHalfTheScale) {
  for (const std::string mesh :
       {"1", "dp4", "dp2.tp2 zero=1", "pp2.dp2 zero=2", "pp2.rdp2.dp2 zero=3"}) {
    SCOPED_TRACE(mesh);
    Case c =
        test::case_of(cat("model=gpt-tiny dtype=fp16 optimizer=sgd global_batch=8 mesh=", mesh));
    c.options.loss_scale = 0x1p18;
    test::Trainer trainer(c.model, c.mesh, c.options, {.global_batch = c.global_batch});
    Unsharded before = trainer.parameters();
    const Unsharded first = before;
    int skipped = 0;
    for (double scale = 0x1p18;; scale /= 2, ++skipped) {
      const Training step = trainer.step();
      EXPECT_EQ(step.loss_scale, scale);
      if (!step.skipped) break;
      ASSERT_EQ(trainer.parameters(), before);
      ASSERT_LT(skipped, 10);
    }
    EXPECT_GT(skipped, 0);
    EXPECT_NE(trainer.parameters(), before);
    const double loss = trainer.step().loss;
    EXPECT_TRUE(std::isfinite(loss));
  }
}

}  // namespace
}  // namespace mb
