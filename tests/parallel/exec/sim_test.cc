// Virtual time against closed forms, by equality.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "parallel/cost/cost.h"
#include "parallel/exec/sim_executor.h"
#include "parallel/plan/liveness.h"
#include "parallel/schedule/schedule.h"
#include "parallel/strategy/step.h"
#include "tests/support/error.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// One layer a stage, so that a stage's forward and backward are a layer's.
Plan plan_of(const std::string& schedule, int stages, int micro_batches,
             const std::string& rest = "", int layers_per_stage = 1) {
  ModelConfig model = find_model("gpt-tiny");
  model.layers = stages * layers_per_stage;
  return plan_step(model, Mesh::parse(cat("pp", stages, rest)),
                   {.schedule = schedule, .micro_batches = micro_batches});
}

std::int64_t busy_ns(const Plan& plan, const Timeline& timeline, int stage) {
  const Program& program = plan.programs[stage];
  std::int64_t busy = 0;
  for (std::size_t id = 0; id < program.instructions.size(); ++id) {
    const Span& span = timeline.lanes[stage][id];
    if (program.instructions[id].stream == Stream::compute) busy += span.end_ns - span.start_ns;
  }
  return busy;
}

// Where a stage is idle between 0 and `end_ns`, split at its first backward and at the end of its
// last forward.
struct Bubble {
  std::int64_t warm_up = 0, steady = 0, cool_down = 0;
  bool operator==(const Bubble&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Bubble& b) {
  return out << b.warm_up << ' ' << b.steady << ' ' << b.cool_down;
}

Bubble bubble_of(const Plan& plan, const Timeline& timeline, int stage) {
  const Program& program = plan.programs[stage];
  std::vector<Span> passes;  // with a duration, in the order of time
  std::int64_t first_backward = timeline.window().end_ns, last_forward = 0;
  for (std::size_t id = 0; id < program.instructions.size(); ++id) {
    const Instruction& instruction = program.instructions[id];
    const Span& span = timeline.lanes[stage][id];
    if (instruction.stream != Stream::compute || span.start_ns == span.end_ns) continue;
    passes.push_back(span);
    if (instruction.label.pass == Pass::forward) last_forward = span.end_ns;
    if (instruction.label.pass == Pass::backward)
      first_backward = std::min(first_backward, span.start_ns);
  }
  const auto idle = [&](std::int64_t from, std::int64_t to) {
    std::int64_t sum = to - from;
    for (const Span& s : passes)
      sum -= std::max<std::int64_t>(0, std::min(s.end_ns, to) - std::max(s.start_ns, from));
    return sum;
  };
  const std::int64_t middle = std::max(last_forward, first_backward);
  return {idle(0, first_backward), idle(first_backward, middle),
          idle(middle, timeline.window().end_ns)};
}

struct Triple {
  std::int64_t forward_ns, input_ns, weight_ns;
};

TEST(VirtualTime, GPipeAndOneFOneBTakeThePipelineClosedForm) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const int p : {2, 3, 4, 6, 8}) {
      for (int m = 1; m <= 24; ++m) {
        const Plan plan = plan_of(schedule, p, m);
        for (const Triple& t : {Triple{10, 10, 10}, Triple{10, 12, 8}, Triple{7, 20, 5}}) {
          SCOPED_TRACE(cat(schedule, " p=", p, " m=", m, " F=", t.forward_ns));
          const std::int64_t backward = t.input_ns + t.weight_ns, both = t.forward_ns + backward;
          const auto cost = make_fixed_cost({t.forward_ns, backward});
          const Timeline timeline = simulate(plan, *cost);
          EXPECT_EQ(timeline.window(), (Span{0, (m + p - 1) * both}));
          for (int stage = 0; stage < p; ++stage) {
            EXPECT_EQ(timeline.window().end_ns - busy_ns(plan, timeline, stage), (p - 1) * both);
          }
        }
      }
    }
  }
}

TEST(VirtualTime, AgreesWithTheMakespansOfAnIndependentSimulator) {
  const auto cost = make_fixed_cost({1, 2});
  for (const char* schedule : {"gpipe", "1f1b"}) {
    const auto makespan = [&](int p, int m) {
      return simulate(plan_of(schedule, p, m), *cost).window().end_ns;
    };
    EXPECT_EQ(makespan(2, 4), 15);
    EXPECT_EQ(makespan(4, 8), 33);
    EXPECT_EQ(makespan(4, 16), 57);
    EXPECT_EQ(makespan(8, 16), 69);
  }
}

TEST(VirtualTime, OneFOneBWithFewerMicroBatchesThanStagesHasTheBubbleOfTheFormula) {
  const auto cost = make_fixed_cost({1, 2});
  const double expected[] = {0.75, 0.6, 0.5};
  for (int m = 1; m <= 3; ++m) {
    const Plan plan = plan_of("1f1b", 4, m);
    const Timeline timeline = simulate(plan, *cost);
    const auto makespan = static_cast<double>(timeline.window().end_ns);
    for (int stage = 0; stage < 4; ++stage) {
      const auto busy = static_cast<double>(busy_ns(plan, timeline, stage));
      EXPECT_EQ((makespan - busy) / makespan, expected[m - 1]) << m;
    }
  }
}

