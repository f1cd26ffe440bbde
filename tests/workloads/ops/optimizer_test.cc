// The numbers of a step, and the update of flat parameters in slices.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/reference.h"
#include "workloads/ops/launch.h"

namespace mb {
namespace {

using testing::Backend;
using testing::noise;
using testing::Operand;
using testing::run_on;
using testing::scalars;
using Values = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

const Backend& reference() {
  static const Backend backend = testing::backends().front();
  return backend;
}
Values scalars_after(const OpKind& op, const OpContext& context, const Values& before) {
  return run_on(reference(), op, context, {}, {scalars(before)})[0];
}

TEST(StartStep, ZeroesTheSumsAndSetsTheScaleBeforeTheFirstStepAlone) {
  const Values before = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(scalars_after(StartStep{256}, {.step = 0}, before),
            (Values{0, 0, 0, 0, 256, 0, 0, 256}));
  EXPECT_EQ(scalars_after(StartStep{256}, {.step = 9}, before), (Values{0, 0, 0, 0, 5, 6, 7, 5}));
}

TEST(UpdateLossScale, HalvesAfterASkippedStepAndDoublesAfterEnoughGoodOnes) {
  for (double bad : {kInfinity, kNan}) {
    EXPECT_EQ(scalars_after(UpdateLossScale{3}, {}, {0, 1, bad, 0, 64, 2, 5})[4], 32);
    EXPECT_EQ(scalars_after(UpdateLossScale{3}, {}, {0, 1, bad, 0, 64, 2, 5})[5], 0);
    EXPECT_EQ(scalars_after(UpdateLossScale{3}, {}, {0, 1, bad, 0, 64, 2, 5})[6], 6);
  }
  Values s = {0, 1, 9, 0, 64, 0, 5};
  for (const auto& [scale, steps] : {std::pair{64, 1}, {64, 2}, {128, 0}, {128, 1}}) {
    s = scalars_after(UpdateLossScale{3}, {}, s);
    EXPECT_EQ(s, (Values{0, 1, 9, 0, double(scale), double(steps), 5}));
  }
}

UpdateParameters update_of(const FlatSlice& slice, bool whole_gradient, bool whole_value,
                           bool moments) {
  return {slice, whole_gradient, whole_value, moments, 0.01, 0.9, 0.95, 1e-8, 0.1, 1.0};
}

TEST(UpdateParameters, DecaysEachSegmentAsItSaysAndWithoutMomentsNone) {
  const std::int64_t n = 211, half = 100;
  const Values gradient = noise(1, n, 8), value = noise(2, n), m = noise(3, n), v(n, 0.25);
  const auto updated = [&](bool decay_first, bool decay_rest, bool moments) {
    const FlatSlice slice{n, 1, false, {{0, half, decay_first, 1}, {half, n, decay_rest, 1}}};
    return run_on(reference(), update_of(slice, false, false, moments), {.step = 6},
                  {{gradient}, scalars({0, 4, 900, 0, 1, 0, 0})}, {{value}, {m}, {v}});
  };
  const auto both = updated(true, true, true), none = updated(false, false, true);
  const auto first = updated(true, false, true);
  for (std::int64_t i = 0; i < n; ++i) {
    EXPECT_EQ(first[0][i], (i < half ? both : none)[0][i]);
    EXPECT_NEAR(none[0][i] - both[0][i], 0.01 * 0.1 * value[i], 1e-15);
  }
  const auto sgd = updated(true, true, false);
  EXPECT_EQ(sgd, updated(false, false, false));
  EXPECT_EQ(sgd[1], m) << "moments are no operand";
}

TEST(UpdateParameters, LeavesOutTheLossScaleAndSkippedSteps) {
  const FlatSlice slice{3, 1, false, {{0, 3, true, 1}}};
  const auto updated = [&](double scale, double skipped, std::int64_t step) {
    const Values gradient = {1 * scale, -2 * scale, 3 * scale};
    return run_on(reference(), update_of(slice, false, false, true), {.step = step},
                  {{gradient}, scalars({0, 2, 14 * scale * scale, 0, scale, 0, skipped})},
                  {{{1, 2, 3}}, {{0.5, 0.5, 0.5}}, {{1, 1, 1}}});
  };
  EXPECT_EQ(updated(1024, 0, 4), updated(1, 0, 4));
  EXPECT_EQ(updated(1, 3, 7), updated(1, 0, 4));
  EXPECT_NE(updated(1, 0, 7), updated(1, 0, 4));
}

TEST(UpdateParameters, ChangesNothingWhereTheNormIsNotFinite) {
  const FlatSlice slice{2, 1, false, {{0, 2, true, 1}}};
  const std::vector<Operand> state = {
      testing::in_main({{1, 2}}), testing::in_main({{3, 4}}), testing::in_main({{5, 6}}), {{7, 8}}};
  auto all = testing::backends();
  const auto half = testing::half_backends();
  all.insert(all.end(), half.begin(), half.end());
  for (const Backend& backend : all) {
    for (double bad : {kInfinity, kNan}) {
      const auto after =
          run_on(backend, update_of(slice, false, false, true), {},
                 {testing::in_main({{bad, 1}}), scalars({0, 1, bad, 0, 8, 0, 0})}, state);
      for (std::size_t i = 0; i < state.size(); ++i) EXPECT_EQ(after[i], state[i].values);
    }
  }
}

// A bucket of `size` elements in two segments, of which `ways` owners have slices.
FlatSlice slice_of(std::int64_t size, int ways) {
  const std::int64_t middle = (size + 1) / 2;
  return {(size + ways - 1) / ways, ways, false, {{0, middle, true, 1}, {middle, size, false, 1}}};
}
Values padded(Values values, std::int64_t size) {
  values.resize(size, 1e6);  // would show if it took part
  return values;
}

TEST(UpdateParameters, SlicesOfAllOwnersAreTheWholeUpdate) {
  for (const auto& [size, ways] : {std::pair{5, 4}, {3, 4}, {12, 4}, {13, 4}, {1, 3}, {64, 2}}) {
    const FlatSlice whole = slice_of(size, 1), slice = slice_of(size, ways);
    const std::int64_t full = slice.n * ways;
    const Values gradient = padded(noise(1, size), full), value = padded(noise(2, size), full);
    const Values m = padded(noise(3, size), full), v = padded(Values(size, 0.5), full);
    const Operand sums = scalars({0, 1, 25, 0, 1, 0, 0});
    auto expected = run_on(reference(), update_of(whole, false, false, true), {},
                           {{gradient}, sums}, {{value}, {m}, {v}});
    for (bool whole_operands : {false, true}) {
      Values state[3];
      for (int owner = 0; owner < ways; ++owner) {
        const auto part = [&, n = slice.n](const Values& all) {
          return Operand{Values(all.begin() + owner * n, all.begin() + (owner + 1) * n)};
        };
        const auto after = run_on(
            reference(), update_of(slice, whole_operands, whole_operands, true),
            {.owner_index = owner}, {whole_operands ? Operand{gradient} : part(gradient), sums},
            {whole_operands ? Operand{value} : part(value), part(m), part(v)});
        for (int i = 0; i < 3; ++i) {
          const Values mine = i == 0 && whole_operands ? part(after[0]).values : after[i];
          state[i].insert(state[i].end(), mine.begin(), mine.end());
        }
      }
      for (int i = 0; i < 3; ++i) EXPECT_EQ(state[i], expected[i]) << size << " over " << ways;
    }
  }
}

TEST(UpdateParameters, WritesTheRoundedSliceIntoTheWholeBucket) {
  const FlatSlice slice{2, 2, true, {{0, 3, false, 1}}};
  for (const Backend& backend : testing::half_backends()) {
    const auto after =
        run_on(backend, update_of(slice, false, true, false), {.expert_owner_index = 1},
               {testing::in_main({{1, 9}}), scalars({0, 1, 1, 0, 1, 0, 0})},
               {testing::in_main({{0.3, 9}}), {{7, 7, 7, 7}}});
    EXPECT_EQ(after[1][0], 7);
    EXPECT_EQ(after[1][2], testing::rounded({after[0][0]}, backend.dtype)[0]);
    EXPECT_EQ(after[1][3], 7) << "padding";
    EXPECT_EQ(after[0][1], 9) << "padding";
  }
}

double norm_of(const FlatSlice& slice, bool whole, const OpContext& context,
               const Values& gradient) {
  return run_on(reference(), GradientNorm{slice, whole}, context, {{gradient}},
                {scalars({0, 0, 0, 0, 1, 0, 0})})[0][2];
}

TEST(GradientNorm, CountsEachElementOnceOverOwnersReplicasAndTensorRanks) {
  // [0, 2) is each tensor rank's own, [2, 5) is the same on all of 2, the rest is counted
  // elsewhere.
  const std::vector<Segment> segments = {{0, 2, true, 1}, {2, 5, true, 2}, {5, 6, true, 0}};
  for (int ways : {1, 2, 4}) {
    for (bool expert : {false, true}) {
      const FlatSlice slice{ways == 4 ? 2 : 6 / ways, ways, expert, segments};
      for (bool whole : {false, true}) {
        double sum = 0;
        for (int owner = 0; owner < 4; ++owner) {
          for (int replica = 0; replica < 2; ++replica) {
            for (int shard = 0; shard < 2; ++shard) {
              if (ways > 1 && owner >= ways) continue;
              Values gradient = {1, 2, 3, 4, 5, 6};
              gradient.resize(slice.n * ways, 100);
              const auto begin = gradient.begin() + (ways == 1 ? 0 : owner * slice.n);
              if (!whole) gradient = Values(begin, begin + slice.n);
              const OpContext context{.shard_index = shard,
                                      .owner_index = expert ? 99 : owner,
                                      .expert_owner_index = expert ? owner : 99,
                                      .replica_index = replica};
              sum += norm_of(slice, whole, context, gradient);
            }
          }
        }
        EXPECT_EQ(sum, 2 * (1 + 4) + 9 + 16 + 25) << ways << " " << expert << " " << whole;
      }
    }
  }
}

TEST(GradientNorm, IsNotFiniteWhereAnElementIsNot) {
  const FlatSlice slice{3, 1, false, {{0, 3, true, 1}}};
  EXPECT_EQ(norm_of(slice, false, {}, {1, kInfinity, 2}), kInfinity);
  EXPECT_TRUE(std::isnan(norm_of(slice, false, {}, {1, kNan, 2})));
}

}  // namespace
}  // namespace mb
