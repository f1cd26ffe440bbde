// Ranks as threads: repeatable, exact in memory and traffic, and loud when something goes wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <initializer_list>
#include <map>
#include <mutex>
#include <tuple>

#include "parallel/exec/executor.h"
#include "parallel/plan/builder.h"
#include "parallel/plan/text.h"
#include "parallel/plan/validate.h"
#include "parallel/strategy/step.h"
#include "tests/support/devices.h"
#include "tests/support/error.h"
#include "workloads/model/data.h"

namespace mb {
namespace {

constexpr std::int64_t kMicroBatches = 4;

struct Case {
  std::string mesh, schedule = "1f1b";
  bool tied = true;
};

Plan plan_of(const Case& run) {
  ModelConfig model = find_model("gpt-tiny");
  set_field(model, "layers", "4");
  model.tied = run.tied;
  StepOptions options{.schedule = run.schedule, .micro_batches = kMicroBatches};
  options.bucket_bytes = 20000;
  return plan_step(model, Mesh::parse(run.mesh), options);
}

const std::vector<Case> kCases = {{"1"},
                                  {"dp2"},
                                  {"tp2"},
                                  {"pp2"},
                                  {"pp4"},
                                  {"dp2.tp2"},
                                  {"pp2", "gpipe"},
                                  {"dp2.pp2.tp2"},
                                  {"pp4.tp2", "gpipe"},
                                  {"pp4", "1f1b", false}};

// The Markov source, for any number of data ranks.
class Markov : public BatchSource {
 public:
  explicit Markov(const Plan& plan)
      : batches_(
            make_batches(*source_, kMicroBatches * plan.mesh.data_size(), plan.mesh.data_size())) {}
  void load(std::int64_t step, int data_index, int micro_batch, std::int64_t batch,
            std::int64_t sequence, std::int32_t* tokens, std::int32_t* labels) const override {
    before(step, data_index, micro_batch, tokens);
    batches_->load(step, data_index, micro_batch, batch, sequence, tokens, labels);
  }

 protected:
  virtual void before(std::int64_t /*step*/, int /*data_index*/, int /*micro_batch*/,
                      std::int32_t* /*tokens*/) const {}

