// Ranks folded into classes take as long as ranks each by themselves, to the bit, and both take
// what follows from the rules alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <tuple>

#include "parallel/cost/cost.h"
#include "parallel/exec/folded_step.h"
#include "parallel/exec/sim_executor.h"
#include "parallel/exec/virtual_time.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Cases of random meshes and strategies; those that break a rule are drawn again.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  int of(std::initializer_list<int> choices) { return choices.begin()[below(choices.size())]; }
  std::size_t below(std::size_t n) { return random_() % n; }

  struct Drawn {
    Plan plan;
    Machine machine;
    Stack stack;
    std::string text;
  };
  Drawn plan(int most_ranks) {
    while (true) {
      try {
        return one(most_ranks);
      } catch (const Error&) {
      }
    }
  }

  Imbalance imbalance(const Mesh& mesh) {
    Imbalance imbalance;
    const int slow = of({0, 1, 1, 1, 2, 3});
    for (int i = 0; i < slow; ++i)
      imbalance.ranks[static_cast<int>(below(mesh.world()))] = 1 + 0.1 * of({1, 2, 3, 7});
    if (of({0, 0, 1}) == 1)
      imbalance.nics[static_cast<int>(below(mesh.node_count()))] = of({2, 3}) * 1.5;
    return imbalance;
  }

 private:
  Drawn one(int most_ranks) {
    const std::string text =
        cat("rdp", of({1, 1, 1, 2}), ".dp", of({1, 2, 3, 4, 8}), ".pp", of({1, 2, 3, 4, 8}), ".cp",
            of({1, 1, 2}), ".ep", of({1, 1, 1, 2}), ".tp", of({1, 2, 4}));
    Mesh mesh = Mesh::parse(text);
    require(mesh.world() <= most_ranks, "too large");
    static const std::vector<const char*> orders = {"tp-cp-ep-dp-rdp-pp", "pp-tp-cp-ep-dp-rdp",
                                                    "dp-tp-pp-cp-rdp-ep"};
    mesh.set_order(orders[below(orders.size())]);
    mesh.set_ranks_per_node(of({2, 4, 8}));
    ModelConfig model = find_model("gpt-tiny");
    model.layers = mesh.size(Axis::pp) * of({1, 2});
    if (mesh.size(Axis::ep) > 1) model.experts = 4;
    StepOptions options{.schedule = std::array{"1f1b", "gpipe", "interleaved"}[below(3)],
                        .micro_batches = of({1, 2, 4, 8}),
                        .zero = of({0, 1, 2, 3}),
                        .sequence_parallel = of({0, 1}) == 1,
                        .recompute = std::array{Recompute::none, Recompute::full}[below(2)],
                        .bucket_bytes = of({1 << 10, 1 << 20})};
    options.overlap = {of({0, 1}) == 1, of({0, 1}) == 1, of({0, 1}) == 1};
    Stack stack = find_stack(std::array{"kernels", "megatron-vtrain"}[below(2)]);
    Machine machine = find_machine("a100x8");
    machine.gap_us = of({0, 2});
    machine.handoff_us = of({0, 5});
    return {plan_step(model, mesh, options), machine, stack,
            cat(mesh.to_text(), " order ", mesh.order(), ' ', options.schedule, " zero ",
                options.zero, " m ", options.micro_batches)};
  }

  std::mt19937_64 random_;
};

// 1,000 as MESHBENCH_FOLDED_PLANS=1000; by default what takes a second.
int plans_to_draw() {
  const char* number = std::getenv("MESHBENCH_FOLDED_PLANS");
  return number ? std::atoi(number) : 60;
}

// Largest difference of a start or end, over all ranks.
std::int64_t difference(const Timeline& a, const Timeline& b) {
  std::int64_t most = 0;
  for (int rank = 0; rank < static_cast<int>(a.lane_of_rank.size()); ++rank) {
    const auto &x = a.of(rank), &y = b.of(rank);
    for (std::size_t id = 0; id < x.size(); ++id)
      most = std::max(
          {most, std::abs(x[id].start_ns - y[id].start_ns), std::abs(x[id].end_ns - y[id].end_ns)});
  }
  return most;
}

