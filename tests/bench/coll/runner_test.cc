#include "bench/coll/runner.h"

#include <gtest/gtest.h>

#include "bench/coll/needs.h"
#include "bench/coll/rank.h"
#include "bench/coll/summary.h"
#include "tests/support/error.h"
#include "tests/support/faulty_comm.h"

namespace mb {
namespace {

CollConfig small(const char* mesh) {
  CollConfig config;
  config.mesh = Mesh::parse(mesh);
  config.sizes = {4096};
  config.warm_up = 2;
  config.least = 6;
  config.most = 12;
  config.timeout_s = 30;
  return config;
}

PointResult measure(const CollConfig& config, const Point& point) {
  ThreadWorld world(config.mesh.world());
  CollRunner runner(world, config, {point});
  return *runner.measure(point);
}

// The process of rank 0. The others' ranks do nothing; 0 and 1 are on one machine, each on a host
// of its own.
class FirstOfMany final : public World {
 public:
  explicit FirstOfMany(int ranks) : threads_(ranks) {}
  int size() const override { return threads_.size(); }
  const std::vector<int>& local_ranks() const override { return local_ranks_; }
  std::unique_ptr<Comm> comm(const std::string& name, const std::vector<int>& members,
                             int rank) override {
    return threads_.comm(name, members, rank);
  }
  void abort(const std::string& reason) override { threads_.abort(reason); }
  bool aborted() const override { return threads_.aborted(); }
  std::string reason() const override { return threads_.reason(); }
  std::string host_of(int rank) const override { return cat("host", rank); }
  std::string machine_of(int rank) const override { return rank < 2 ? "one" : "other"; }

  std::map<int, std::optional<Standing>> ask_others(double) override {
    ++asked;
    if (asked == 1) answers.at(1)->idle_s = 0;
    if (asked == 2) answers.at(1)->idle_s = 1e9;
    return answers;
  }

  int asked = 0;
  std::map<int, std::optional<Standing>> answers;

 private:
  ThreadWorld threads_;
  const std::vector<int> local_ranks_{0};
};

TEST(Runner, HostsOfOneMachineShareItsCores) {
  const FirstOfMany world(3);
  EXPECT_EQ(ranks_on_machine(world), (std::vector<int>{0, 1}));
  EXPECT_EQ(core_share(world, Cores()).ranks, 2);
}

TEST(Runner, HostsOfOneMachineShareItsMemory) {
  FirstOfMany world(3);
  const std::string message =
      message_of([&] { check_memory(world, small("dp3"), {{.bytes = std::int64_t{1} << 46}}); });
  EXPECT_NE(message.find("384 TiB"), std::string::npos) << message;
}

TEST(Runner, MeasuresEveryGroupOfEveryAxis) {
  const CollConfig config = small("dp2.cp2.tp2");
  for (const char* axis : {"tp", "cp", "dp", "dp.cp", "world"}) {
    const Group group = group_named(axis, "axis");
    const PointResult result = measure(config, {.group = group, .bytes = 4096});
    const auto groups = config.mesh.groups(group);
    ASSERT_EQ(result.groups.size(), groups.size()) << axis;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      EXPECT_EQ(result.groups[g].ranks, groups[g]);
      EXPECT_EQ(result.groups[g].findings.wrong, 0);
      EXPECT_GT(result.groups[g].findings.checked, 0);
      const Samples& samples = result.groups[g].of(Series::operation);
      EXPECT_GE(samples.operations(), config.least);
      EXPECT_LE(samples.operations(), config.most);
      for (const double ns : completions_ns(samples)) EXPECT_GE(ns, 0);
    }
  }
}

TEST(Runner, EveryOperationIsRightInEveryType) {
  for (int operation = 0; operation < kOperations; ++operation) {
    for (const DType type : {DType::fp32, DType::bf16, DType::uint8, DType::int64}) {
      for (const bool in_place : {false, true}) {
        const Point point{.operation = static_cast<Operation>(operation),
                          .bytes = 4096,
                          .type = type,
                          .in_place = in_place};
        if (in_place && !can_be_in_place(point.operation)) continue;
        const PointResult result = measure(small("dp3"), point);
        EXPECT_EQ(result.groups[0].findings.wrong, 0) << to_text(point);
      }
    }
  }
}

TEST(Runner, EveryOperationIsRightThroughAStream) {
  CollConfig config = small("dp3");
  config.call = CallKind::stream;
  for (int operation = 0; operation < kOperations; ++operation) {
    for (const bool in_place : {false, true}) {
      const Point point{.operation = static_cast<Operation>(operation),
                        .bytes = 4096,
                        .type = DType::bf16,
                        .in_place = in_place};
      if (in_place && !can_be_in_place(point.operation)) continue;
      const PointResult result = measure(config, point);
      EXPECT_EQ(result.groups[0].findings.wrong, 0) << to_text(point);
    }
  }
}

TEST(Runner, ASubmissionReturnsBeforeItsOperationEnds) {
  for (const CallKind call : {CallKind::blocking, CallKind::stream}) {
    CollConfig config = small("dp2");
    config.call = call;
    const GroupResult group = measure(config, {.bytes = 4096}).groups[0];
    const Samples &operation = group.of(Series::operation), &submit = group.of(Series::submit);
    if (call == CallKind::blocking) {
      EXPECT_EQ(submit.operations(), 0);
      continue;
    }
    EXPECT_EQ(submit.start, operation.start);
    ASSERT_EQ(submit.operations(), operation.operations());
    for (std::int64_t i = 0; i < submit.operations(); ++i)
      EXPECT_LE(submit.end[1][i], operation.end[1][i]);
  }
}

TEST(Runner, AStreamGoesWithBesideAndOverlap) {
  CollConfig config = small("dp2.tp2");
  config.call = CallKind::stream;
  const Point beside{.group = group_of(Axis::tp),
                     .bytes = 4096,
                     .beside = Beside{Operation::all_reduce, group_of(Axis::dp), 65536}};
  const Point overlap{.bytes = 4096, .overlap = ComputeKind::matmul};
  for (const Point& point : {beside, overlap}) {
    const GroupResult group = measure(config, point).groups[0];
    const Series other = point.beside ? Series::alone : Series::operation_in_both;
    EXPECT_EQ(group.findings.wrong, 0);
    EXPECT_EQ(group.of(Series::submit).operations(), group.of(Series::operation).operations());
    EXPECT_EQ(group.of(other).operations(), group.of(Series::operation).operations());
  }
}

TEST(Runner, AlgorithmsAreChecked) {
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::ring, Algorithm::halving_doubling,
                                    Algorithm::tree, Algorithm::two_level, Algorithm::native}) {
    CollConfig config = small("dp4");
    config.mesh.set_ranks_per_node(2);
    for (const Operation operation : {Operation::all_reduce, Operation::all_gather,
                                      Operation::reduce_scatter, Operation::broadcast}) {
      const PointResult result = measure(
          config,
          {.operation = operation, .bytes = 4096, .type = DType::bf16, .algorithm = algorithm});
      EXPECT_EQ(result.groups[0].findings.wrong, 0)
          << name_of(algorithm) << ' ' << name_of(operation);
    }
  }
}