 private:
  std::unique_ptr<TokenSource> source_ = make_markov_source(97, 7);
  std::unique_ptr<BatchSource> batches_;
};

// All persistent tensors of all ranks, one after the other.
std::vector<double> state_of(const Plan& plan, const Executor& executor) {
  std::vector<double> all;
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    const Program& program = plan.program_of(rank);
    for (TensorId t = 0; t < static_cast<TensorId>(program.tensors.size()); ++t) {
      if (!program.tensors[t].persistent || program.tensors[t].base != kNone) continue;
      const std::vector<double> values = executor.read(rank, t);
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

std::vector<double> state_after(const Plan& plan, const BatchSource& batches, int steps) {
  const auto executor = make_thread_executor(
      plan, {.make_device = test::devices(), .batches = &batches, .timeout_s = 60});
  for (int i = 0; i < steps; ++i) executor->step();
  return state_of(plan, *executor);
}

TEST(ThreadExecutor, TwoRunsOfACaseAreBitEqual) {
  for (const char* mesh : {"1", "dp2.pp2.tp2", "dp4", "pp4.tp2"}) {
    const Plan plan = plan_of({mesh});
    const Markov batches(plan);
    EXPECT_EQ(state_after(plan, batches, 3), state_after(plan, batches, 3)) << mesh;
  }
}

TEST(ThreadExecutor, SchedulesAreBitEqualAsTheyAddGradientsInTheSameOrder) {
  const Plan one = plan_of({"dp2.pp2", "1f1b"}), other = plan_of({"dp2.pp2", "gpipe"});
  const Markov batches(one);
  EXPECT_EQ(state_after(one, batches, 2), state_after(other, batches, 2));
}

TEST(ThreadExecutor, DelaysOfCommunicationChangeNoBit) {
  const Plan plan = plan_of({"dp2.pp2.tp2"});
  const Markov batches(plan);
  const std::vector<double> state = state_after(plan, batches, 2);
  for (const std::uint64_t seed : {1, 2}) {
    const auto executor = make_thread_executor(plan, {.make_device = test::devices(),
                                                      .batches = &batches,
                                                      .delays = {.seed = seed, .most_us = 100}});
    executor->step();
    executor->step();
    EXPECT_EQ(state_of(plan, *executor), state) << seed;
  }
}

TEST(ThreadExecutor, PeakMemoryIsThatOfThePlanOnEveryRank) {
  for (const Case& run : kCases) {
    const Plan plan = plan_of(run);
    const Markov batches(plan);
    const auto executor =
        make_thread_executor(plan, {.make_device = test::devices(), .batches = &batches});
    executor->step();
    executor->step();
    for (int rank = 0; rank < plan.mesh.world(); ++rank) {
      EXPECT_EQ(executor->memory(rank), memory_peak(plan.program_of(rank)))
          << run.mesh << ' ' << run.schedule << " rank " << rank;
    }
  }
}

TEST(ThreadExecutor, TrafficIsThatOfThePlanOnEveryRank) {
  for (const Case& run : kCases) {
    const Plan plan = plan_of(run);
    const Markov batches(plan);
    const auto executor =
        make_thread_executor(plan, {.make_device = test::devices(), .batches = &batches});
    executor->step();
    executor->step();
    for (int rank = 0; rank < plan.mesh.world(); ++rank) {
      const Program& program = plan.program_of(rank);
      std::vector<CommCount> expected;
      for (const Instruction& i : program.instructions) {
        const bool carries =
            std::holds_alternative<Collective>(i.action) || std::holds_alternative<Send>(i.action);
        expected.push_back(
            carries ? CommCount{1, payload_elements(program, i), payload_bytes(program, i)}
                    : CommCount{});
      }
      EXPECT_EQ(executor->traffic(rank), expected)
          << run.mesh << ' ' << run.schedule << " rank " << rank;
    }
  }
}

TEST(Poison, IsWhatOthersOwnBeforeTheGatherAndWhatIsDead) {
  ModelConfig model = find_model("gpt-tiny");
  const Plan plan =
      plan_step(model, Mesh::parse("dp2"), {.micro_batches = kMicroBatches, .zero = 1});
  const Markov batches(plan);
  const Program& program = plan.programs[0];
  const auto executor = make_thread_executor(
      plan, {.make_device = test::devices(), .batches = &batches, .poison = true});
  const auto is_nan = [](double value) { return std::isnan(value); };
  for (int step = 0; step < 2; ++step) {
    for (const int rank : {0, 1}) {
      for (const Bucket& bucket : program.buckets) {
        const std::vector<double> values = executor->read(rank, bucket.value);
        const auto middle = values.begin() + bucket.slice();
        EXPECT_EQ(std::count_if(values.begin(), middle, is_nan), rank * bucket.slice());
        EXPECT_EQ(std::count_if(middle, values.end(), is_nan), (1 - rank) * bucket.slice());
      }
    }
    executor->step();
    for (TensorId t = 0; t < static_cast<TensorId>(program.tensors.size()); ++t) {
      const Tensor& tensor = program.tensors[t];
      if (tensor.persistent || tensor.base != kNone || tensor.dtype == DType::int32) continue;
      const std::vector<double> values = executor->read(0, t);
      EXPECT_TRUE(std::all_of(values.begin(), values.end(), is_nan));
    }
  }
}

TEST(ThreadExecutor, KnowsHowAPlanCutsItsBatch) {
  const Plan plan = plan_of({"dp2"});
  EXPECT_EQ(plan.micro_batches, kMicroBatches);
  EXPECT_EQ(plan.micro_batch, 1);
}

// Spans of all members of each collective, and of the two sides of each message, in order.
struct Meetings {
  std::map<std::tuple<std::vector<int>, Stream, std::size_t>, std::vector<Span>> collectives;
  std::map<std::tuple<int, int, std::size_t>, Span> sends, recvs;
};

Meetings meetings_of(const Plan& plan, const Timeline& timeline) {
  Meetings meetings;
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    const Program& program = plan.program_of(rank);
    std::map<std::pair<std::vector<int>, Stream>, std::size_t> order;
    std::map<int, std::size_t> sent, received;
    const std::vector<int> stages = plan.mesh.members(group_of(Axis::pp), rank);
    for (std::size_t id = 0; id < program.instructions.size(); ++id) {
      const Instruction& i = program.instructions[id];
      const Span& span = timeline.of(rank)[id];
      if (const auto* collective = std::get_if<Collective>(&i.action)) {
        const std::vector<int> members = plan.mesh.members(collective->group, rank);
        meetings.collectives[{members, i.stream, order[{members, i.stream}]++}].push_back(span);
      } else if (const auto* send = std::get_if<Send>(&i.action)) {
        meetings.sends[{rank, stages[send->to], sent[send->to]++}] = span;
      } else if (const auto* recv = std::get_if<Recv>(&i.action)) {
        meetings.recvs[{stages[recv->from], rank, received[recv->from]++}] = span;
      }
    }
  }
  return meetings;
}

TEST(ThreadExecutor, TimelineKeepsTheOrderOfStreamsWaitsAndMessages) {
  for (const Case& run : kCases) {
    SCOPED_TRACE(run.mesh + ' ' + run.schedule);
    const Plan plan = plan_of(run);
    const Markov batches(plan);
    const StepResult step =
        make_thread_executor(plan, {.make_device = test::devices(), .batches = &batches})->step();
    const Timeline& timeline = step.timeline;
    const std::int64_t off = step.clock_uncertainty_ns;
    for (int rank = 0; rank < plan.mesh.world(); ++rank) {
      const Program& program = plan.program_of(rank);
      const std::vector<Span>& spans = timeline.of(rank);
      ASSERT_EQ(spans.size(), program.instructions.size());
      std::array<std::int64_t, kStreams> free_ns{};
      for (std::size_t id = 0; id < spans.size(); ++id) {
        const Instruction& i = program.instructions[id];
        std::int64_t& free = free_ns[static_cast<int>(i.stream)];
        ASSERT_GE(spans[id].start_ns, free) << "rank " << rank << " #" << id;
        ASSERT_GE(spans[id].end_ns, spans[id].start_ns);
        free = spans[id].end_ns;
        for (InstructionId before : program.after(i))
          ASSERT_GE(spans[id].start_ns, spans[before].end_ns) << "rank " << rank << " #" << id;
      }
    }
    const Meetings meetings = meetings_of(plan, timeline);
    ASSERT_EQ(meetings.sends.size(), meetings.recvs.size());
    for (const auto& [key, send] : meetings.sends) {
      ASSERT_GE(meetings.recvs.at(key).end_ns, send.start_ns - off);
      ASSERT_GE(send.end_ns, meetings.recvs.at(key).start_ns - off);
    }
    for (const auto& [key, spans] : meetings.collectives) {
      ASSERT_EQ(spans.size(), std::get<0>(key).size());
      const auto by_start = [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; };
      const auto last = std::max_element(spans.begin(), spans.end(), by_start);
      for (const Span& span : spans) ASSERT_GE(span.end_ns, last->start_ns - off);
    }
  }
}

// Counts loads of each (step, data rank, micro-batch).
class CountingBatches final : public Markov {
 public:
  using Markov::Markov;
  mutable std::mutex mutex;
  mutable std::map<std::tuple<std::int64_t, int, int>, int> loads;

 private:
  void before(std::int64_t step, int data_index, int micro_batch, std::int32_t*) const override {
    const std::lock_guard lock(mutex);
    ++loads[{step, data_index, micro_batch}];
  }
};

TEST(ThreadExecutor, EveryStepLoadsItsOwnMicroBatchesAtBothEndsOfThePipeline) {
  const Plan plan = plan_of({"dp2.pp2.tp2"});
  const CountingBatches batches(plan);
  state_after(plan, batches, 3);
  EXPECT_EQ(batches.loads.size(), 3u * 2 * kMicroBatches);
  for (const auto& [key, count] : batches.loads) EXPECT_EQ(count, 2 * 2);  // stages, shards
}

// Fills all memory of stage 0 that holds nothing yet with NaN when the step's first tokens are
// loaded. Nothing has been received by then.
class PoisonedBatches final : public Markov {
 public:
  explicit PoisonedBatches(const Plan& plan) : Markov(plan), program_(plan.programs[0]) {}
  mutable std::atomic<int> poisoned{0};

 private:
  void before(std::int64_t, int, int micro_batch, std::int32_t* tokens) const override {
    if (!tokens || micro_batch != 0) return;
    std::vector<bool> held(program_.arena_bytes, false);
    std::byte* arena = nullptr;
    for (const Tensor& t : program_.tensors) {
      if (t.base != kNone) continue;
      if (t.memory == MemoryClass::input && t.micro_batch == 0 && !arena)
        arena = reinterpret_cast<std::byte*>(tokens) - t.offset;
      if (t.persistent || (t.memory == MemoryClass::input && t.micro_batch == 0))
        std::fill_n(held.begin() + t.offset, t.bytes, true);
    }
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (!held[i]) arena[i] = std::byte{0xff};
    }
    ++poisoned;
  }
  const Program& program_;
};

TEST(ThreadExecutor, NoInstructionReadsMemoryBeforeItIsWritten) {
  for (const char* mesh : {"1", "dp2", "tp2", "pp2", "dp2.pp2"}) {
    const Plan plan = plan_of({mesh});
    const PoisonedBatches poisoned(plan);
    const std::vector<double> state = state_after(plan, poisoned, 2);
    EXPECT_EQ(poisoned.poisoned, 2 * plan.mesh.size(Axis::dp) * plan.mesh.size(Axis::tp));
    EXPECT_TRUE(std::none_of(state.begin(), state.end(), [](double v) { return std::isnan(v); }));
    EXPECT_EQ(state, state_after(plan, Markov(plan), 2)) << mesh;
  }
}

class ThrowingBatches final : public Markov {
 public:
  using Markov::Markov;