TEST(Folding, ChangesNoTimeByANanosecond) {
  Draw draw(7);
  int folded_ranks = 0, ranks = 0, slowed = 0;
  for (int i = 0; i < plans_to_draw(); ++i) {
    const Draw::Drawn drawn = draw.plan(64);
    const auto cost = make_roofline_cost(drawn.plan, drawn.machine, drawn.stack);
    Imbalance imbalance = draw.imbalance(drawn.plan.mesh);
    const Timeline even = simulate(drawn.plan, *cost);
    for (const Imbalance& some : {Imbalance{}, imbalance}) {
      const Timeline folded = simulate(drawn.plan, *cost, some);
      const Timeline whole = simulate_each_rank(drawn.plan, *cost, some);
      ASSERT_EQ(whole.lanes.size(), static_cast<std::size_t>(drawn.plan.mesh.world()));
      ASSERT_EQ(difference(folded, whole), 0) << drawn.text << ", plan " << i;
      const StepCosts costs = costs_of(drawn.plan, *cost);
      FoldedStep runs(drawn.plan, RankClasses::folded(drawn.plan, some), costs);
      ASSERT_EQ(runs.end_ns(), folded.window().end_ns) << drawn.text << ", plan " << i;
      ASSERT_EQ(runs.end_ns(), folded.window().end_ns) << "recorded";
      ASSERT_GE(folded.window().end_ns, even.window().end_ns) << drawn.text;
      slowed += folded.window().end_ns > even.window().end_ns;
      folded_ranks += static_cast<int>(folded.lanes.size());
      ranks += static_cast<int>(whole.lanes.size());
    }
  }
  RecordProperty("lanes_folded", folded_ranks);
  RecordProperty("lanes_unfolded", ranks);
  RecordProperty("slowed", slowed);
  EXPECT_LT(folded_ranks, ranks);
  EXPECT_GT(slowed, plans_to_draw() / 4);
}

TEST(FoldedStep, GoesThroughAFewRunsOfAPipeline) {
  ModelConfig model = find_model("gpt-tiny");
  model.layers = 32;
  const Plan plan = plan_step(model, Mesh::parse("pp8.tp2"), {.micro_batches = 64});
  const auto cost = make_roofline_cost(plan, find_machine("a100x8"));
  FoldedStep step(plan, RankClasses::by_stage(plan), costs_of(plan, *cost));
  EXPECT_EQ(step.end_ns(), simulate(plan, *cost).window().end_ns);
  const FoldedStep::Counts counts = step.counts();
  EXPECT_EQ(counts.instructions, static_cast<std::int64_t>([&] {
              std::size_t sum = 0;
              for (const Program& program : plan.programs) sum += program.instructions.size();
              return sum;
            }()));
  EXPECT_LT(counts.runs, 8 * 64 * 3);
  EXPECT_LT(counts.types, 60);
  EXPECT_LT(counts.recorded, 150);
}

