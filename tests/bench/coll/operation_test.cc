#include "bench/coll/operation.h"

#include <gtest/gtest.h>

#include <numeric>

#include "bench/coll/check.h"
#include "tests/support/rank_threads.h"

namespace mb {
namespace {

CollCall of(Operation operation, int members, std::int64_t bytes, DType type = DType::fp32) {
  return call_of(operation, members, bytes, type, ReduceOp::sum, 0);
}

TEST(Operation, SizeIsThatOfNcclTests) {
  // Table: what is printed as count for S bytes of fp32 over 4 ranks.
  for (const Operation whole :
       {Operation::all_reduce, Operation::broadcast, Operation::reduce, Operation::shift})
    EXPECT_EQ(of(whole, 4, 4096).count, 1024);
  for (const Operation parts : {Operation::all_gather, Operation::reduce_scatter,
                                Operation::all_to_all, Operation::gather, Operation::scatter}) {
    EXPECT_EQ(of(parts, 4, 4096).count, 256);
    EXPECT_EQ(bytes_of(of(parts, 4, 4096)), 4096);
  }
  EXPECT_EQ(bytes_of(of(Operation::barrier, 4, 4096)), 0);
}

TEST(Operation, CountsAreRoundedDownToWhatTheMembersDivide) {
  EXPECT_EQ(bytes_of(of(Operation::all_gather, 3, 1024)), 1020);
  EXPECT_EQ(bytes_of(of(Operation::all_reduce, 3, 1027)), 1024);
  EXPECT_EQ(bytes_of(of(Operation::all_to_all, 7, 27)), 0);
}

TEST(Operation, CountsOf64BitsStayExact) {
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_EQ(of(Operation::all_gather, 8, huge).count, huge / 32);
  EXPECT_EQ(elements_out(of(Operation::all_gather, 8, huge), 0), huge / 4);
  EXPECT_LE(bytes_of(of(Operation::all_to_all_v, 8, huge)), huge);
}

TEST(Operation, FactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(*factor_of(of(Operation::all_reduce, 4, 64)), 1.5);
  EXPECT_DOUBLE_EQ(*factor_of(of(Operation::all_gather, 4, 64)), 0.75);
  EXPECT_DOUBLE_EQ(*factor_of(of(Operation::reduce, 4, 64)), 1);
  EXPECT_DOUBLE_EQ(*factor_of(of(Operation::ping_pong, 4, 64)), 1);
  EXPECT_FALSE(factor_of(of(Operation::all_reduce, 1, 64)));
  EXPECT_FALSE(factor_of(of(Operation::barrier, 4, 0)));
}

TEST(Operation, UnevenAllToAllCountsWhatTheBusiestMemberDoesNotKeep) {
  const CollCall call = of(Operation::all_to_all_v, 3, 3 << 20);
  std::int64_t busiest = 0, own = 0;
  for (int k = 0; k < 3; ++k) {
    const std::int64_t sent = call.sent_by(k), received = call.received_by(k);
    EXPECT_EQ(received, sent) << "the weights are symmetric";
    if (sent > busiest) busiest = sent, own = call.sends(k)[k];
  }
  EXPECT_EQ(bytes_of(call), 4 * busiest);
  EXPECT_NEAR(static_cast<double>(bytes_of(call)), 3 << 20, 64);
  EXPECT_DOUBLE_EQ(*factor_of(call), 1 - static_cast<double>(own) / static_cast<double>(busiest));
  EXPECT_NE(call.sends(0)[0], call.sends(0)[1]);
}

// Every operation, type and place, over counts that the members do and do not divide.
void expect_right(Operation operation, int members, std::int64_t bytes, DType type, ReduceOp redop,
                  bool in_place, int root) {
  const CollCall call = call_of(operation, members, bytes, type, redop, root);
  ThreadWorld world(members);
  std::vector<Findings> findings(members);
  const std::string failure = test::on_ranks(world, [&](int rank) {
    const auto comm = world.comm("all", test::first_ranks(members), rank);
    const std::int64_t room = std::max(elements_in(call, rank), elements_out(call, rank));
    std::vector<std::byte> in(room * size_of(type)), out(room * size_of(type));
    Checker checker(call, rank, in_place, 1);
    for (int i = 0; i < 3; ++i) {
      if (i != 1) checker.fill(in.data(), out.data());
      if (i == 1) checker.fill_some(i, in.data(), out.data());
      issue(*comm, call, operands(call, rank, in_place, in.data(), out.data()));
      i == 1 ? checker.check_some(i, in.data(), out.data())
             : checker.check_all(i, in.data(), out.data());
    }
    findings[rank] = checker.findings();
  });
  EXPECT_EQ(failure, "");
  std::int64_t checked = 0;
  for (int rank = 0; rank < members; ++rank) {
    const Findings& f = findings[rank];
    EXPECT_EQ(f.wrong, 0) << name_of(operation) << ' ' << name_of(type) << ' ' << name_of(redop)
                          << " of " << members << (in_place ? " in place" : "") << ", rank " << rank
                          << " element " << f.index << ": got " << element_text(f.got, type)
                          << ", expected " << element_text(f.expected, type);
    checked += f.checked;
  }
  EXPECT_EQ(checked > 0, call.count > 0 && bytes_of(call) > 0) << name_of(operation);
}

TEST(Operation, MovesAndSumsWhatTheCheckerExpectsOnAnyNumberOfMembers) {
  for (int operation = 0; operation < kOperations; ++operation) {
    const auto op = static_cast<Operation>(operation);
    for (const int members : {1, 2, 3, 5, 8}) {
      if (is_of_pairs(op) && members == 1) continue;
      for (const std::int64_t bytes : {0, 4, 4 * (members - 1), 4 * members, 40'000}) {
        for (const bool in_place : {false, true}) {
          if (in_place && !can_be_in_place(op)) continue;
          expect_right(op, members, bytes, DType::fp32, ReduceOp::sum, in_place, members - 1);
        }
      }
    }
  }
}

TEST(Operation, IsExactInEveryTypeAndReduction) {
  for (int type = 0; type < kDTypes; ++type) {
    for (int redop = 0; redop < 5; ++redop) {
      for (const int members : {2, 3, 7}) {
        for (const Operation op : {Operation::all_reduce, Operation::reduce_scatter}) {
          for (const bool in_place : {false, true})
            expect_right(op, members, 20'000, static_cast<DType>(type),
                         static_cast<ReduceOp>(redop), in_place, 0);
        }
      }
    }
  }
}

TEST(Operation, ManyMembersStayExactIn16Bits) {
  for (const ReduceOp redop : {ReduceOp::sum, ReduceOp::prod, ReduceOp::avg}) {
    expect_right(Operation::all_reduce, 40, 4000, DType::bf16, redop, false, 0);
    expect_right(Operation::all_reduce, 40, 4000, DType::fp16, redop, false, 0);
    expect_right(Operation::all_reduce, 40, 4000, DType::int8, redop, false, 0);
  }
}

}  // namespace
}  // namespace mb
