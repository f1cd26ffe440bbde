// Plans that are right are proven, plans that are wrong are refused with the instructions at fault.
#include "parallel/plan/validate.h"

#include <gtest/gtest.h>

#include <set>

#include "parallel/plan/builder.h"
#include "parallel/plan/text.h"
#include "parallel/plan/walk.h"
#include "parallel/schedule/schedule.h"
#include "parallel/strategy/step.h"
#include "tests/support/error.h"

namespace mb {
namespace {

Plan plan_of(const std::string& mesh, const std::string& schedule, int layers, int micro_batches,
             bool tied) {
  ModelConfig model = find_model("gpt-tiny");
  model.layers = layers;
  model.tied = tied;
  StepOptions options{.schedule = schedule, .micro_batches = micro_batches};
  options.bucket_bytes = 20000;
  return plan_step(model, Mesh::parse(mesh), options);
}

class EveryPlan : public testing::TestWithParam<int> {};

TEST_P(EveryPlan, OfAStepIsProven) {
  const int p = GetParam();
  for (const Schedule& known : schedules()) {
    if (known.placement != Placement::linear || known.splits_backward) continue;
    const std::string schedule(known.name);
    for (const int m : std::set<int>{1, 2, std::max(p - 1, 1), p, p + 1, 2 * p}) {
      for (const char* rest : {"", ".tp2", ".dp2", ".dp2.tp2"}) {
        for (const bool tied : {true, false}) {
          const std::string mesh = cat("pp", p, rest);
          EXPECT_EQ(message_of([&] { validate(plan_of(mesh, schedule, p, m, tied)); }), "no Error")
              << mesh << ' ' << schedule << " m=" << m << " tied=" << tied;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, EveryPlan, testing::Range(1, 9));

// --- mutations of a real plan ---

struct Mutation {
  Plan plan = plan_of("pp2.tp2", "1f1b", 2, 2, true);
  Program& program = plan.programs[0];

  // The first instruction of stage 0 with this label.
  InstructionId find(const std::string& label, Stream stream = Stream::compute) {
    for (InstructionId id = 0; id < static_cast<InstructionId>(program.instructions.size()); ++id) {
      const Instruction& i = program.instructions[id];
      if (i.stream == stream && label_text(plan, i.label) == label) return id;
    }
    throw Error(cat("the plan has no ", label));
  }
  std::string at(InstructionId id) { return describe(plan, 0, id); }
  std::string message() {
    return message_of([&] { validate(plan); });
  }
};

void expect_names(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << "\nin: " << message;
}

// But those for sends: some only keep few sends in flight.
TEST(Validate, RefusesEveryWaitThatIsTakenAway) {
  int waits = 0;
  for (int stage = 0; stage < 2; ++stage) {
    Mutation m;
    Program& program = m.plan.programs[stage];
    for (InstructionId id = 0; id < static_cast<InstructionId>(program.instructions.size()); ++id) {
      Slice& after = program.instructions[id].after;
      for (std::uint32_t w = after.begin; w < after.begin + after.count; ++w) {
        const InstructionId before = program.waits[w];
        if (program.instructions[before].stream == Stream::pp_send) continue;
        // The last of the list takes its place.
        InstructionId& last = program.waits[after.begin + after.count - 1];
        std::swap(program.waits[w], last);
        --after.count;
        expect_names(m.message(), {describe(m.plan, stage, before), "nothing orders them"});
        ++after.count;
        std::swap(program.waits[w], last);
        ++waits;
      }
    }
  }
  EXPECT_GT(waits, 50);
}

TEST(Validate, NamesBothInstructionsOfAMissingWait) {
  Mutation m;
  const auto reduce = m.find("F0 l0 attention.out", Stream::tp);
  m.program.instructions[reduce].after.count = 0;
  EXPECT_EQ(m.message(), m.at(reduce) + " and " + m.at(reduce - 1) +
                             " both use attention.out.l0.m0 and nothing orders them");
}

TEST(Validate, NamesBothInstructionsThatUseTheSameBytesOfTwoTensors) {
  Mutation m;
  const auto receive = m.find("B0 gradients", Stream::pp_recv);
  ASSERT_GT(m.program.instructions[receive].after.count, 0u) << "it writes into used bytes";
  m.program.instructions[receive].after.count = 0;
  expect_names(m.message(), {m.at(receive) + " and stage 0 compute #",
                             " use the bytes of d.hidden.m0 and ", "nothing orders them"});
}

TEST(Validate, RefusesAReadOfWhatNothingHasWritten) {
  Mutation m;
  const auto gelu = m.find("F0 l0 mlp.act"), core = m.find("F0 l0 attention.core");
  std::swap(m.program.instructions[core].reads, m.program.instructions[gelu].reads);
  EXPECT_EQ(m.message(), m.at(core) + " reads mlp.up.l0.m0, which nothing has written");
}

TEST(Validate, RefusesAResultThatNothingReads) {
  Mutation m;
  const auto last = m.find("B1 embedding");
  // tokens, dy, dtable: now without dy.
  const Slice reads = m.program.instructions[last].reads;
  m.program.operands[reads.begin + 1] = m.program.operands[reads.begin];
  const auto position = m.find("B1 position");
  const Slice others = m.program.instructions[position].reads;
  m.program.operands[others.begin] = m.program.operands[others.begin + 1];
  EXPECT_EQ(m.message(),
            m.at(m.find("B1 l0 norm1")) + " writes d.hidden.l0.m1, which nothing reads: a leak");
}

TEST(Validate, RefusesTwoTensorsInTheSameBytes) {
  Mutation m;
  const auto norm = m.find("F0 l0 norm1");
  const auto writes = m.program.writes(m.program.instructions[norm]);
  Tensor &y = m.program.tensors[writes[0]], &rstd = m.program.tensors[writes[1]];
  rstd.offset = y.offset + y.bytes - 64;
  EXPECT_EQ(m.message(), "stage 0: norm1.rstd.l0.m0, written by " + m.at(norm) +
                             ", and norm1.l0.m0, written by " + m.at(norm) +
                             ", share bytes while both live");
}

TEST(Validate, RefusesATensorOverAPersistentOne) {
  Mutation m;
  const auto norm = m.find("F0 l0 norm1");
  m.program.tensors[m.program.writes(m.program.instructions[norm])[0]].offset = 0;
  expect_names(m.message(), {"stage 0: norm1.l0.m0, written by " + m.at(norm),
                             "scalars, persistent, share bytes while both live"});
}

TEST(Validate, RefusesAUseAfterTheEndOfALife) {
  Mutation m;
  const auto norm = m.find("F0 l0 norm1"), backward = m.find("B0 l0 norm1");
  m.program.tensors[m.program.writes(m.program.instructions[norm])[1]].last = norm + 3;
  EXPECT_EQ(m.message(), m.at(backward) + " uses norm1.rstd.l0.m0, which lives from " + m.at(norm) +
                             " to " + m.at(norm + 3));
}

TEST(Validate, RefusesATensorOutsideOfTheArena) {
  Mutation m;
  m.program.tensors[m.program.scalars].offset = m.program.arena_bytes;
  EXPECT_EQ(m.message(), "stage 0: scalars lies outside of the arena");
}

TEST(Validate, RefusesAViewOutsideOfItsBase) {
  Mutation m;
  for (Tensor& tensor : m.program.tensors) {
    if (m.plan.names[tensor.name] == "d.embedding.weight") tensor.base_offset += 1 << 20;
  }
  expect_names(m.message(), {"stage 0: d.embedding.weight reaches outside of bucket "});
}

TEST(Validate, RefusesAWaitForWhatComesLater) {
  Mutation m;
  const auto reduce = m.find("F0 l0 attention.out", Stream::tp);
  m.program.waits[m.program.instructions[reduce].after.begin] = reduce + 1;
  EXPECT_EQ(m.message(),
            m.at(reduce) + cat(" waits for #", reduce + 1, ", which does not come before it"));
}

TEST(Validate, RefusesASendThatNobodyReceives) {
  Mutation m;
  Program& last = m.plan.programs[1];
  for (Instruction& i : last.instructions) {
    if (std::holds_alternative<Recv>(i.action)) {
      i.action = Compute{0};
      break;
    }
  }
  expect_names(m.message(),
               {"stage 0 pp_send #", "(send to stage 1 F0 activations)", "stage 1 pp_recv #",
                "(recv from stage 0 F1 activations)", "they are not the same message"});
}

// --- small plans of two stages ---

constexpr Stream kSends = Stream::pp_send, kReceives = Stream::pp_recv;

struct TwoStages {
  ProgramBuilder stages[2] = {ProgramBuilder{0}, ProgramBuilder{1}};

  TensorId tensor(int stage, std::int64_t elements = 16) {
    return stages[stage].tensor(0, elements, DType::fp32, MemoryClass::activation, -1, -1);
  }
  TensorId made(int stage, std::int64_t elements = 16) {
    const TensorId t = tensor(stage, elements);
    stages[stage].emit(Stream::compute, {}, Compute{0}, {}, {t});
    return t;
  }
  void send(int stage, int micro_batch, TensorId t, Stream stream = kSends) {
    stages[stage].emit(stream, label(micro_batch), Send{static_cast<std::int16_t>(1 - stage)}, {t},
                       {});
  }
  void receive(int stage, int micro_batch, std::int64_t elements = 16, Stream stream = kReceives) {
    const TensorId t = tensor(stage, elements);
    stages[stage].emit(stream, label(micro_batch), Recv{static_cast<std::int16_t>(1 - stage)}, {},
                       {t});
    received.emplace_back(stage, t);
  }
  TensorId persistent(int stage, std::int64_t elements) {
    return stages[stage].persistent(0, elements, DType::fp32, MemoryClass::gradient);
  }
  void reduce(int stage, Group group, TensorId t, Stream stream = Stream::dp) {
    stages[stage].emit(stream, {.pass = Pass::reduce},
                       Collective{CollectiveKind::all_reduce, ReduceOp::sum, group}, {t}, {t});
  }
  static Label label(int micro_batch) {
    return {.pass = Pass::forward, .micro_batch = micro_batch};
  }

  std::string message() {
    for (const auto& [stage, t] : received)
      stages[stage].emit(Stream::compute, {}, Compute{0}, {t}, {});
    Plan plan{.mesh = Mesh::parse("pp2")};
    for (ProgramBuilder& stage : stages) plan.programs.push_back(stage.finish());
    plan.ops = {Op{Gelu{1, 16}}};
    plan.names = {"x"};
    return message_of([&] { validate(plan); });
  }
  std::vector<std::pair<int, TensorId>> received;
};

TEST(ValidateStages, AcceptsMessagesInTheSameOrder) {
  TwoStages s;
  const TensorId x = s.made(0), y = s.made(0, 32);
  s.send(0, 0, x);
  s.send(0, 1, y);
  s.receive(1, 0);
  s.receive(1, 1, 32);
  EXPECT_EQ(s.message(), "no Error");
}

TEST(ValidateStages, RefusesSendsInAnotherOrderThanReceives) {
  TwoStages s;
  const TensorId x = s.made(0), y = s.made(0);
  s.send(0, 1, y);
  s.send(0, 0, x);
  s.receive(1, 0);
  s.receive(1, 1);
  EXPECT_EQ(s.message(),
            "stage 1 pp_recv #0 (recv from stage 0 F0 x) of 64 bytes meets stage 0 pp_send #2 "
            "(send to stage 1 F1 x) of 64 bytes: they are not the same message");
}

TEST(ValidateStages, RefusesAMessageOfAnotherSize) {
  TwoStages s;
  s.send(0, 0, s.made(0));
  s.receive(1, 0, 15);
  EXPECT_EQ(s.message(),
            "stage 1 pp_recv #0 (recv from stage 0 F0 x) of 60 bytes meets stage 0 pp_send #1 "
            "(send to stage 1 F0 x) of 64 bytes: they are not the same message");
}

TEST(ValidateStages, RefusesReceivesThatWaitForEachOther) {
  TwoStages s;
  s.receive(0, 0);
  s.receive(1, 0);
  expect_names(s.message(), {"the plan never ends, these wait for each other: ",
                             "stage 0 pp_recv #0 (recv from stage 1 F0 x)",
                             "stage 1 pp_recv #0 (recv from stage 0 F0 x)"});
}

TEST(ValidateStages, RefusesSendsThatHaveNoBufferToGoTo) {
  TwoStages s;  // both send first and receive then, on one stream
  for (int stage : {0, 1}) {
    s.send(stage, 0, s.made(stage), kSends);
    s.receive(stage, 0, 16, kSends);
  }
  expect_names(s.message(), {"the plan never ends, these wait for each other: ",
                             "stage 0 pp_send #1 (send to stage 1 F0 x)",
                             "stage 1 pp_send #1 (send to stage 0 F0 x)"});
}

TEST(ValidateStages, AcceptsSendsAndReceivesOnStreamsOfTheirOwn) {
  TwoStages s;
  for (int stage : {0, 1}) {
    s.send(stage, 0, s.made(stage));
    s.receive(stage, 0);
  }
  EXPECT_EQ(s.message(), "no Error");
}

TEST(ValidateStages, RefusesCollectivesOfDifferentSizes) {
  TwoStages s;
  const TensorId a[] = {s.persistent(0, 8), s.persistent(1, 8)};
  const TensorId b[] = {s.persistent(0, 4), s.persistent(1, 4)};
  s.reduce(0, kWorld, a[0]);
  s.reduce(0, kWorld, b[0]);
  s.reduce(1, kWorld, b[1]);
  s.reduce(1, kWorld, a[1]);
  EXPECT_EQ(s.message(),
            "stage 1 dp #0 (all_reduce sum world G x) of 16 bytes meets stage 0 dp #0 (all_reduce "
            "sum world G x) of 32 bytes: members of world disagree on the order of their "
            "collectives");
}

TEST(ValidateStages, RefusesCollectivesOfTwoGroupsInAnotherOrder) {
  TwoStages s;
  const TensorId a[] = {s.persistent(0, 8), s.persistent(1, 8)};
  s.reduce(0, kEnds, a[0]);
  s.reduce(0, kWorld, a[0]);
  s.reduce(1, kWorld, a[1]);
  s.reduce(1, kEnds, a[1]);
  EXPECT_EQ(s.message(),
            "the plan never ends, these wait for each other: stage 0 dp #0 (all_reduce sum "
            "embedding G x); stage 1 dp #0 (all_reduce sum world G x)");
}

TEST(ValidateStages, RefusesACollectiveOnTwoStreams) {
  TwoStages s;
  s.reduce(0, kWorld, s.persistent(0, 8), Stream::dp);
  s.reduce(1, kWorld, s.persistent(1, 8), Stream::tp);
  expect_names(s.message(), {"the plan never ends", "stage 0 dp #0", "stage 1 tp #0"});
}

}  // namespace
}  // namespace mb
