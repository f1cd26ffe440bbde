// Rows in packs: every element once, packs only where they begin at multiples of 16 bytes, and what
// a lane of a GPU computes of a row beside what a CPU does.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "workloads/ops/activation.h"
#include "workloads/ops/adamw.h"
#include "workloads/ops/cuda_launch.h"
#include "workloads/ops/norm.h"
#include "workloads/ops/softmax.h"

namespace mb::cuda {
namespace {

// Values in memory that begins at `offset` elements from a multiple of 64 bytes, between others
// that must stay.
template <class T>
class Row {
 public:
  Row(std::int64_t n, std::int64_t offset, int seed) : n_(n), first_(kEdge + offset) {
    lines_.resize((n + offset + 2 * kEdge) * sizeof(T) / sizeof(Line) + 1);
    for (std::int64_t i = -kEdge; i < n + kEdge; ++i)
      at()[i] = static_cast<T>(std::sin(static_cast<float>(7 * i + seed)));
    before_ = lines_;
  }
  T* at() { return reinterpret_cast<T*>(lines_.data()) + first_; }
  const T* in() { return at(); }
  std::vector<double> values() { return {at(), at() + n_}; }
  // Whether what is around them is as it was.
  bool is_whole() {
    std::memcpy(reinterpret_cast<T*>(before_.data()) + first_, at(), sizeof(T) * n_);
    return std::memcmp(before_.data(), lines_.data(), lines_.size() * sizeof(Line)) == 0;
  }

 private:
  static constexpr std::int64_t kEdge = 64;
  struct alignas(64) Line {
    char bytes[64];
  };
  std::int64_t n_, first_;
  std::vector<Line> lines_, before_;
};

template <class T>
class Packs : public testing::Test {};
using Types = testing::Types<Bf16, Fp16, float, double>;
TYPED_TEST_SUITE(Packs, Types);

// f(n, offset) for lengths and beginnings of every kind.
template <class F>
void for_rows(F f) {
  for (const std::int64_t n : {0, 1, 7, 8, 15, 16, 17, 33, 64, 257, 1000})
    for (std::int64_t offset = 0; offset < 9; ++offset) f(n, offset);
}

TYPED_TEST(Packs, HaveEveryElementOnceWhateverTheLanes) {
  static constexpr int kWidth = kPackBytes / sizeof(TypeParam);
  for_rows([](std::int64_t n, std::int64_t offset) {
    Row<TypeParam> x(n, offset, 1), y(n, offset, 2);
    std::vector<int> visits(n);
    std::int64_t packed = 0;
    for (std::int64_t lane = 0; lane < 4; ++lane) {
      visit<4, 2>(
          lane, n,
          [&](int k, std::int64_t i, TypeParam& to, const TypeParam& from) {
            ++visits[i];
            to = from;
            packed += &to != y.at() + i;  // in registers
            EXPECT_LT(k, kWidth);
          },
          y.at(), x.in());
    }
    EXPECT_EQ(visits, std::vector<int>(n, 1)) << n << " from " << offset;
    const bool wide = offset % kWidth == 0 && n >= 2 * kWidth;
    EXPECT_EQ(packed, wide ? n / kWidth * kWidth : 0) << n << " from " << offset;
    EXPECT_EQ(y.values(), x.values());
    EXPECT_TRUE(x.is_whole() && y.is_whole());
  });
}

TYPED_TEST(Packs, OfOperandsThatBeginApartAreNone) {
  Row<TypeParam> x(100, 1, 1), y(100, 0, 2);
  visit<1, 2>(
      0, 100,
      [](int k, std::int64_t, TypeParam& to, TypeParam from) {
        to = from;
        EXPECT_EQ(k, 0);
      },
      y.at(), x.in());
  EXPECT_EQ(y.values(), x.values());
}

// run(team, row of each) by both teams: those of element-wise functions have the same bits.
template <class T, class Run>
void expect_same(std::int64_t n, std::int64_t offset, Run run) {
  std::vector<Row<T>> a, b;
  for (int seed = 0; seed < 5; ++seed)
    a.emplace_back(n, offset, seed), b.emplace_back(n, offset, seed);
  run(SerialTeam{}, a);
  run(OneLane{}, b);
  for (int k = 0; k < 5; ++k) {
    EXPECT_EQ(a[k].values(), b[k].values()) << "row " << k << ", " << n << " from " << offset;
    EXPECT_TRUE(b[k].is_whole()) << "row " << k << ", " << n << " from " << offset;
  }
}

TYPED_TEST(Packs, ComputeWhatACpuDoesInPlaceToo) {
  using T = TypeParam;
  for_rows([](std::int64_t n, std::int64_t offset) {
    const DropoutMask mask{7, std::int64_t{1} << 52, 2};
    expect_same<T>(n, offset, [&](auto team, std::vector<Row<T>>& r) {
      gelu(team, r[0].in(), r[1].at(), n);
      gelu_gradient(team, r[2].in(), r[0].in(), r[2].at(), n);
      add_dropped_row(team, r[0].in(), r[1].in(), r[2].in(), r[3].at(), n, mask, 5);
      add_row(team, r[3].in(), r[4].in(), static_cast<const T*>(nullptr), r[3].at(), n);
      swiglu_gradient_row(team, r[0].in(), r[1].in(), r[2].in(), r[1].at(), r[2].at(), n);
      add_to(team, r[0].in(), r[4].at(), n);
      convert(team, r[4].in(), r[0].at(), n);
    });
  });
}

TYPED_TEST(Packs, OfSeveralTypesUpdateAsACpuDoes) {
  using T = TypeParam;
  using M = Main<T>;
  const UpdateRule rule{0.1, 0.9, 0.95, 1e-8, 0.1, 1};
  for_rows([&](std::int64_t n, std::int64_t offset) {
    const auto run = [&](auto team) {
      Row<M> g(n, offset, 1), value(n, offset, 2), m(n, offset, 3), v(n, offset, 4);
      for (std::int64_t i = 0; i < n; ++i) v.at()[i] = v.at()[i] * v.at()[i];
      Row<T> rounded(n, offset, 5);
      adamw(team, rule, 0.1, 0.5, 3, n, g.in(), value.at(), m.at(), v.at(), rounded.at());
      EXPECT_TRUE(value.is_whole() && m.is_whole() && rounded.is_whole());
      return std::vector{value.values(), m.values(), v.values(), rounded.values()};
    };
    EXPECT_EQ(run(OneLane{}), run(SerialTeam{})) << n << " from " << offset;
  });
}

TYPED_TEST(Packs, SumInAnotherOrderAndFindTheSameMaximum) {
  using T = TypeParam;
  using M = Main<T>;
  const double close = sizeof(M) == 8 ? 1e-14 : 1e-6;
  for_rows([&](std::int64_t n, std::int64_t offset) {
    Row<T> x(n, offset, 1), scores(n, offset, 2);
    EXPECT_EQ(max_row(OneLane{}, x.in(), n), max_row(SerialTeam{}, x.in(), n));
    const M max = max_row(SerialTeam{}, x.in(), n);
    EXPECT_NEAR(exp_sum_row(OneLane{}, x.in(), max, n), exp_sum_row(SerialTeam{}, x.in(), max, n),
                close * static_cast<double>(n));
  });
}

}  // namespace
}  // namespace mb::cuda
