#include "parallel/plan/builder.h"

#include <gtest/gtest.h>

#include "tests/support/error.h"

namespace mb {
namespace {

using Ids = std::vector<InstructionId>;

// A builder with short words for what these tests do not look at.
struct Build {
  ProgramBuilder builder{0};
  Program program;

  TensorId tensor(std::int64_t elements = 1) {
    return builder.tensor(0, elements, DType::fp32, MemoryClass::workspace, -1, -1);
  }
  TensorId persistent(std::int64_t elements = 1) {
    return builder.persistent(0, elements, DType::fp32, MemoryClass::parameter);
  }
  InstructionId emit(Stream stream, std::initializer_list<TensorId> reads,
                     std::initializer_list<TensorId> writes) {
    return builder.emit(stream, {}, Compute{0}, reads, writes);
  }
  Ids waits(InstructionId id) {
    const auto after = builder.program().after(builder.program().instructions[id]);
    return {after.begin(), after.end()};
  }
};

TEST(Builder, AReadWaitsForTheWriteOnAnotherStream) {
  Build b;
  const TensorId x = b.tensor();
  const auto write = b.emit(Stream::compute, {}, {x});
  EXPECT_EQ(b.waits(b.emit(Stream::tp, {x}, {})), Ids{write});
}

TEST(Builder, NothingWaitsForItsOwnStream) {
  Build b;
  const TensorId x = b.tensor(), y = b.tensor();
  b.emit(Stream::compute, {}, {x});
  EXPECT_EQ(b.waits(b.emit(Stream::compute, {x}, {y})), Ids{});
  EXPECT_EQ(b.waits(b.emit(Stream::compute, {y}, {x})), Ids{});
}

TEST(Builder, AWriteWaitsForEveryReadOnOtherStreams) {
  Build b;
  const TensorId x = b.tensor();
  b.emit(Stream::compute, {}, {x});
  const auto first = b.emit(Stream::tp, {x}, {}), second = b.emit(Stream::dp, {x}, {});
  EXPECT_EQ(b.waits(b.emit(Stream::compute, {}, {x})), (Ids{second, first}));
}

TEST(Builder, AWriteWaitsForAWriteThatNobodyRead) {
  Build b;
  const TensorId x = b.tensor();
  const auto write = b.emit(Stream::tp, {}, {x});
  EXPECT_EQ(b.waits(b.emit(Stream::compute, {}, {x})), Ids{write});
}

TEST(Builder, ReadsDoNotWaitForEachOther) {
  Build b;
  const TensorId x = b.tensor();
  const auto write = b.emit(Stream::compute, {}, {x});
  EXPECT_EQ(b.waits(b.emit(Stream::tp, {x}, {})), Ids{write});
  EXPECT_EQ(b.waits(b.emit(Stream::dp, {x}, {})), Ids{write});
}

TEST(Builder, APersistentTensorIsReadWithoutAWait) {
  Build b;
  EXPECT_EQ(b.waits(b.emit(Stream::compute, {b.persistent()}, {b.tensor()})), Ids{});
}

TEST(Builder, TensorsThatDoNotMeetDoNotWait) {
  Build b;
  b.emit(Stream::compute, {}, {b.tensor()});
  EXPECT_EQ(b.waits(b.emit(Stream::tp, {}, {b.tensor()})), Ids{});
}

TEST(Builder, AnInstructionIsWaitedForOnceAStream) {
  Build b;
  const TensorId x = b.tensor(), y = b.tensor();
  b.emit(Stream::compute, {}, {x});
  const auto write = b.emit(Stream::compute, {}, {y});
  EXPECT_EQ(b.waits(b.emit(Stream::tp, {y}, {})), Ids{write});
  EXPECT_EQ(b.waits(b.emit(Stream::tp, {y, x}, {})), Ids{}) << "an earlier wait implies both";
}

TEST(Builder, AWaitThatAnotherImpliesIsLeftOut) {
  Build b;
  const TensorId x = b.tensor(), y = b.tensor();
  b.emit(Stream::compute, {}, {x});
  const auto middle = b.emit(Stream::tp, {x}, {y});
  EXPECT_EQ(b.waits(b.emit(Stream::dp, {x, y}, {})), Ids{middle});
}

TEST(Builder, WhatWasKnownWhenAnInstructionStartedIsKnownToWhoWaitsForIt) {
  Build b;
  const TensorId x = b.tensor(), y = b.tensor(), z = b.tensor();
  b.emit(Stream::dp, {}, {x});
  b.emit(Stream::tp, {x}, {y});
  const auto last = b.emit(Stream::compute, {y}, {z});
  EXPECT_EQ(b.waits(last).size(), 1u);
  EXPECT_EQ(b.waits(b.emit(Stream::pp_send, {x, y, z}, {})), Ids{last});
}

TEST(Builder, AJoinIsAWaitOfTheNextInstructionAlone) {
  Build b;
  const auto sent = b.emit(Stream::pp_send, {}, {b.tensor()});
  b.builder.join(Stream::compute, sent);
  EXPECT_EQ(b.waits(b.emit(Stream::tp, {}, {b.tensor()})), Ids{});
  EXPECT_EQ(b.waits(b.emit(Stream::compute, {}, {b.tensor()})), Ids{sent});
  b.builder.join(Stream::compute, sent);
  EXPECT_EQ(b.waits(b.emit(Stream::compute, {}, {b.tensor()})), Ids{}) << "already known";
}

TEST(Builder, AViewIsItsBase) {
  Build b;
  const TensorId base = b.persistent(8);
  const TensorId left = b.builder.view(base, 0, 0, 4, MemoryClass::gradient);
  const TensorId right = b.builder.view(base, 0, 4, 4, MemoryClass::gradient);
  const auto write = b.emit(Stream::compute, {}, {left});
  EXPECT_EQ(b.waits(b.emit(Stream::dp, {base}, {base})), Ids{write});
  b.emit(Stream::compute, {right}, {});
  const Program program = b.builder.finish();
  EXPECT_EQ(program.tensors[right].offset, program.tensors[base].offset + 16);
  EXPECT_EQ(program.tensors[left].offset, program.tensors[base].offset);
}

TEST(Builder, ATensorLivesFromItsFirstWriteToItsLastUse) {
  Build b;
  const TensorId x = b.tensor(), y = b.tensor(), unused = b.tensor(), kept = b.persistent();
  b.emit(Stream::compute, {}, {y});
  const auto first = b.emit(Stream::compute, {y}, {x});
  b.emit(Stream::compute, {x}, {x});
  const auto last = b.emit(Stream::compute, {x}, {kept});
  b.emit(Stream::compute, {kept}, {});
  const Program program = b.builder.finish();
  EXPECT_EQ(program.tensors[x].first, first);
  EXPECT_EQ(program.tensors[x].last, last);
  EXPECT_EQ(program.tensors[unused].first, kNone);
  EXPECT_EQ(program.tensors[kept].first, kNone);
}

TEST(Builder, ATensorLastUsedOnAnotherStreamLivesUntilComputeHasWaitedForThat) {
  Build b;
  const TensorId x = b.tensor(), y = b.tensor();
  b.emit(Stream::compute, {}, {x});
  b.emit(Stream::tp, {x}, {y});
  b.emit(Stream::compute, {}, {b.tensor()});
  const auto knows = b.emit(Stream::compute, {y}, {});
  b.emit(Stream::compute, {}, {b.tensor()});
  EXPECT_EQ(b.builder.finish().tensors[x].last, knows);
}

TEST(Builder, ATensorThatComputeNeverWaitsForLivesToTheEnd) {
  Build b;
  const TensorId x = b.tensor();
  b.emit(Stream::compute, {}, {x});
  b.emit(Stream::pp_send, {x}, {});
  const auto last = b.emit(Stream::compute, {}, {b.tensor()});
  EXPECT_EQ(b.builder.finish().tensors[x].last, last);
}

TEST(Interner, HoldsEachOperationAndEachNameOnce) {
  Interner interner;
  const Op gelu{Gelu{1, 3}}, norm{Norm{NormKind::rms, 4, 8, 1e-5f}},
      other{Norm{NormKind::rms, 4, 8, 1e-6f}};
  EXPECT_EQ(interner.op(gelu), 0u);
  EXPECT_EQ(interner.op(norm), 1u);
  EXPECT_EQ(interner.op(other), 2u);
  EXPECT_EQ(interner.op(norm), 1u);
  EXPECT_EQ(interner.op({Gelu{1, 3}, DType::fp64}), 3u);
  EXPECT_EQ(interner.op(gelu), 0u);
  EXPECT_EQ(interner.name("a"), 0u);
  EXPECT_EQ(interner.name("b"), 1u);
  EXPECT_EQ(interner.name("a"), 0u);
  EXPECT_EQ(interner.take_ops().size(), 4u);
  EXPECT_EQ(interner.take_names(), (std::vector<std::string>{"a", "b"}));
}

TEST(Interner, RefusesMoreNamesThanAnInstructionCanCount) {
  Interner interner;
  for (int i = 0; i < 65535; ++i) interner.name(std::to_string(i));
  EXPECT_NE(message_of([&] { interner.name("one more"); }).find("at most 65,535 names"),
            std::string::npos);
}

}  // namespace
}  // namespace mb
