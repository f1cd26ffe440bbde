// The collector on the double of CUPTI: every piece of work finds its instruction, whatever order
// records come in, and what cannot be placed is counted.
#include "bench/profile/cupti.h"

#include <cupti_result.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "parallel/exec/executor.h"
#include "parallel/plan/text.h"
#include "parallel/strategy/step.h"
#include "tests/support/cuda_emulation/cupti.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/devices.h"
#include "tests/support/error.h"
#include "workloads/model/data.h"

namespace mb {
namespace {

namespace emulation = cuda_emulation;

// A step of two ranks on two devices, traced.
struct Traced {
  Plan plan;
  Timeline timeline;                // by device events
  std::int64_t uncertainty_ns = 0;  // of it
  ActivityRecords records;
  ActivityTimeline activity;
};

Traced trace(const emulation::CuptiSettings& settings) {
  emulation::reset({.devices = 2});
  emulation::reset_cupti(settings);
  const ModelConfig model = find_model("gpt-tiny");
  Traced traced{.plan = plan_step(model, Mesh::parse("dp2"), {.micro_batches = 2})};
  const auto source = make_markov_source(model.vocabulary, 1);
  const auto batches = make_batches(*source, 4, 2);
  const auto executor =
      make_thread_executor(traced.plan, {.make_device = test::devices(), .batches = batches.get()});
  executor->step();
  start_cupti();
  StepResult step = executor->step();
  traced.timeline = std::move(step.timeline);
  traced.uncertainty_ns = step.clock_uncertainty_ns;
  traced.records = stop_cupti();
  Span window{INT64_MAX, 0};
  for (const auto& lane : traced.timeline.lanes) {
    for (const Span& span : lane) {
      window.start_ns = std::min(window.start_ns, span.start_ns);
      window.end_ns = std::max(window.end_ns, span.end_ns);
    }
  }
  const std::int64_t slack = traced.uncertainty_ns + 100'000;
  traced.activity = join(traced.records, {window.start_ns - slack, window.end_ns + slack});
  return traced;
}

const InstructionActivity* of(const Traced& traced, int rank, int id) {
  const auto found = traced.activity.instructions.find(
      external_id(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(id)));
  return found == traced.activity.instructions.end() ? nullptr : &found->second;
}

TEST(Cupti, FindsTheWorkOfEveryInstructionWithinItsDeviceEvents) {
  const Traced traced = trace({});
  // What is read once the step is over belongs to no instruction.
  const TraceQuality& quality = traced.activity.quality;
  std::set<std::size_t> placed;
  for (const auto& [id, activity] : traced.activity.instructions)
    placed.insert(activity.work.begin(), activity.work.end());
  for (std::size_t i = 0; i < traced.records.work.size(); ++i) {
    EXPECT_TRUE(placed.contains(i) || traced.records.work[i].kind != Activity::kernel)
        << traced.records.work[i].name;
  }
  EXPECT_EQ(quality.dropped, 0);
  EXPECT_EQ(quality.without_time, 0);
  EXPECT_GT(traced.records.other, 0) << "records of calls";
  for (int rank = 0; rank < 2; ++rank) {
    const auto& instructions = traced.plan.program_of(rank).instructions;
    for (int id = 0; id < static_cast<int>(instructions.size()); ++id) {
      const InstructionActivity* const activity = of(traced, rank, id);
      // Communication goes through the host here; what it copies is its own.
      // What all ranks hold, the norm counts on the first.
      const bool launches = std::holds_alternative<Compute>(instructions[id].action) &&
                            (rank == 0 || traced.plan.site(instructions[id]) != "norm");
      EXPECT_TRUE(activity || !launches) << "rank " << rank << " instruction " << id << ": "
                                         << label_text(traced.plan, instructions[id].label);
      if (!activity) continue;
      const Span span = traced.timeline.lanes[rank][id];
      EXPECT_GE(activity->extent.start_ns, span.start_ns - traced.uncertainty_ns);
      EXPECT_LE(activity->extent.end_ns, span.end_ns + traced.uncertainty_ns);
      for (const std::size_t work : activity->work)
        EXPECT_EQ(traced.records.work[work].device, static_cast<std::uint32_t>(rank));
    }
  }
  EXPECT_EQ(emulation::pushes_left(), 0);
}

TEST(Cupti, CountsWhatHasNoTimeNoLinkOrWasDropped) {
  const TraceQuality before = trace({}).activity.quality;
  const auto of_all = [](const TraceQuality& q) {
    return q.placed + q.without_time + q.dropped + q.uncorrelated + q.out_of_window;
  };
  for (const emulation::CuptiSettings& settings :
       {emulation::CuptiSettings{.zero_every = 5}, emulation::CuptiSettings{.drop_every = 5},
        emulation::CuptiSettings{.unlink_every = 5}}) {
    const TraceQuality quality = trace(settings).activity.quality;
    EXPECT_EQ(of_all(quality), of_all(before));
    EXPECT_EQ(quality.without_time > 0, settings.zero_every > 0);
    EXPECT_EQ(quality.dropped > 0, settings.drop_every > 0);
    EXPECT_EQ(quality.uncorrelated > before.uncorrelated + before.out_of_window,
              settings.unlink_every > 0);
  }
}

TEST(Cupti, FindsWhereTheHostWaitsAndThatNoStepAllocates) {
  const auto of = [](const emulation::CuptiSettings& settings) {
    const Traced traced = trace(settings);
    Span window{INT64_MAX, 0};
    for (const auto& lane : traced.timeline.lanes) {
      for (const Span& span : lane) {
        window.start_ns = std::min(window.start_ns, span.start_ns);
        window.end_ns = std::max(window.end_ns, span.end_ns);
      }
    }
    return host_time(traced.records, window);
  };
  const HostTime time = of({});
  EXPECT_GT(time.waits, 0);
  EXPECT_GT(time.waiting_ns, 0);
  EXPECT_GT(time.stream_waits, 0);
  EXPECT_GT(time.overheads, 0);
  EXPECT_EQ(time.allocations, 0);
  EXPECT_EQ(time.without_time, 0);
  const HostTime faulty = of({.zero_every = 3});
  EXPECT_GT(faulty.without_time, 0);
  EXPECT_GT(faulty.waits, 0);
}

TEST(Cupti, StartsAnewAndRefusesToStartTwice) {
  emulation::reset();
  emulation::reset_cupti();
  for (int again = 0; again < 3; ++again) {
    start_cupti();
    EXPECT_EQ(message_of([] { start_cupti(); }), "CUPTI collects already");
    EXPECT_TRUE(stop_cupti().work.empty());
    EXPECT_EQ(message_of([] { stop_cupti(); }), "CUPTI does not collect");
  }
}

TEST(Cupti, SaysWhyItCannotCollect) {
  const auto refusal = [](const emulation::CuptiSettings& settings) {
    emulation::reset();
    emulation::reset_cupti(settings);
    const std::string text = message_of([] { start_cupti(); });
    emulation::reset_cupti();
    EXPECT_EQ(message_of([] { start_cupti(); }), "no Error") << "nothing is left of the failure";
    stop_cupti();
    return text;
  };
  EXPECT_EQ(
      refusal({.subscribe_status = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED}),
      "cuptiSubscribe: CUPTI status 39, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED; another "
      "profiler (nsys, ncu, torch.profiler) is attached to this process, and CUPTI serves one: "
      "detach it, or give profile=off");
  EXPECT_EQ(
      refusal({.enable_status = CUPTI_ERROR_UNKNOWN}),
      "cuptiActivityEnable: CUPTI status 999, CUPTI_ERROR_UNKNOWN; it says so where there is no "
      "driver or no GPU: 'meshbench doctor mode=nccl+threads' tells; profile=off runs without it");
  EXPECT_NE(refusal({.enable_status = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES})
                .find("the driver lets root alone profile"),
            std::string::npos);
  EXPECT_NE(refusal({.version = 120800}).find("CUPTI 120800 is loaded"), std::string::npos);
}

}  // namespace
}  // namespace mb