 private:
  void before(std::int64_t step, int data_index, int micro_batch, std::int32_t*) const override {
    if (step == 1 && data_index == 1 && micro_batch == 2) throw Error("the text has ended");
  }
};

TEST(ThreadExecutor, AnErrorOnOneRankReachesTheCallerWithRankStreamAndLabel) {
  const auto run = [](const char* mesh) {
    const Plan plan = plan_of({mesh});
    const ThrowingBatches batches(plan);
    const auto executor =
        make_thread_executor(plan, {.make_device = test::devices(), .batches = &batches});
    executor->step();
    const std::string message = message_of([&] { executor->step(); });
    EXPECT_EQ(message_of([&] { executor->step(); }), "an earlier step failed: " + message);
    return message;
  };
  EXPECT_EQ(run("dp2"), "rank 1 compute, L2 batch, load_batch 1x16: the text has ended");
  // Whichever of the ranks that load comes first.
  const std::string message = run("dp2.pp2.tp2");
  EXPECT_EQ(message.find("rank "), 0u) << message;
  EXPECT_NE(message.find(" compute, L2 batch, load_batch 1x16: the text has ended"),
            std::string::npos)
      << message;
}

// Blocks on data rank 1 until long after the watchdog has lost its patience.
class BlockingBatches final : public Markov {
 public:
  using Markov::Markov;

