// Every strategy, alone and in products, trains as one rank does: gradients, norm, loss and
// parameters after three steps of SGD.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/training.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

constexpr const char* kModel =
    "model.layers=4 model.init_std=0.2 optimizer=sgd learning_rate=0.1 bucket=20000 "
    "global_batch=8 ";

void expect_equal_to_one_rank(const std::string& words) {
  SCOPED_TRACE(words);
  const Case c = test::case_of(kModel + words);
  const test::TrainOptions three{.steps = 3};
  test::expect_equal(test::train(c, three), test::oracle_of(c, three),
                     tolerance_of(c.options.dtype));
}

struct Words {
  const char* words;
};
void PrintTo(const Words& words, std::ostream* out) { *out << words.words; }

class MeshOracle : public testing::TestWithParam<Words> {};
TEST_P(MeshOracle, TrainsAsOneRank) { expect_equal_to_one_rank(GetParam().words); }

const std::vector<Words> kCases = {
#include "tests/parallel/strategy/oracle_cases.inc"
};
INSTANTIATE_TEST_SUITE_P(Cases, MeshOracle, testing::ValuesIn(kCases));

}  // namespace
}  // namespace mb
