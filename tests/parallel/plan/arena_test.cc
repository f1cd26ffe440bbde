#include "parallel/plan/arena.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/plan/builder.h"
#include "parallel/plan/liveness.h"
#include "parallel/plan/validate.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

using Ids = std::vector<InstructionId>;

struct Build {
  ProgramBuilder builder{0};
  TensorId tensor(std::int64_t bytes) {
    return builder.tensor(0, bytes / 4, DType::fp32, MemoryClass::workspace, -1, -1);
  }
  InstructionId emit(Stream stream, std::vector<TensorId> reads, std::vector<TensorId> writes) {
    return builder.emit(stream, {}, Compute{0}, reads, writes);
  }
};

Ids waits(const Program& program, InstructionId id) {
  const auto after = program.after(program.instructions[id]);
  return {after.begin(), after.end()};
}

TEST(Arena, PersistentTensorsComeFirstEachAlignedTo64Bytes) {
  Build b;
  const TensorId x = b.tensor(4);
  const TensorId p = b.builder.persistent(0, 17, DType::fp32, MemoryClass::parameter);
  const TensorId q = b.builder.persistent(0, 1, DType::fp64, MemoryClass::gradient);
  b.emit(Stream::compute, {p, q}, {x});
  const Program program = b.builder.finish();
  EXPECT_EQ(program.tensors[p].offset, 0);
  EXPECT_EQ(program.tensors[q].offset, 128);
  EXPECT_EQ(program.tensors[x].offset, 192);
  EXPECT_EQ(program.arena_bytes, 256);
}

TEST(Arena, BytesOfADeadTensorAreUsedAgain) {
  Build b;
  const TensorId x = b.tensor(128), y = b.tensor(64), z = b.tensor(64), w = b.tensor(64);
  b.emit(Stream::compute, {}, {x});
  b.emit(Stream::compute, {x}, {y});  // x and y both live here
  b.emit(Stream::compute, {y}, {z});
  b.emit(Stream::compute, {y, z}, {w});
  const Program program = b.builder.finish();
  EXPECT_EQ(program.tensors[x].offset, 0);
  EXPECT_EQ(program.tensors[y].offset, 128);
  EXPECT_EQ(program.tensors[z].offset, 0);
  EXPECT_EQ(program.tensors[w].offset, 64);
  EXPECT_EQ(program.arena_bytes, 192);
}

TEST(Arena, NeighboursThatAreFreeBecomeOneRange) {
  Build b;
  const TensorId x = b.tensor(64), y = b.tensor(64), z = b.tensor(64), wide = b.tensor(192);
  b.emit(Stream::compute, {}, {x, y, z});
  b.emit(Stream::compute, {y}, {});
  b.emit(Stream::compute, {x}, {});
  b.emit(Stream::compute, {z}, {});
  b.emit(Stream::compute, {}, {wide});
  const Program program = b.builder.finish();
  EXPECT_EQ(program.tensors[wide].offset, 0);
  EXPECT_EQ(program.arena_bytes, 192);
}

TEST(Arena, AnotherStreamWaitsForTheComputationThatUsedTheBytesBefore) {
  Build b;
  const TensorId x = b.tensor(64), y = b.tensor(64);
  b.emit(Stream::compute, {}, {x});
  const auto last = b.emit(Stream::compute, {x}, {});
  const auto receives = b.emit(Stream::pp_recv, {}, {y});
  b.emit(Stream::compute, {y}, {});
  const Program program = b.builder.finish();
  EXPECT_EQ(program.tensors[y].offset, program.tensors[x].offset);
  EXPECT_EQ(waits(program, receives), Ids{last});
}

TEST(Arena, FreshBytesNeedNoWait) {
  Build b;
  const TensorId x = b.tensor(64), y = b.tensor(64);
  b.emit(Stream::compute, {}, {x});
  const auto receives = b.emit(Stream::pp_recv, {}, {y});
  b.emit(Stream::compute, {x, y}, {});
  EXPECT_EQ(waits(b.builder.finish(), receives), Ids{});
}

TEST(Arena, AWaitThatIsThereAlreadyIsNotRepeated) {
  Build b;
  const TensorId x = b.tensor(64), y = b.tensor(64), z = b.tensor(64);
  b.emit(Stream::compute, {}, {x});
  const auto last = b.emit(Stream::compute, {x}, {z});
  const auto next = b.emit(Stream::tp, {z}, {y});
  b.emit(Stream::compute, {y}, {});
  const Program program = b.builder.finish();
  EXPECT_EQ(program.tensors[y].offset, program.tensors[x].offset);
  EXPECT_EQ(waits(program, next), Ids{last});
}

TEST(Arena, BytesThatAnotherStreamMayStillReadAreNotGivenAway) {
  Build b;
  const TensorId x = b.tensor(64), y = b.tensor(64), z = b.tensor(64);
  b.emit(Stream::compute, {}, {x});
  const auto sent = b.emit(Stream::pp_send, {x}, {});
  b.emit(Stream::compute, {}, {y});
  b.builder.join(Stream::compute, sent);
  b.emit(Stream::compute, {y}, {});
  b.emit(Stream::compute, {}, {z});
  const Program program = b.builder.finish();
  EXPECT_NE(program.tensors[y].offset, program.tensors[x].offset);
  EXPECT_EQ(program.tensors[z].offset, program.tensors[x].offset);
}

TEST(Arena, ATensorThatNothingTouchesTakesNoRoom) {
  Build b;
  b.tensor(1 << 20);
  b.emit(Stream::compute, {}, {});
  EXPECT_EQ(b.builder.finish().arena_bytes, 0);
}

// A Program of random instructions on all streams; every tensor is read at last.
Plan random_plan(std::uint64_t seed) {
  std::uint64_t drawn = 0;
  const auto draw = [&](int below) {
    return static_cast<int>(random_uniform(seed, 0, drawn++) * below);
  };
  Build b;
  std::vector<TensorId> live;
  for (int i = 0; i < 200; ++i) {
    std::vector<TensorId> reads, writes;
    for (int k = draw(3); k > 0 && !live.empty(); --k) {
      const int at = draw(static_cast<int>(live.size()));
      if (std::count(reads.begin(), reads.end(), live[at]) > 0) continue;
      reads.push_back(live[at]);
      const int then = draw(3);  // updated in place, never used again, or neither
      if (then == 0) writes.push_back(live[at]);
      if (then == 1) live.erase(live.begin() + at);
    }
    for (int k = draw(3); k > 0; --k) {
      const TensorId t = b.tensor(4 * (1 + draw(100)));
      writes.push_back(t);
      live.push_back(t);
    }
    b.emit(static_cast<Stream>(draw(4) == 0 ? draw(kStreams) : 0), reads, writes);
  }
  b.emit(Stream::compute, live, {});
  Plan plan;
  plan.programs.push_back(b.builder.finish());
  plan.ops = {Op{Gelu{1, 1}}};
  plan.names = {"x"};
  return plan;
}

TEST(Arena, RandomProgramsShareBytesSafelyAndSaveRoom) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Plan plan = random_plan(seed);
    ASSERT_NO_THROW(validate(plan)) << seed;
    const Program& program = plan.programs[0];
    std::int64_t all = 0;
    for (const Tensor& t : program.tensors) all += (t.bytes + 63) / 64 * 64;
    EXPECT_GE(program.arena_bytes, memory_peak(program).total_bytes);
    EXPECT_LT(program.arena_bytes, all) << seed;
  }
}

}  // namespace
}  // namespace mb