TEST(VirtualTime, OneFOneBIsIdleInWarmUpAndCoolDownAlone) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int m : {p, p + 1, 2 * p, 3 * p}) {
      const Plan plan = plan_of("1f1b", p, m);
      const Timeline timeline = simulate(plan, *make_fixed_cost({10, 17}));
      for (int s = 0; s < p; ++s) {
        const Bubble expected{s * 10 + (p - 1 - s) * 17, 0, (p - 1 - s) * 10 + s * 17};
        EXPECT_EQ(bubble_of(plan, timeline, s), expected) << "p=" << p << " m=" << m << " s=" << s;
      }
    }
  }
}

TEST(VirtualTime, HopsDelayOneFOneBByTheSameAsInAnIndependentSimulator) {
  // F = 1, B = 2, hop = 0.1 in units of 10 ns.
  const Timeline timeline = simulate(plan_of("1f1b", 4, 8), *make_fixed_cost({10, 20, 0, 1}));
  EXPECT_EQ(timeline.window().end_ns, 346);
}

TEST(VirtualTime, LayersOfAStageAddUp) {
  const Timeline timeline =
      simulate(plan_of("1f1b", 4, 8, "", /*layers_per_stage=*/3), *make_fixed_cost({1, 2}));
  EXPECT_EQ(timeline.window().end_ns, 3 * 33);
}

TEST(VirtualTime, DataAndTensorRanksShareTheLaneOfTheirStage) {
  const Plan plan = plan_of("1f1b", 2, 4, ".dp2.tp2");
  const Timeline timeline = simulate(plan, *make_fixed_cost({1, 2}));
  EXPECT_EQ(timeline.window().end_ns, 15);
  EXPECT_EQ(timeline.lanes.size(), 2u);
  EXPECT_EQ(timeline.lane_of_rank, (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(VirtualTime, IsTheSameOnEveryRun) {
  const Plan plan = plan_of("1f1b", 4, 8, ".dp2.tp2");
  const auto cost = make_roofline_cost(plan, find_machine("h100x8"));
  EXPECT_EQ(simulate(plan, *cost), simulate(plan, *cost));
}

TEST(VirtualTime, HasNoNumbersOfATrainingStep) {
  const Plan plan = plan_of("1f1b", 2, 2);
  const auto cost = make_fixed_cost({1, 2});
  const auto executor = make_sim_executor(plan, *cost);
  const StepResult result = executor->step();
  EXPECT_FALSE(result.training.has_value());
  EXPECT_FALSE(executor->memory(0).has_value());
  EXPECT_TRUE(executor->traffic(0).empty());
  EXPECT_EQ(message_of([&] { executor->read(0, 0); }).find("mode=sim moves no data"), 0u);
}

// Most micro-batches whose attention output is held at once: written by the forward, kept for the
// backward.
int live_micro_batches(const Plan& plan, int stage) {
  const Program& program = plan.programs[stage];
  std::vector<std::pair<InstructionId, InstructionId>> lives;
  for (const Tensor& tensor : program.tensors) {
    if (plan.names[tensor.name] == "attention.core") lives.emplace_back(tensor.first, tensor.last);
  }
  int most = 0;
  for (const auto& [at, end] : lives) {
    most = std::max(
        most, static_cast<int>(std::count_if(lives.begin(), lives.end(), [at = at](const auto& l) {
          return l.first <= at && at <= l.second;
        })));
  }
  return most;
}

// Bytes that one micro-batch's activations of a stage come to, what arrives and leaves included.
std::int64_t activation_bytes(const Plan& plan, int stage) {
  std::int64_t sum = 0;
  for (const Tensor& tensor : plan.programs[stage].tensors) {
    if (tensor.memory == MemoryClass::activation && tensor.micro_batch == 0) sum += tensor.bytes;
  }
  return sum;
}

TEST(ActivationMemory, IsThatOfTheMicroBatchesInFlight) {
  for (const int p : {2, 4}) {
    for (const int m : {1, p - 1, p, p + 1, 2 * p}) {
      for (const char* schedule : {"gpipe", "1f1b"}) {
        const Plan plan = plan_of(schedule, p, m);
        for (int stage = 0; stage < p; ++stage) {
          SCOPED_TRACE(cat(schedule, " p=", p, " m=", m, " stage=", stage));
          const int expected = std::string(schedule) == "gpipe" ? m : std::min(m, p - stage);
          EXPECT_EQ(live_micro_batches(plan, stage), expected);
          const std::int64_t one = activation_bytes(plan, stage);
          const std::int64_t peak = memory_peak(plan.programs[stage])
                                        .class_peak[static_cast<int>(MemoryClass::activation)];
          // What one stage has sent is free again before its micro-batch comes back; the next
          // input may arrive early.
          const std::int64_t hidden = 4 * find_model("gpt-tiny").sequence * 32;
          EXPECT_GE(peak, expected * (one - hidden));
          EXPECT_LE(peak, expected * one + hidden);
        }
      }
    }
  }
}

}  // namespace
}  // namespace mb