// With rates that change: with none that do, the same as without rates.
TEST(Folding, HoldsWhereRanksSlowEachOther) {
  Draw draw(19);
  int slowed = 0;
  for (int i = 0; i < plans_to_draw() / 3; ++i) {
    Draw::Drawn drawn = draw.plan(64);
    const Imbalance imbalance = draw.imbalance(drawn.plan.mesh);
    const RankClasses classes = RankClasses::folded(drawn.plan, imbalance);
    drawn.stack.comm_sm_share = 1e-300;
    const Timeline free = simulate(
        drawn.plan, *make_roofline_cost(drawn.plan, drawn.machine, find_stack(drawn.stack.name)),
        imbalance);
    StepCosts costs =
        costs_of(drawn.plan, *make_roofline_cost(drawn.plan, drawn.machine, drawn.stack));
    for (auto& of_stage : costs.interference) {
      for (Interference& beside : of_stage) beside.memory = 0;
    }
    ASSERT_FALSE(costs.interference.empty());
    ASSERT_EQ(difference(timeline_of(drawn.plan, classes, costs), free), 0) << drawn.text;
    drawn.stack.comm_sm_share = 0.15;
    drawn.stack.comm_slowed_by = 0.3;
    const auto cost = make_roofline_cost(drawn.plan, drawn.machine, drawn.stack);
    const Timeline folded = simulate(drawn.plan, *cost, imbalance);
    ASSERT_EQ(difference(folded, simulate_each_rank(drawn.plan, *cost, imbalance)), 0)
        << drawn.text << ", plan " << i;
    slowed += folded.window().end_ns > free.window().end_ns;
  }
  EXPECT_GT(slowed, 0);
}

// All times of all ranks from the rules, by going over them until none changes: no order, no
// classes, members of groups one by one.
std::vector<std::vector<Span>> times_by_rules(const Plan& plan, const StepCosts& costs,
                                              const std::map<int, double>& slow) {
  using Call = std::pair<int, InstructionId>;
  std::map<std::tuple<std::vector<int>, int, int>, std::vector<Call>> meetings;
  std::map<Call, std::vector<Call>*> meeting_of;
  const int world = plan.mesh.world();
  std::vector<std::vector<Span>> spans(world);
  for (int rank = 0; rank < world; ++rank) {
    const Program& program = plan.program_of(rank);
    spans[rank].resize(program.instructions.size());
    std::map<std::pair<std::vector<int>, int>, int> order;
    for (InstructionId id = 0; id < static_cast<InstructionId>(spans[rank].size()); ++id) {
      const Instruction& i = program.instructions[id];
      std::vector<int> who;
      int channel = static_cast<int>(i.stream);
      const auto peer = [&](int stage) {
        Coordinates place = plan.mesh.coordinates(rank);
        place[static_cast<int>(Axis::pp)] = stage;
        return plan.mesh.rank_of(place);
      };
      if (const auto* c = std::get_if<Collective>(&i.action)) {
        who = plan.mesh.members(c->group, rank);
      } else if (const auto* send = std::get_if<Send>(&i.action)) {
        who = {rank, peer(send->to)};
        channel = kStreams;
      } else if (const auto* recv = std::get_if<Recv>(&i.action)) {
        who = {peer(recv->from), rank};
        channel = kStreams;
      } else {
        continue;
      }
      const int turn = order[{who, channel}]++;
      std::vector<Call>& meeting = meetings[{who, channel, turn}];
      meeting.push_back({rank, id});
      meeting_of[{rank, id}] = &meeting;
    }
  }
  const auto duration = [&](const Call& call) {
    const int stage = plan.mesh.coordinate(call.first, Axis::pp);
    const std::int64_t ns = costs.duration_ns[stage][call.second];
    const bool compute =
        std::holds_alternative<Compute>(plan.programs[stage].instructions[call.second].action);
    const auto found = slow.find(call.first);
    return compute && found != slow.end() ? std::llround(static_cast<double>(ns) * found->second)
                                          : ns;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (int rank = 0; rank < world; ++rank) {
      const Program& program = plan.program_of(rank);
      std::array<std::int64_t, kStreams> free{};  // the first has no gap before it
      for (InstructionId id = 0; id < static_cast<InstructionId>(spans[rank].size()); ++id) {
        const Instruction& i = program.instructions[id];
        Span span{.start_ns = free[static_cast<int>(i.stream)]};
        for (InstructionId before : program.after(i))
          span.start_ns = std::max(span.start_ns, spans[rank][before].end_ns + costs.handoff_ns);
        span.end_ns = span.start_ns;
        if (const auto met = meeting_of.find({rank, id}); met != meeting_of.end()) {
          for (const Call& call : *met->second)
            span.end_ns = std::max(span.end_ns, spans[call.first][call.second].start_ns);
        }
        span.end_ns += duration({rank, id});
        free[static_cast<int>(i.stream)] = span.end_ns + costs.gap_ns;
        changed |= span != spans[rank][id];
        spans[rank][id] = span;
      }
    }
  }
  return spans;
}

