#include "bench/analysis/memory.h"

#include <gtest/gtest.h>

#include "tests/bench/synthetic.h"

namespace mb {
namespace {

struct Fixture {
  StepShape shape = small_shape("dp2.pp2", "1f1b", 4);
  Plan plan = plan_step(shape.model, shape.mesh, shape.options);
};

TEST(Memory, WithoutMeasurementTheWorstPlannedStageIsShown) {
  const Fixture f;
  const MemoryReport report = memory_report(f.plan, f.shape, {});
  const std::int64_t first = memory_peak(f.plan.programs[0]).total_bytes,
                     last = memory_peak(f.plan.programs[1]).total_bytes;
  EXPECT_EQ(report.total.plan_bytes, std::max(first, last));
  EXPECT_EQ(report.stage, last > first ? 1 : 0);
  EXPECT_FALSE(report.total.measured_bytes.has_value());
}

TEST(Memory, WorstMeasuredRankIsNamed) {
  const Fixture f;
  MeasuredMemory measured;
  for (int rank = 0; rank < 4; ++rank) measured.push_back(memory_peak(f.plan.program_of(rank)));
  measured[3]->total_bytes = 1 << 30;
  const MemoryReport report = memory_report(f.plan, f.shape, measured);
  EXPECT_EQ(report.rank, 3);
  EXPECT_EQ(report.stage, f.plan.mesh.coordinate(3, Axis::pp));
  EXPECT_EQ(report.total.measured_bytes, 1 << 30);
}

TEST(Memory, CompositionAddsUpToTheTotal) {
  const Fixture f;
  const MemoryReport report = memory_report(f.plan, f.shape, {});
  std::int64_t sum = 0;
  for (const MemoryRow& row : report.classes) sum += row.composition_bytes;
  EXPECT_EQ(sum, report.total.plan_bytes);
  EXPECT_EQ(report.classes.size(), static_cast<std::size_t>(kMemoryClasses));
}

TEST(Memory, DifferencesAreExplainedAndAgreementIsNot) {
  const Fixture f;
  for (const MemoryRow& row : memory_report(f.plan, f.shape, {}).classes)
    EXPECT_EQ(row.explanation.empty(), row.closed_form_bytes == row.plan_bytes) << row.name;
}

TEST(Memory, ExplanationNamesWhatIsLive) {
  const Fixture f;
  for (const MemoryRow& row : memory_report(f.plan, f.shape, {}).classes)
    if (row.name == "workspace") {
      EXPECT_NE(row.explanation.find("scalars"), std::string::npos) << row.explanation;
    }
}

TEST(Memory, EveryStageHasItsFullestRank) {
  const Fixture f;
  MeasuredMemory measured;
  for (int rank = 0; rank < 4; ++rank) measured.push_back(memory_peak(f.plan.program_of(rank)));
  measured[1]->total_bytes += 1;
  const std::vector<MemoryReport> reports = memory_reports(f.plan, f.shape, measured);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].rank, 1);
  EXPECT_EQ(reports[1].stage, 1);
}

TEST(Memory, WhatIsLiveAtThePeakIsAllThatIsNotAlwaysThere) {
  const Fixture f;
  for (const MemoryReport& report : memory_reports(f.plan, f.shape, {})) {
    std::int64_t live = 0;
    for (const LiveTensors& tensors : report.live) live += tensors.bytes;
    for (const Tensor& tensor : f.plan.programs[report.stage].tensors)
      if (tensor.persistent && tensor.base == kNone) live += tensor.bytes;
    EXPECT_EQ(live, report.total.plan_bytes);
    EXPECT_FALSE(report.peak.empty());
  }
}

TEST(Memory, TheSecondSpaceIsARowOfItsOwn) {
  StepShape shape = small_shape("dp2.pp2", "1f1b", 4);
  shape.options.offload_optimizer = true;
  const Plan plan = plan_step(shape.model, shape.mesh, shape.options);
  const MemoryReport report = memory_report(plan, shape, {});
  EXPECT_GT(report.host.plan_bytes, 0);
  EXPECT_EQ(report.host.closed_form_bytes, report.host.plan_bytes);
}

}  // namespace
}  // namespace mb
