#include "parallel/comm/transfer.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/comm_contract.h"
#include "tests/support/error.h"
#include "workloads/ops/cpu_isa.h"

namespace mb {
namespace {

using namespace test;

// Sums of `members` contributions by `kernels` into an ordinary and a streaming target and into
// that of the last member.
template <class T>
void expect_serial(const TransferKernels& kernels, int members, std::int64_t count, ReduceOp op,
                   int skew) {
  std::vector<std::unique_ptr<Fenced<T>>> inputs;
  std::vector<const void*> sources;
  for (int member = 0; member < members; ++member) {
    inputs.push_back(std::make_unique<Fenced<T>>(count, skew * (member + 1) % 64));
    inputs.back()->fill([&](std::int64_t i) { return draw<T>(Numbers::mixed, 1, member, i); });
    sources.push_back(inputs.back()->data());
  }
  Fenced<T> ordinary(count, skew), streaming(count, 2 * skew);
  const std::vector<Target> targets = {{streaming.data(), Stores::streaming},
                                       {ordinary.data(), Stores::ordinary},
                                       {inputs.back()->data(), Stores::ordinary}};
  kernels.reduce[static_cast<int>(type_of<T>())][static_cast<int>(op)](sources, targets, count);
  const auto expected = [&](std::int64_t i) {
    return serial<T>(Numbers::mixed, members, 1, i, op);
  };
  ordinary.expect("ordinary", expected);
  streaming.expect("streaming", expected);
  inputs.back()->expect("in place", expected);
}

class EveryInstructionSet : public testing::TestWithParam<std::string_view> {
 protected:
  static const TransferKernels& kernels() { return find_transfers(GetParam()); }
};

// More members than the type counts to: a divisor cut to its width would be 0.
TEST_P(EveryInstructionSet, AveragesOverManyMembersInAByte) {
  const std::vector<std::uint8_t> ones(512, 1);
  const std::vector<const void*> sources(256, ones.data());  // sum 0 modulo 256
  std::vector<std::uint8_t> result(512, 7);
  const std::vector<Target> targets = {{result.data(), Stores::ordinary}};
  kernels().reduce[static_cast<int>(DType::uint8)][static_cast<int>(ReduceOp::avg)](sources,
                                                                                    targets, 512);
  EXPECT_EQ(result, std::vector<std::uint8_t>(512, 0));
}

TEST_P(EveryInstructionSet, ReducesAsASerialLoopDoes) {
  EXPECT_EQ(kernels().isa, GetParam());
  for_each_type([&](auto zero) {
    using T = decltype(zero);
    for (int op = 0; op < kReduceOps; ++op) {
      for (const int members : {1, 2, 3, 8}) {
        for (const std::int64_t count : {0, 1, 15, 64, 128, 129, 512, 1000}) {
          for (const int skew : {0, 8})
            expect_serial<T>(kernels(), members, count, static_cast<ReduceOp>(op), skew);
        }
      }
    }
  });
}

TEST_P(EveryInstructionSet, CopiesToAnyTargets) {
  for (const std::int64_t bytes : {1, 63, 64, 511, 512, 513, 5000}) {
    for (const int skew : {0, 1, 63}) {
      Fenced<std::uint8_t> from(bytes, 7), a(bytes, skew), b(bytes), c(bytes, 64 - skew);
      const auto value = [](std::int64_t i) { return draw<std::uint8_t>(Numbers::mixed, 2, 0, i); };
      from.fill(value);
      const std::vector<Target> targets = {{a.data(), Stores::streaming},
                                           {b.data(), Stores::ordinary},
                                           {c.data(), Stores::streaming}};
      for (std::size_t count : {0, 1, 3}) {
        kernels().copy(from.data(), std::span(targets).first(count), bytes);
        if (count >= 1) a.expect("first", value);
        if (count == 3) b.expect("second", value);
        if (count == 3) c.expect("third", value);
        a.spoil();
      }
    }
  }
}

std::vector<std::string_view> supported() {
  std::vector<std::string_view> names;
  for (const CpuKernels* kernels : supported_kernels()) names.push_back(kernels->isa);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Isa, EveryInstructionSet, testing::ValuesIn(supported()),
                         [](const auto& info) { return std::string(info.param); });

TEST(Transfers, AreThoseOfTheProcesssKernels) {
  EXPECT_EQ(transfers().isa, cpu_kernels().isa);
  EXPECT_THROW(find_transfers("sse9"), Error);
}

}  // namespace
}  // namespace mb
