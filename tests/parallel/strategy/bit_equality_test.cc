// What may change no bit: a second run, where communication runs and when it arrives, activations
// that are computed again or kept elsewhere, and the order of slots that add gradients in the same
// order.
#include <gtest/gtest.h>

#include "tests/support/launched.h"
#include "tests/support/training.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Norms are left out of the update, so that their last bits do not show in parameters.
constexpr const char* kModel =
    "model.layers=4 optimizer=sgd learning_rate=0.1 clip=0 bucket=20000 global_batch=8 ";

// All strategies, in few cases.
const std::vector<std::string> kRich = {
    "model=gpt-tiny mesh=pp2.dp2.tp2 schedule=1f1b zero=2 sequence_parallel=on dropout=0.2",
    "model=gpt-tiny mesh=pp2.dp2.tp2 schedule=zb-v zero=1 dropout=0.2",
    "model=gpt-tiny mesh=pp4.dp2 schedule=zb-h1 zero=3",
    "model=gpt-tiny mesh=pp2.dp2 schedule=dualpipe-v zero=3 reshard=off",
    "model=gpt-tiny model.tied=false mesh=rdp2.dp2.tp2 zero=3 sequence_parallel=on dropout=0.2",
    "model=gpt-tiny model.norm=post mesh=pp2.cp2.dp2 schedule=interleaved zero=2",
    "model=gpt-tiny mesh=tp2.cp2.dp2 context=ulysses sequence_parallel=on dropout=0.2 zero=1",
    "model=llama-tiny mesh=pp2.tp4 schedule=interleaved-zb chunks=2 sequence_parallel=on",
    "model=llama-tiny mesh=dp2.cp4 zero=3 dtype=bf16 reduce_dtype=dtype",
    "model=moe-tiny mesh=ep2.dp2.tp2 zero=3 sequence_parallel=on dropout=0.2",
    "model=moe-tiny model.capacity_factor=1 mesh=pp2.ep4 schedule=zb-h1 zero=2",
    "model=gpt-tiny mesh=pp2.dp2 schedule=gpipe dtype=fp16 zero=3"};

test::Trained train(const std::string& words, test::TrainOptions options = {}) {
  options.steps = 3;
  return test::train(test::case_of(kModel + words), options);
}

void expect_same_bits(const test::Trained& one, const test::Trained& other, bool norms = true) {
  EXPECT_EQ(one.gradients, other.gradients);
  EXPECT_EQ(one.parameters, other.parameters);
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_EQ(one.steps[i].loss, other.steps[i].loss);
    EXPECT_EQ(one.steps[i].balance_loss, other.steps[i].balance_loss);
    if (norms) {
      EXPECT_EQ(one.steps[i].gradient_norm, other.steps[i].gradient_norm);
    }
  }
}

// What `words` and what each of `others` after them train to has the same bits.
void expect_same_bits(const std::string& words, const std::vector<std::string>& others,
                      bool norms = true) {
  const test::Trained one = train(words);
  for (const std::string& other : others) {
    SCOPED_TRACE(words + " |" + other);
    expect_same_bits(one, train(words + other), norms);
  }
}

class Rich : public testing::TestWithParam<std::string> {};

// Under mpirun, where everything above it is the same, communication is not.
TEST_P(Rich, CaseTrainsOnProcessesToTheBitsOfThreads) {
  const Case c = test::case_of(kModel + GetParam());
  if (!test::launched() || !test::runs_here(c)) GTEST_SKIP() << "of mpirun with as many ranks";
  const test::Trained ranks = train(GetParam());
  if (test::judges()) expect_same_bits(ranks, train(GetParam(), {.on_threads = true}));
}

TEST_P(Rich, CaseTrainsToTheSameBitsTwice) { expect_same_bits(GetParam(), {""}); }

TEST_P(Rich, CaseKeepsItsBitsUnderRandomDelaysOfCommunication) {
  const test::Trained calm = train(GetParam());
  for (const std::uint64_t seed : {1, 2, 3})
    expect_same_bits(calm, train(GetParam(), {.delays = {.seed = seed, .most_us = 60}}));
}

TEST_P(Rich, CaseNeverReadsWhatARankDoesNotHold) {
  expect_same_bits(train(GetParam()), train(GetParam(), {.poison = true}));
}

TEST_P(Rich, CaseKeepsItsBitsWhereverCommunicationRuns) {
  expect_same_bits(GetParam(), {" overlap=none", " overlap=gather,sends", " overlap=reduce,sends",
                                " overlap=reduce,gather"});
}

TEST_P(Rich, CaseKeepsItsBitsWhateverIsRecomputed) {
  expect_same_bits(GetParam(), {" recompute=attention", " recompute=full",
                                " recompute=full recompute_layers=1-2",
                                " recompute=full recompute_micro_batches=0"});
}

TEST_P(Rich, CaseKeepsItsBitsInTheSecondMemorySpace) {
  expect_same_bits(GetParam(), {" offload=optimizer", " offload=activations",
                                " offload=all recompute=attention"});
}

INSTANTIATE_TEST_SUITE_P(Cases, Rich, testing::ValuesIn(kRich));

