// The main of tests that run alone, on threads, and under mpirun, on its ranks: then rank 0 tells
// what passes, and every rank what fails.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/support/launched.h"

namespace mb::test {
namespace {

class FailuresOnly : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override { test_ = test.name(); }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d, %s: %s:%d: %s\n", launched()->rank(), test_.c_str(),
                 result.file_name() ? result.file_name() : "?", result.line_number(),
                 result.message());
  }
  std::string test_;
};

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!testing::GTEST_FLAG(list_tests)) start_ranks();
  if (launched() && launched()->rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  const int failed = RUN_ALL_TESTS();
  end_ranks();
  return failed;
}

}  // namespace
}  // namespace mb::test

int main(int argc, char** argv) { return mb::test::run(argc, argv); }
