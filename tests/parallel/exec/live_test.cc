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
  const auto executor = make_thread_executor(plan, {.batches = &batches, .timeout_s = 60});
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
    const auto executor =
        make_thread_executor(plan, {.batches = &batches, .delays = {.seed = seed, .most_us = 100}});
    executor->step();
    executor->step();
    EXPECT_EQ(state_of(plan, *executor), state) << seed;
  }
}

TEST(ThreadExecutor, PeakMemoryIsThatOfThePlanOnEveryRank) {
  for (const Case& run : kCases) {
    const Plan plan = plan_of(run);
    const Markov batches(plan);
    const auto executor = make_thread_executor(plan, {.batches = &batches});
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
    const auto executor = make_thread_executor(plan, {.batches = &batches});
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

// --- every collective of a plan ---

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
    auto executor = make_thread_executor(plan, {.batches = &batches, .poison = poison});
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

TEST(Poison, IsWhatOthersOwnBeforeTheGatherAndWhatIsDead) {
  ModelConfig model = find_model("gpt-tiny");
  const Plan plan =
      plan_step(model, Mesh::parse("dp2"), {.micro_batches = kMicroBatches, .zero = 1});
  const Markov batches(plan);
  const Program& program = plan.programs[0];
  const auto executor = make_thread_executor(plan, {.batches = &batches, .poison = true});
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

TEST(Poison, EndsARunThatWritesPastTheEndOfATensor) {
  HandPlan hand("1");
  hand.poison = true;
  hand.load(0, hand.tensor(4), hand.tensor(3), 4);
  EXPECT_EQ(message_of([&] { hand.run(); }),
            "rank 0: something has written past the end of x, of 12 bytes");
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
    const Timeline timeline = make_thread_executor(plan, {.batches = &batches})->step().timeline;
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
      ASSERT_GE(meetings.recvs.at(key).end_ns, send.start_ns);
      ASSERT_GE(send.end_ns, meetings.recvs.at(key).start_ns);
    }
    for (const auto& [key, spans] : meetings.collectives) {
      ASSERT_EQ(spans.size(), std::get<0>(key).size());
      const auto by_start = [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; };
      const auto last = std::max_element(spans.begin(), spans.end(), by_start);
      for (const Span& span : spans) ASSERT_GE(span.end_ns, last->start_ns);
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
    const auto executor = make_thread_executor(plan, {.batches = &batches});
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
  const auto executor = make_thread_executor(plan, {.batches = &batches, .timeout_s = 0.5});
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
  const auto executor = make_thread_executor(plan, {.batches = &batches, .timeout_s = 0.5});
  const std::string message = message_of([&] { executor->step(); });
  EXPECT_EQ(message.find("no rank has ended an instruction for 0.5 s: rank 0: "), 0u) << message;
  EXPECT_NE(message.find("pp_recv in recv from stage 1 (B0 gradients)"), std::string::npos)
      << message;
  EXPECT_NE(message.find("; rank 1: "), std::string::npos) << message;
}

}  // namespace
}  // namespace mb