TEST(BitEquality, OfSchedulesThatAddGradientsInTheOrderOfMicroBatches) {
  for (const std::string words :
       {"model=gpt-tiny mesh=pp2.dp2 zero=2", "model=gpt-tiny mesh=pp4.tp2 dropout=0.2",
        "model=llama-tiny mesh=pp2.cp2 zero=3", "model=moe-tiny mesh=pp2.ep2"}) {
    // With ZeRO-2 and 3, those that split the backward keep norms in buckets of their own.
    const bool same_buckets = words.find("zero=") == std::string::npos;
    expect_same_bits(words,
                     {" schedule=gpipe", " schedule=zb-h1", " schedule=interleaved chunks=1",
                      " schedule=interleaved-zb chunks=1"},
                     same_buckets);
  }
}

TEST(BitEquality, OfSchedulesWithTheSamePlacementOfChunks) {
  expect_same_bits(train("model=gpt-tiny model.tied=false mesh=pp2.dp2 schedule=interleaved"),
                   train("model=gpt-tiny model.tied=false mesh=pp2.dp2 schedule=interleaved-zb"));
  expect_same_bits(train("model=gpt-tiny model.tied=false mesh=pp2.dp2 schedule=zb-v"),
                   train("model=gpt-tiny model.tied=false mesh=pp2.dp2 schedule=dualpipe-v"));
}

// All-reduce and reduce-scatter add ranks in the same order. Norms are summed in other parts.
TEST(BitEquality, OfWhatDataRanksDivide) {
  for (const std::string words : {"model=gpt-tiny mesh=dp4", "model=gpt-tiny mesh=pp2.dp2.tp2",
                                  "model=moe-tiny mesh=dp2.ep2"}) {
    expect_same_bits(words, {" zero=1"}, false);
    expect_same_bits(words + " zero=2", {" reshard=off"}, false);
  }
  // One micro-batch a rank: nothing is added after the sum over ranks.
  expect_same_bits("model=gpt-tiny mesh=dp8",
                   {" zero=1", " zero=2", " zero=3", " zero=3 reshard=off"}, false);
}

// Which rank has which place, and on which node, is nothing that numbers know of.
TEST(BitEquality, OfOrdersAndPlacements) {
  expect_same_bits("model=gpt-tiny mesh=pp2.dp2.tp2 zero=2 sequence_parallel=on dropout=0.2",
                   {" order=dp,tp,pp", " order=pp,dp,tp", " order=tp-pp-dp ranks_per_node=2",
                    " order=pp-tp-dp nodes=0,1,2,2,2,1,0,0"});
  expect_same_bits("model=moe-tiny mesh=ep2.dp2.tp2 zero=3",
                   {" order=ep,tp,dp", " order=dp,ep,tp ranks_per_node=4"});
  expect_same_bits("model=llama-tiny mesh=rdp2.cp2.pp2 zero=1",
                   {" order=pp,rdp,cp", " order=rdp,cp,pp nodes=0,1,0,1,0,1,0,1"});
}

TEST(BitEquality, OfTheSizesOfBuckets) {
  const std::string words = "model=gpt-tiny mesh=dp4 zero=2 ";
  const auto at = [&](const std::string& bucket) {
    return test::train(test::case_of("model.layers=4 optimizer=sgd clip=0 global_batch=8 bucket=" +
                                     bucket + ' ' + words),
                       {.steps = 3});
  };
  expect_same_bits(at("1"), at("25MiB"), false);
}

// Parameters that the others' owners changed arrive before the next step reads them.
TEST(Copies, OfParametersAreEqualOverTheirOwnersAfterTheNextGather) {
  for (const std::string mesh : {"dp4 zero=1", "dp2.rdp2.tp2 zero=1", "pp2.dp2.cp2 zero=2"}) {
    const Case c = test::case_of(cat(kModel, "model=gpt-tiny overlap=reduce,sends mesh=", mesh));
    test::Trainer trainer(c.model, c.mesh, c.options, {.global_batch = c.global_batch});
    for (int step = 0; step < 3; ++step) {
      trainer.step();
      for (int rank = 0; rank < c.mesh.world(); ++rank) {
        const int first = c.mesh.members(kDataOwners, rank).front();
        for (const Bucket& bucket : trainer.plan().program_of(rank).buckets)
          EXPECT_EQ(trainer.executor().read(rank, bucket.value),
                    trainer.executor().read(first, bucket.value))
              << mesh << " rank " << rank;
      }
    }
  }
}

// The scalars of a step are summed over the world before anyone uses them.
TEST(Copies, OfTheStepsSumsAreEqualOnEveryRank) {
  for (const std::string mesh : {"dp4", "pp2.tp2.dp2", "cp2.tp2 sequence_parallel=on"}) {
    const Case c = test::case_of(cat(kModel, "model=gpt-tiny mesh=", mesh));
    test::Trainer trainer(c.model, c.mesh, c.options, {.global_batch = c.global_batch});
    trainer.step();
    const auto scalars = [&](int rank) {
      return trainer.executor().read(rank, trainer.plan().program_of(rank).scalars);
    };
    for (int rank = 1; rank < c.mesh.world(); ++rank) EXPECT_EQ(scalars(rank), scalars(0)) << mesh;
  }
}

}  // namespace
}  // namespace mb
