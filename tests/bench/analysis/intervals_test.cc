#include "bench/analysis/intervals.h"

#include <gtest/gtest.h>

#include <random>

namespace mb {
namespace {

constexpr int kRange = 40;

// The set of integer instants, as a slow reference.
std::vector<bool> instants(const Intervals& set) {
  std::vector<bool> out(kRange);
  for (const Span& s : set)
    for (std::int64_t t = s.start_ns; t < s.end_ns; ++t) out[t] = true;
  return out;
}

std::vector<Span> random_spans(std::mt19937& random) {
  std::uniform_int_distribution<int> at(0, kRange), count(0, 8);
  std::vector<Span> spans(count(random));
  for (Span& s : spans) s = {at(random), at(random)};
  return spans;
}

void expect_normal(const Intervals& set) {
  for (std::size_t i = 0; i < set.size(); ++i) {
    EXPECT_LT(set[i].start_ns, set[i].end_ns);
    if (i > 0) {
      EXPECT_GT(set[i].start_ns, set[i - 1].end_ns);
    }
  }
}

TEST(Intervals, TouchingSpansMergeAndEmptyOnesVanish) {
  EXPECT_EQ(unite({{5, 7}, {1, 2}, {2, 3}, {4, 4}, {9, 8}}), (Intervals{{1, 3}, {5, 7}}));
}

TEST(Intervals, LengthWithinCountsOnlyTheWindow) {
  const Intervals set = {{0, 10}, {20, 30}, {40, 50}};
  EXPECT_EQ(length_within_ns(set, {5, 45}), 5 + 10 + 5);
  EXPECT_EQ(length_within_ns(set, {10, 20}), 0);
  EXPECT_EQ(length_within_ns(set, {30, 10}), 0);
  EXPECT_EQ(length_ns(set), 30);
}

TEST(Intervals, OperationsAgreeWithSetsOfInstants) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Span> spans = random_spans(random);
    const Intervals a = unite(spans), b = unite(random_spans(random));
    const std::vector<bool> in_a = instants(a), in_b = instants(b);
    const Intervals both = intersect(a, b), any = unite(a, b), rest = subtract(a, b);
    for (const Intervals* set : {&a, &b, &both, &any, &rest}) expect_normal(*set);
    const auto both_in = instants(both), any_in = instants(any), rest_in = instants(rest);
    for (int t = 0; t < kRange; ++t) {
      EXPECT_EQ(both_in[t], in_a[t] && in_b[t]);
      EXPECT_EQ(any_in[t], in_a[t] || in_b[t]);
      EXPECT_EQ(rest_in[t], in_a[t] && !in_b[t]);
    }
    EXPECT_EQ(length_ns(any), length_ns(both) + length_ns(rest) + length_ns(subtract(b, a)));
  }
}

}  // namespace
}  // namespace mb
