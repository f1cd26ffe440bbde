// Faults of communication that the checks have to see, each by itself.
#include "bench/coll/check.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/coll/runner.h"
#include "tests/support/faulty_comm.h"
#include "workloads/base/half.h"

namespace mb {
namespace {

constexpr std::int64_t kBytes = 256 << 10;

PointResult run(Operation operation, test::Fault fault, bool in_place = false,
                DType type = DType::fp32) {
  CollConfig config;
  config.operations = {operation};
  config.mesh = Mesh::parse("dp4");
  config.dtypes = {type};
  config.sizes = {kBytes};
  config.warm_up = 2;
  config.least = config.most = 16;
  config.timeout_s = 30;
  test::FaultyWorld world(4, "coll world", std::move(fault));
  const Point point{.operation = operation, .bytes = kBytes, .type = type, .in_place = in_place};
  CollRunner runner(world, config, {point});
  return *runner.measure(point);
}

std::int64_t wrong_in(const PointResult& result) { return result.groups[0].findings.wrong; }

const Operation kAll[] = {Operation::all_reduce,   Operation::all_gather, Operation::reduce_scatter,
                          Operation::broadcast,    Operation::reduce,     Operation::all_to_all,
                          Operation::all_to_all_v, Operation::gather,     Operation::scatter,
                          Operation::shift};

TEST(Check, FindsNothingWhereNothingIsWrong) {
  for (const Operation operation : kAll) {
    EXPECT_EQ(wrong_in(run(operation, {})), 0) << name_of(operation);
    if (!can_be_in_place(operation)) continue;
    EXPECT_EQ(wrong_in(run(operation, {}, true)), 0) << name_of(operation);
  }
}

TEST(Check, FindsOneFlippedBit) {
  for (const Operation operation : kAll) {
    const int rank =
        has_root(operation) && operation != Operation::broadcast && operation != Operation::scatter
            ? 0
            : 2;
    const PointResult result =
        run(operation, {.after = [rank](int r, int, std::byte* to, std::int64_t bytes) {
              if (r == rank) to[bytes / 2 + 1] ^= std::byte{1};
            }});
    const Findings& f = result.groups[0].findings;
    EXPECT_GT(f.wrong, 0) << name_of(operation);
    EXPECT_EQ(result.groups[0].wrong_rank, rank) << name_of(operation);
    EXPECT_EQ(f.got ^ f.expected, std::uint64_t{1} << 8) << name_of(operation);
  }
}

TEST(Check, NamesTheElement) {
  const PointResult result =
      run(Operation::all_reduce, {.after = [](int rank, int, std::byte* to, std::int64_t) {
            if (rank == 1) to[4 * 1234] ^= std::byte{1};
          }});
  EXPECT_EQ(result.groups[0].findings.index, 1234);
  EXPECT_EQ(result.groups[0].wrong_rank, 1);
}

TEST(Check, FindsTwoChunksThatChangedPlaces) {
  for (const Operation operation : {Operation::all_gather, Operation::all_to_all,
                                    Operation::all_reduce, Operation::broadcast}) {
    const PointResult result =
        run(operation, {.after = [](int rank, int, std::byte* to, std::int64_t bytes) {
              if (rank == 3) std::swap_ranges(to, to + bytes / 4, to + bytes / 2);
            }});
    EXPECT_GT(wrong_in(result), kBytes / 16) << name_of(operation);
  }
}

TEST(Check, FindsABufferThatIsLeftFromBefore) {
  // One member alone would wait for ever, so that all leave the call out, as a lost one looks.
  for (const Operation operation : kAll) {
    for (const bool in_place : {false, true}) {
      if (in_place && !can_be_in_place(operation)) continue;
      EXPECT_GT(
          wrong_in(run(operation, {.before = [](int, int call) { return call < 6; }}, in_place)), 0)
          << name_of(operation) << in_place;
    }
  }
}

TEST(Check, FindsThatAMemberIsMissingFromASum) {
  for (const DType type : {DType::fp32, DType::bf16, DType::int8}) {
    const PointResult result =
        run(Operation::all_reduce,
            {.after =
                 [type](int rank, int, std::byte* to, std::int64_t bytes) {
                   // As if this member had added zeros.
                   if (rank != 0) return;
                   const CollCall call =
                       call_of(Operation::all_reduce, 4, kBytes, type, ReduceOp::sum, 0);
                   Checker other(call, 3, false, 1);
                   std::vector<std::byte> in(bytes), out(bytes);
                   other.fill(in.data(), out.data());
                   if (type == DType::int8) {
                     for (std::int64_t i = 0; i < bytes; ++i)
                       to[i] = std::byte(static_cast<std::uint8_t>(to[i]) -
                                         static_cast<std::uint8_t>(in[i]));
                   } else if (type == DType::fp32) {
                     auto* sum = reinterpret_cast<float*>(to);
                     const auto* own = reinterpret_cast<const float*>(in.data());
                     for (std::int64_t i = 0; i < bytes / 4; ++i) sum[i] -= own[i];
                   } else {
                     auto* sum = reinterpret_cast<Bf16*>(to);
                     const auto* own = reinterpret_cast<const Bf16*>(in.data());
                     for (std::int64_t i = 0; i < bytes / 2; ++i) sum[i] = Bf16(sum[i] - own[i]);
                   }
                 }},
            false, type);
    EXPECT_GT(wrong_in(result), kBytes / 16) << name_of(type);
  }
}

TEST(Check, SamplingAloneSeesAWrongEndOfABuffer) {
  const CollCall call = call_of(Operation::all_gather, 2, 4096, DType::fp32, ReduceOp::sum, 0);
  Checker checker(call, 0, false, 1);
  std::vector<std::byte> in(4096), out(4096);
  checker.fill(in.data(), out.data());
  checker.fill_some(0, in.data(), out.data());
  checker.check_some(0, in.data(), out.data());
  EXPECT_GE(checker.findings().wrong, 4);
}

}  // namespace
}  // namespace mb