TEST(Folding, TakesWhatFollowsFromTheRules) {
  Draw draw(11);
  for (int i = 0; i < 12; ++i) {
    const Draw::Drawn drawn = draw.plan(12);
    const auto cost = make_roofline_cost(drawn.plan, drawn.machine, find_stack("kernels"));
    const std::map<int, double> slow = {
        {static_cast<int>(draw.below(drawn.plan.mesh.world())), 1.5}};
    const auto expected = times_by_rules(drawn.plan, costs_of(drawn.plan, *cost), slow);
    const Timeline folded = simulate(drawn.plan, *cost, {.ranks = slow});
    for (int rank = 0; rank < drawn.plan.mesh.world(); ++rank)
      ASSERT_EQ(folded.of(rank), expected[rank]) << drawn.text << " rank " << rank;
  }
}

Plan regular_plan(const std::string& mesh) {
  ModelConfig model = find_model("gpt-tiny");
  model.layers = 4;
  return plan_step(model, Mesh::parse(mesh), {.micro_batches = 4, .zero = 1});
}

TEST(Folding, OfARegularMeshHasAClassAStage) {
  const Plan plan = regular_plan("dp4.pp4.tp4");
  EXPECT_EQ(RankClasses::folded(plan, {}).count(), 4);
  // What colours find by themselves, of ranks that are all equally slow.
  Imbalance all;
  for (int rank = 0; rank < plan.mesh.world(); ++rank) all.ranks[rank] = 1.5;
  const RankClasses found = RankClasses::folded(plan, all), given = RankClasses::by_stage(plan);
  ASSERT_EQ(found.count(), 4);
  EXPECT_EQ(found.of_rank(), given.of_rank());
  for (int c = 0; c < 4; ++c) {
    EXPECT_EQ(found.at(c).first_rank, given.at(c).first_rank);
    EXPECT_EQ(found.at(c).ranks, given.at(c).ranks);
    EXPECT_EQ(found.at(c).peers, given.at(c).peers);
    for (std::size_t g = 0; g < found.groups().size(); ++g) {
      const auto &a = found.at(c).groups[g].shares, &b = given.at(c).groups[g].shares;
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].of, b[i].of);
        EXPECT_EQ(a[i].ranks, b[i].ranks);
      }
    }
  }
}

// A straggler is a class of its own; so are those that meet it along each axis, at every stage.
TEST(Folding, OfAStragglerHasAFewClassesAStageHoweverLargeTheMesh) {
  for (const char* mesh : {"dp4.pp4.tp4", "dp64.pp4.tp4"}) {
    const Plan plan = regular_plan(mesh);
    EXPECT_EQ(RankClasses::folded(plan, {.ranks = {{5, 2.0}}}).count(), 4 * 4) << mesh;
  }
}

TEST(Folding, OfASlowNicSlowsOnlyWhatCrossesIt) {
  const Plan plan = regular_plan("dp4.tp4");
  const auto cost = make_roofline_cost(plan, find_machine("a100x8"));
  const std::int64_t even = simulate(plan, *cost).window().end_ns;
  EXPECT_GT(simulate(plan, *cost, {.nics = {{1, 4.0}}}).window().end_ns, even);
  const Plan one_node = regular_plan("dp2.tp4");
  const auto cost_there = make_roofline_cost(one_node, find_machine("a100x8"));
  EXPECT_EQ(simulate(one_node, *cost_there, {.nics = {{0, 4.0}}}).window().end_ns,
            simulate(one_node, *cost_there).window().end_ns);
}

}  // namespace
}  // namespace mb
