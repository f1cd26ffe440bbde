// Plans written by hand on ranks as threads: every collective between tensors and in place, what is
// refused, and who gets which share of the batch.
#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "parallel/exec/executor.h"
#include "parallel/plan/builder.h"
#include "parallel/plan/validate.h"
#include "tests/support/devices.h"
#include "tests/support/error.h"

namespace mb {
namespace {

CommCount total(const Executor& executor, int rank) {
  CommCount sum;
  for (const CommCount& count : executor.traffic(rank)) sum += count;
  return sum;
}

// Rows for each of 8 experts: 12 from every rank, 12 for every rank of 4.
std::int32_t rows_of(int sender, int expert) { return (sender + expert) % 4; }

// Micro-batch 0: element i of data rank d is 100 d + i. Micro-batch 1: the rows that it sends to
// each expert, and that its two experts get from each rank.
class NumberedBatches final : public BatchSource {
 public:
  void load(std::int64_t /*step*/, int data_index, int micro_batch, std::int64_t batch,
            std::int64_t sequence, std::int32_t* tokens, std::int32_t* labels) const override {
    for (int i = 0; i < batch * sequence; ++i) {
      const std::int32_t number = 100 * data_index + i;
      if (tokens) tokens[i] = micro_batch == 0 ? number : rows_of(data_index, i);
      if (labels) labels[i] = micro_batch == 0 ? number : rows_of(i / 2, 2 * data_index + i % 2);
    }
  }
};

// A plan of one stage, written by hand. All tensors are int32 and stay.
struct HandPlan {
  explicit HandPlan(const std::string& mesh) {
    plan.mesh = Mesh::parse(mesh);
    plan.names = {"x"};
    builder.program().scalars =
        builder.persistent(0, kScalars, DType::fp32, MemoryClass::workspace);
  }
  TensorId tensor(std::int64_t elements) {
    return builder.persistent(0, elements, DType::int32, MemoryClass::activation);
  }
  TensorId head(TensorId whole, std::int64_t elements) {
    return builder.view(whole, 0, 0, elements, MemoryClass::activation);
  }
  void load(int micro_batch, TensorId tokens, TensorId labels, std::int64_t elements) {
    plan.ops.push_back(Op{LoadBatch{1, elements}});
    builder.emit(Stream::compute, {.pass = Pass::input, .micro_batch = micro_batch},
                 Compute{static_cast<std::uint32_t>(plan.ops.size() - 1)}, {}, {tokens, labels});
  }
  TensorId numbered(std::int64_t elements) {
    const TensorId numbers = tensor(elements);
    load(0, numbers, tensor(elements), elements);
    return numbers;
  }
  void collect(CollectiveKind kind, Group group, std::initializer_list<TensorId> reads,
               TensorId write, std::int32_t unit = 1) {
    builder.emit(Stream::dp, {.pass = Pass::reduce}, Collective{kind, ReduceOp::sum, group, unit},
                 reads, {write});
  }
  TensorId collected(CollectiveKind kind, Group group, TensorId from, std::int64_t elements) {
    const TensorId to = tensor(elements);
    collect(kind, group, {from}, to);
    return to;
  }
  std::unique_ptr<Executor> run() {
    plan.programs.push_back(builder.finish());
    validate(plan);
    auto executor = make_thread_executor(
        plan, {.make_device = test::devices(), .batches = &batches, .poison = poison});
    executor->step();
    return executor;
  }

