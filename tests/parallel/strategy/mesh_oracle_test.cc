// Every strategy, alone and in products, trains as one rank does: gradients, norm, loss and
// parameters after three steps of SGD, and of AdamW with all that it keeps.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/support/devices.h"
#include "tests/support/product.h"
#include "tests/support/training.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Memory starts poisoned: what a rank does not own or has not received yet never shows.
void expect_equal_to_one_rank(const std::string& words) {
  const test::TrainOptions three{.steps = 3};
  test::TrainOptions poisoned = three;
  poisoned.poison = true;
  SCOPED_TRACE(words);
  try {
    const Case c = test::case_of(words);
    if (!test::runs_here(c)) return;
    const test::Trained trained = test::train(c, poisoned);
    if (test::judges())
      test::expect_equal(trained, test::oracle_of(c, three),
                         tolerance_of(c.options.dtype) * test::order_factor());
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

// --- each strategy alone, and products that were worth a name ------------------------------------

constexpr const char* kModel = "model.layers=4 model.init_std=0.2 bucket=20000 global_batch=8 ";
constexpr const char* kSgd = " optimizer=sgd learning_rate=0.1";

struct Words {
  const char* words;
};
void PrintTo(const Words& words, std::ostream* out) { *out << words.words; }

class MeshOracle : public testing::TestWithParam<Words> {};
TEST_P(MeshOracle, TrainsAsOneRank) {
  const std::string words = kModel + std::string(GetParam().words);
  expect_equal_to_one_rank(words.find("optimizer=") == std::string::npos ? words + kSgd : words);
}

const std::vector<Words> kCases = {
#include "tests/parallel/strategy/oracle_cases.inc"
};
INSTANTIATE_TEST_SUITE_P(Cases, MeshOracle, testing::ValuesIn(kCases));

// --- every two choices together -----------------------------------------------------------------

constexpr int kShards = 6;

void expect_product_equal_to_one_rank(const test::Product& product, int shard) {
  if (shard == 0)
    std::printf("%zu cases hold %d pairs; %d pairs have no legal case; %d cases refused\n",
                product.cases.size(), product.pairs, product.impossible, product.refused);
  for (std::size_t i = shard; i < product.cases.size(); i += kShards)
    expect_equal_to_one_rank(product.cases[i]);
}

class MeshProduct : public testing::TestWithParam<int> {};
TEST_P(MeshProduct, OfEveryTwoChoicesTrainsAsOneRankInFp64) {
  expect_product_equal_to_one_rank(test::product_of_choices({cat("dtype=fp64", kSgd)}, /*seed=*/1),
                                   GetParam());
}
TEST_P(MeshProduct, OfEveryTwoChoicesTrainsAsOneRankWithAdamW) {
  expect_product_equal_to_one_rank(
      test::product_of_choices({"dtype=fp64 optimizer=adamw learning_rate=0.001"}, /*seed=*/2),
      GetParam());
}
TEST_P(MeshProduct, OfEveryTwoChoicesTrainsAsOneRankInEveryDtype) {
  std::vector<std::string> dtypes;
  for (const char* dtype :
       {"fp32", "bf16", "bf16 reduce_dtype=dtype", "fp16", "fp16 reduce_dtype=dtype loss_scale=64"})
    dtypes.push_back(cat("dtype=", dtype, kSgd));
  expect_product_equal_to_one_rank(test::product_of_choices(dtypes, /*seed=*/3), GetParam());
}
INSTANTIATE_TEST_SUITE_P(Shards, MeshProduct, testing::Range(0, kShards));

}  // namespace
}  // namespace mb