TEST(Runner, OneGroupAloneLeavesTheOthersOut) {
  CollConfig config = small("dp2.tp2");
  config.all_groups = false;
  const PointResult result = measure(config, {.group = group_of(Axis::tp), .bytes = 4096});
  ASSERT_EQ(result.groups.size(), 1u);
  EXPECT_EQ(result.groups[0].ranks, (std::vector<int>{0, 1}));
}

TEST(Runner, OneRankIsMeasuredToo) {
  EXPECT_GE(measure(small("1"), {.bytes = 4096}).groups[0].of(Series::operation).operations(), 6);
}

TEST(Runner, AMemberWithoutAPartnerTakesNoPart) {
  const PointResult result =
      measure(small("dp3"), {.operation = Operation::both_ways, .bytes = 4096});
  EXPECT_EQ(result.groups[0].ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(result.groups[0].findings.wrong, 0);
}

TEST(Runner, ColdBuffersRotateAndAreRight) {
  CollConfig config = small("dp2");
  config.cache = Cache::cold;
  config.pages = PageSize::small;
  const PointResult result = measure(config, {.bytes = 4 << 20, .in_place = true});
  EXPECT_EQ(result.groups[0].findings.wrong, 0);
}

TEST(Runner, BesideIsMeasuredWithAndWithoutTheOther) {
  const CollConfig config = small("dp2.tp2");
  const PointResult result =
      measure(config, {.group = group_of(Axis::tp),
                       .bytes = 4096,
                       .beside = Beside{Operation::all_reduce, group_of(Axis::dp), 65536}});
  for (const GroupResult& group : result.groups) {
    EXPECT_EQ(group.of(Series::alone).operations(), group.of(Series::operation).operations());
    EXPECT_EQ(group.findings.wrong, 0);
  }
}

TEST(Runner, OverlapIsMeasuredThreeWays) {
  for (const ComputeKind kind : {ComputeKind::matmul, ComputeKind::memory}) {
    const PointResult result = measure(small("dp2"), {.bytes = 4096, .overlap = kind});
    const GroupResult& group = result.groups[0];
    const auto n = group.of(Series::operation).operations();
    EXPECT_GE(result.compute_units, 1);
    for (const Series series :
         {Series::compute, Series::both, Series::operation_in_both, Series::compute_in_both})
      EXPECT_EQ(group.of(series).operations(), n);
    for (std::int64_t i = 0; i < n; ++i) {
      EXPECT_GE(group.of(Series::both).end[0][i], group.of(Series::compute_in_both).end[0][i]);
      EXPECT_GE(group.of(Series::both).end[0][i], group.of(Series::operation_in_both).end[0][i]);
    }
  }
}

TEST(Runner, ARankKeptBackIsNamedLate) {
  CollConfig config = small("dp4");
  config.injection = Injection{2, 3'000'000};
  const PointResult result = measure(config, {.bytes = 4096});
  const Verdict verdict = judge_group(result.groups[0].of(Series::operation), 0);
  EXPECT_EQ(verdict.fault, Fault::late_rank);
  EXPECT_EQ(verdict.who, std::vector<int>{2});
}

TEST(Runner, ARankThatNeverComesIsToldWithThePlaceOfEach) {
  CollConfig config = small("dp3");
  config.injection = Injection{1, std::int64_t{3600} * 1'000'000'000};
  config.timeout_s = 0.3;
  const std::string message = message_of([&] { measure(config, {.bytes = 4096}); });
  for (const char* part : {"all_reduce of 4 KiB", "0.3 s", "have arrived: 0, 2 (in operation 0)",
                           "1 (kept back before operation 0", "timeout_s="})
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
}

TEST(Runner, ARunLastsAsLongAsAnotherProcessWorksAndThenTellsOfEach) {
  CollConfig config = small("dp3");
  config.timeout_s = 0.2;
  FirstOfMany world(3);
  world.answers = {{1, World::Standing{"rank 1 on host1: in operation 7", 0}}, {2, std::nullopt}};
  const Point point{.bytes = 4096};
  CollRunner runner(world, config, {point});
  const std::string message = message_of([&] { runner.measure(point); });
  EXPECT_EQ(world.asked, 2);
  for (const char* part :
       {"nothing has moved for 0.2 s; rank 2 on host2 does not answer; rank 0 on "
        "host0: ",
        "; rank 1 on host1: in operation 7; timeout_s="})
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
}

TEST(Runner, ARankThatFailsEndsTheRunAndIsNamed) {
  for (const CallKind call : {CallKind::blocking, CallKind::stream}) {
    CollConfig config = small("dp3");
    config.call = call;
    test::FaultyWorld world(3, "coll world", {.before = [](int rank, int calls) -> bool {
                              if (rank == 2 && calls == 4) throw Error("the link is down");
                              return true;
                            }});
    const Point point{.bytes = 4096};
    CollRunner runner(world, config, {point});
    const std::string message = message_of([&] { runner.measure(point); });
    EXPECT_NE(message.find("rank 2: the link is down"), std::string::npos) << message;
  }
}

TEST(Runner, InterruptedRunStopsOnAllRanks) {
  const CollConfig config = small("dp2");
  ThreadWorld world(2);
  const Point point{.bytes = 4096};
  CollRunner runner(world, config, {point}, [] { return true; });
  EXPECT_TRUE(runner.measure(point)->interrupted);
  EXPECT_TRUE(runner.was_interrupted());
}

TEST(Runner, RefusesMoreMemoryThanThereIsBeforeItBegins) {
  const CollConfig config = small("dp2");
  ThreadWorld world(2);
  const std::string message =
      message_of([&] { CollRunner runner(world, config, {{.bytes = std::int64_t{1} << 46}}); });
  EXPECT_NE(message.find("256 TiB"), std::string::npos) << message;
  EXPECT_NE(message.find("left"), std::string::npos) << message;
}

TEST(Runner, BufferBytesAreThoseOfTheLargestPoint) {
  const CollConfig config = small("dp4");
  const std::vector<Point> points = {
      {.operation = Operation::all_gather, .bytes = 4096},
      {.operation = Operation::all_reduce, .bytes = 1024},
      {.operation = Operation::gather, .bytes = 1 << 20, .in_place = true}};
  EXPECT_EQ(buffer_bytes(config, points, 0), 1024 + (1 << 20));
  EXPECT_EQ(buffer_bytes(config, points, 1), 1024 + (1 << 18));
}

TEST(Runner, AlgorithmsAndProcessesTakeTheLargestOperandOnTop) {
  const CollConfig config = small("dp4");
  const std::vector<Point> points = {
      {.operation = Operation::all_gather, .bytes = 1 << 20},
      {.operation = Operation::all_reduce, .bytes = 4096, .algorithm = Algorithm::ring}};
  EXPECT_EQ(scratch_bytes(config, points, 0, false), 4096);
  EXPECT_EQ(scratch_bytes(config, points, 0, true), 1 << 20);
  EXPECT_EQ(scratch_bytes(config, {points[0]}, 0, false), 0);
}

}  // namespace
}  // namespace mb
