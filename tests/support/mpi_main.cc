// The main of tests that run alone, on threads, and under mpirun, on its ranks: then rank 0 tells
// what passes, and every rank what fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "parallel/comm/launcher.h"
#include "tests/support/launched.h"

namespace mb::test {
namespace {

std::unique_ptr<MpiWorld> world;

class FailuresOnly : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override { test_ = test.name(); }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d, %s: %s:%d: %s\n", world->rank(), test_.c_str(),
                 result.file_name() ? result.file_name() : "?", result.line_number(),
                 result.message());
  }
  std::string test_;
};

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // Each case of a parameter is a test of its own, and discovery starts no ranks.
  if (launcher() && !testing::GTEST_FLAG(list_tests)) {
    // Small messages take the way of large ones.
    world = std::make_unique<MpiWorld>(
        MpiOptions{.piece_bytes = 3001, .native_limit = 700, .trust_kernel_clock = false});
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    if (world->rank() != 0) {
      delete listeners.Release(listeners.default_result_printer());
      listeners.Append(new FailuresOnly);
    }
  }
  const int failed = RUN_ALL_TESTS();
  world.reset();
  return failed;
}

}  // namespace

MpiWorld* launched() { return world.get(); }

}  // namespace mb::test

int main(int argc, char** argv) { return mb::test::run(argc, argv); }