 private:
  void before(std::int64_t, int data_index, int, std::int32_t*) const override {
    if (data_index != 1) return;
    std::unique_lock lock(mutex_);
    never_.wait_for(lock, std::chrono::milliseconds(2500), [] { return false; });
  }
  mutable std::mutex mutex_;
  mutable std::condition_variable never_;
};

TEST(ThreadExecutor, ARankThatHangsIsReportedWithWhereEveryRankStands) {
  const Plan plan = plan_of({"dp2"});
  const BlockingBatches batches(plan);
  const auto executor = make_thread_executor(
      plan, {.make_device = test::devices(), .batches = &batches, .timeout_s = 0.5});
  const std::string message = message_of([&] { executor->step(); });
  EXPECT_EQ(message,
            "no rank has ended an instruction for 0.5 s: rank 0: dp in all_reduce sum dp (G3 "
            "bucket 0); rank 1: compute in load_batch 1x16 (L0 batch)");
}

TEST(ThreadExecutor, RanksThatWaitForEachOtherAreReleased) {
  Plan plan = plan_of({"pp2"});
  Program& last = plan.programs[1];
  for (Instruction& i : last.instructions) {  // the last stage never sends
    if (std::holds_alternative<Send>(i.action)) i.action = Copy{}, i.writes = i.reads;
  }
  const Markov batches(plan);
  const auto executor = make_thread_executor(
      plan, {.make_device = test::devices(), .batches = &batches, .timeout_s = 0.5});
  const std::string message = message_of([&] { executor->step(); });
  EXPECT_EQ(
      message.find("no rank has ended an instruction for 0.5 s: " + test::rank_text(0) + ": "), 0u)
      << message;
  EXPECT_NE(message.find("pp_recv in recv from stage 1 (B0 gradients)"), std::string::npos)
      << message;
  EXPECT_NE(message.find("; " + test::rank_text(1) + ": "), std::string::npos) << message;
}

}  // namespace
}  // namespace mb