  bool poison = false;
  NumberedBatches batches;
  Plan plan;
  ProgramBuilder builder{0};
};

// [0, count) through `value`.
template <class Value>
std::vector<double> sequence(int count, Value value) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(value(i));
  return values;
}

TEST(ThreadExecutor, CarriesOutEveryCollectiveBetweenTensorsAndInPlace) {
  using enum CollectiveKind;
  constexpr int n = 4, each = 3, whole = n * each;
  HandPlan hand("dp4");
  const Group dp = group_of(Axis::dp);
  const TensorId x = hand.numbered(whole);
  const TensorId reduced = hand.collected(all_reduce, dp, x, whole);
  const TensorId gathered = hand.collected(all_gather, dp, hand.head(x, each), whole);
  const TensorId scattered = hand.collected(reduce_scatter, dp, x, each);
  const TensorId exchanged = hand.collected(all_to_all, dp, x, whole);
  const TensorId shifted = hand.collected(shift, dp, x, whole);
  const TensorId copied = hand.collected(broadcast, dp, x, whole);
  std::vector<TensorId> in_place;
  for (const CollectiveKind kind : {all_reduce, all_gather, reduce_scatter, broadcast}) {
    in_place.push_back(hand.numbered(whole));
    hand.collect(kind, dp, {in_place.back()}, in_place.back());
  }
  const auto executor = hand.run();
  for (int rank = 0; rank < n; ++rank) {
    SCOPED_TRACE(cat("rank ", rank));
    const auto values = [&](TensorId t) { return executor->read(rank, t); };
    const auto sum = [](int i) { return 600 + 4 * i; };
    const auto own = [&](int i) { return 100 * rank + i; };
    EXPECT_EQ(values(x), sequence(whole, own));
    EXPECT_EQ(values(reduced), sequence(whole, sum));
    EXPECT_EQ(values(gathered), sequence(whole, [](int i) { return 100 * (i / 3) + i % 3; }));
    EXPECT_EQ(values(scattered), sequence(each, [&](int i) { return sum(each * rank + i); }));
    EXPECT_EQ(values(exchanged),
              sequence(whole, [&](int i) { return 100 * (i / 3) + each * rank + i % 3; }));
    EXPECT_EQ(values(shifted),
              sequence(whole, [&](int i) { return 100 * ((rank + n - 1) % n) + i; }));
    EXPECT_EQ(values(copied), sequence(whole, [](int i) { return i; }));
    EXPECT_EQ(values(in_place[0]), sequence(whole, sum));
    EXPECT_EQ(values(in_place[1]), sequence(whole, [](int i) { return 100 * (i / 3) + i; }));
    EXPECT_EQ(values(in_place[2]),
              sequence(whole, [&](int i) { return i / each == rank ? sum(i) : own(i); }));
    EXPECT_EQ(values(in_place[3]), sequence(whole, [](int i) { return i; }));
    EXPECT_EQ(total(*executor, rank), (CommCount{10, 10 * whole, 10 * whole * 4}));
  }
  std::int64_t planned = 0;
  for (const Instruction& i : hand.plan.programs[0].instructions)
    if (std::holds_alternative<Collective>(i.action))
      planned += payload_bytes(hand.plan.programs[0], i);
  EXPECT_EQ(planned, 10 * whole * 4);
}

TEST(ThreadExecutor, ExchangesRowsWithExpertsAsTheirCountsSay) {
  constexpr int n = 4, experts = 8, unit = 2, rows = 12;
  HandPlan hand("ep4");
  const TensorId buffer = hand.numbered(unit * rows), out = hand.tensor(unit * rows),
                 back = hand.tensor(unit * rows);
  const TensorId sent = hand.tensor(experts), received = hand.tensor(experts);
  hand.load(1, sent, received, experts);
  const Group ep = group_of(Axis::ep);
  hand.collect(CollectiveKind::all_to_all_v, ep, {buffer, sent, received}, out, unit);
  hand.collect(CollectiveKind::all_to_all_v, ep, {out, received, sent}, back, unit);
  const auto executor = hand.run();
  for (int rank = 0; rank < n; ++rank) {
    std::vector<double> expected;
    for (int from = 0; from < n; ++from) {
      int at = 0;
      for (int expert = 0; expert < experts; ++expert) {
        for (int i = 0; i < unit * rows_of(from, expert); ++i, ++at)
          if (expert / 2 == rank) expected.push_back(100 * from + at);
      }
    }
    EXPECT_EQ(executor->read(rank, out), expected);
    EXPECT_EQ(executor->read(rank, back), executor->read(rank, buffer));
    EXPECT_EQ(total(*executor, rank).elements, 2 * unit * rows);
  }
}

// Rank 8 rdp + 4 dp + 2 ep + tp; its data index leaves out tp.
TEST(ThreadExecutor, GivesRanksTheirShareOfTheBatchAndTheirGroups) {
  HandPlan hand("rdp2.dp2.ep2.tp2");
  const TensorId x = hand.numbered(1);
  const TensorId owners = hand.collected(CollectiveKind::all_gather, kDataOwners, x, 4);
  const TensorId replicas = hand.collected(CollectiveKind::all_gather, kReplicas, x, 2);
  Group pairs = kDataOwners;
  pairs.part = 2;
  const TensorId cut = hand.collected(CollectiveKind::all_gather, pairs, x, 2);
  const auto executor = hand.run();
  for (int rank = 0; rank < 16; ++rank) {
    const int data = rank / 2;
    EXPECT_EQ(executor->read(rank, x), std::vector<double>{100.0 * data});
    EXPECT_EQ(executor->read(rank, owners),
              sequence(4, [&](int i) { return 100 * (data / 4 * 4 + i); }));
    EXPECT_EQ(executor->read(rank, replicas),
              sequence(2, [&](int i) { return 100 * (data % 4 + 4 * i); }));
    EXPECT_EQ(executor->read(rank, cut),
              sequence(2, [&](int i) { return 100 * (data / 2 * 2 + i); }));
  }
}

TEST(ThreadExecutor, RefusesCollectivesOfTensorsThatDoNotFit) {
  const auto message = [](CollectiveKind kind, std::int64_t from, std::int64_t to) {
    HandPlan hand("dp2");
    hand.collected(kind, group_of(Axis::dp), hand.numbered(from), to);
    const std::string all = message_of([&] { hand.run(); });
    return all.substr(all.rfind(": ") + 2);
  };
  EXPECT_EQ(message(CollectiveKind::all_gather, 3, 7),
            "all_gather of 7 elements does not divide into 2 parts");
  EXPECT_EQ(message(CollectiveKind::all_gather, 3, 4),
            "all_gather has a tensor of 3 elements where 2 are wanted");
  EXPECT_EQ(message(CollectiveKind::reduce_scatter, 4, 1),
            "reduce_scatter has a tensor of 1 elements where 2 are wanted");
  EXPECT_EQ(message(CollectiveKind::shift, 4, 3),
            "shift has a tensor of 3 elements where 4 are wanted");
  HandPlan hand("ep4");
  const TensorId sent = hand.tensor(8), received = hand.tensor(8);
  hand.load(1, sent, received, 8);
  hand.collect(CollectiveKind::all_to_all_v, group_of(Axis::ep),
               {hand.numbered(12), sent, received}, hand.tensor(11));
  EXPECT_NE(message_of([&] {
              hand.run();
            }).find("all_to_all_v receives 12 elements; the buffer holds 11"),
            std::string::npos);
}

TEST(Poison, EndsARunThatWritesPastTheEndOfATensor) {
  HandPlan hand("1");
  hand.poison = true;
  hand.load(0, hand.tensor(4), hand.tensor(3), 4);
  EXPECT_EQ(message_of([&] { hand.run(); }),
            test::rank_text(0) + ": something has written past the end of x, of 12 bytes");
}

}  // namespace
}  // namespace mb
