#include "parallel/plan/liveness.h"

#include <gtest/gtest.h>

#include "parallel/plan/builder.h"

namespace mb {
namespace {

constexpr int kWork = static_cast<int>(MemoryClass::workspace);
constexpr int kKept = static_cast<int>(MemoryClass::activation);
constexpr int kParameter = static_cast<int>(MemoryClass::parameter);

struct Build {
  ProgramBuilder builder{0};
  TensorId tensor(std::int64_t bytes, MemoryClass memory) {
    return builder.tensor(0, bytes / 4, DType::fp32, memory, -1, -1);
  }
  void emit(std::initializer_list<TensorId> reads, std::initializer_list<TensorId> writes) {
    builder.emit(Stream::compute, {}, Compute{0}, reads, writes);
  }
};

TEST(MemoryPeak, OfAProgramWithoutTemporariesIsWhatPersists) {
  Build b;
  const TensorId p = b.builder.persistent(0, 10, DType::fp32, MemoryClass::parameter);
  b.builder.view(p, 0, 0, 5, MemoryClass::gradient);
  b.emit({p}, {p});
  const MemoryPeak peak = memory_peak(b.builder.finish());
  EXPECT_EQ(peak.total_bytes, 40);
  EXPECT_EQ(peak.at, kNone);
  EXPECT_EQ(peak.at_total_peak[kParameter], 40);
  EXPECT_EQ(peak.class_peak[kParameter], 40);
}

TEST(MemoryPeak, CountsReadAndWrittenTensorsOfAnInstructionTogether) {
  Build b;
  const TensorId x = b.tensor(100, MemoryClass::workspace),
                 y = b.tensor(40, MemoryClass::activation),
                 z = b.tensor(60, MemoryClass::workspace),
                 w = b.tensor(20, MemoryClass::activation);
  b.emit({}, {x});      // 100
  b.emit({x}, {y});     // 140
  b.emit({y}, {z});     // 100, 140 without x
  b.emit({y, z}, {w});  // 120
  b.emit({w}, {});      // 20
  const MemoryPeak peak = memory_peak(b.builder.finish());
  EXPECT_EQ(peak.total_bytes, 140);
  EXPECT_EQ(peak.at, 1);
  EXPECT_EQ(peak.at_total_peak[kWork], 100);
  EXPECT_EQ(peak.at_total_peak[kKept], 40);
  EXPECT_EQ(peak.class_peak[kWork], 100);
  EXPECT_EQ(peak.class_peak[kKept], 60) << "later than the peak of all";
}

TEST(MemoryPeak, IsTheFirstOfEqualOnes) {
  Build b;
  const TensorId x = b.tensor(64, MemoryClass::workspace), y = b.tensor(64, MemoryClass::workspace);
  b.emit({}, {x});
  b.emit({x}, {});
  b.emit({}, {y});
  b.emit({y}, {});
  EXPECT_EQ(memory_peak(b.builder.finish()).at, 0);
}

TEST(Lifetimes, GroupTensorsByTheEndsOfTheirLives) {
  Build b;
  const TensorId x = b.tensor(4, MemoryClass::workspace), y = b.tensor(4, MemoryClass::workspace);
  b.tensor(4, MemoryClass::workspace);
  b.builder.persistent(0, 1, DType::fp32, MemoryClass::parameter);
  b.emit({}, {x, y});
  b.emit({x}, {});
  b.emit({y}, {});
  const Program program = b.builder.finish();
  const Lifetimes lifetimes(program);
  const auto list = [](std::span<const TensorId> ids) {
    return std::vector<TensorId>(ids.begin(), ids.end());
  };
  EXPECT_EQ(list(lifetimes.born_at(0)), (std::vector<TensorId>{x, y}));
  EXPECT_EQ(list(lifetimes.born_at(1)), std::vector<TensorId>{});
  EXPECT_EQ(list(lifetimes.dead_after(0)), std::vector<TensorId>{});
  EXPECT_EQ(list(lifetimes.dead_after(1)), std::vector<TensorId>{x});
  EXPECT_EQ(list(lifetimes.dead_after(2)), std::vector<TensorId>{y});
}

}  // namespace
}  // namespace mb
