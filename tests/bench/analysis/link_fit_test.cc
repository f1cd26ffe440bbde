#include "bench/analysis/link_fit.h"

#include <gtest/gtest.h>

#include <vector>

#include "workloads/base/rng.h"

namespace mb {
namespace {

constexpr double kLatency = 5e-6, kRate = 50e9;

double seconds_of(double bytes, double steps) { return steps * kLatency + bytes / kRate; }

// Sizes from 1 KiB to 64 MiB, each `repeats` times, `spread` the relative standard deviation.
std::vector<LinkSample> transfers(int repeats, double spread) {
  std::vector<LinkSample> samples;
  for (int i = 0; i < repeats; ++i) {
    for (double bytes = 1024; bytes <= 64 << 20; bytes *= 4) {
      const double noise = 1 + spread * random_normal(3, i, static_cast<std::uint64_t>(bytes));
      samples.push_back({bytes, seconds_of(bytes, 1) * noise});
    }
  }
  return samples;
}

TEST(LinkFit, FindsLatencyAndBandwidthOfExactTimes) {
  const LinkFit fit = fit_link(transfers(1, 0));
  EXPECT_NEAR(*fit.latency_s, kLatency, 1e-9 * kLatency);
  EXPECT_NEAR(*fit.bytes_per_s, kRate, 1e-9 * kRate);
  EXPECT_LT(fit.error, 1e-9);
  EXPECT_EQ(fit.sizes, 9);
}

TEST(LinkFit, TellsStepsOfDifferentCollectivesApart) {
  std::vector<LinkSample> samples;
  for (const double steps : {1.0, 6.0, 14.0}) {
    for (const double bytes : {1e3, 1e6})
      samples.push_back({bytes, seconds_of(bytes, steps), steps});
  }
  const LinkFit fit = fit_link(samples);
  EXPECT_NEAR(*fit.latency_s, kLatency, 1e-9 * kLatency);
  EXPECT_NEAR(*fit.bytes_per_s, kRate, 1e-9 * kRate);
}

TEST(LinkFit, IsNotMovedByTransfersThatStandOut) {
  std::vector<LinkSample> samples = transfers(20, 0.03);
  for (std::size_t i = 0; i < samples.size(); i += 7) samples[i].seconds *= 20;
  const LinkFit fit = fit_link(samples);
  EXPECT_NEAR(*fit.latency_s, kLatency, 0.03 * kLatency);
  EXPECT_NEAR(*fit.bytes_per_s, kRate, 0.03 * kRate);
}

TEST(LinkFit, HasNoLatencyBelowNone) {
  const LinkFit fit = fit_link(std::vector<LinkSample>{{1e3, 1e-7}, {2e3, 3e-7}, {4e3, 5e-7}});
  EXPECT_EQ(*fit.latency_s, 0);
  EXPECT_GT(*fit.bytes_per_s, 0);
}

TEST(LinkFit, OfOneSizeIsNone) {
  const LinkFit fit = fit_link(std::vector<LinkSample>{{1e3, 1e-6}, {1e3, 2e-6}, {2e3, 0}});
  EXPECT_FALSE(fit.latency_s || fit.bytes_per_s);
  EXPECT_NE(fit.reason.find("one size"), std::string::npos);
  EXPECT_EQ(fit_link({}).reason, "no transfer over them took time");
}

TEST(LinkFit, OfTimesThatDoNotGrowIsNone) {
  const LinkFit fit = fit_link(std::vector<LinkSample>{{1e3, 3e-6}, {1e6, 2e-6}});
  EXPECT_FALSE(fit.bytes_per_s);
  EXPECT_NE(fit.reason.find("no longer"), std::string::npos);
}

TEST(LinkFit, OfBytesThatGrowAsStepsDoIsNone) {
  const LinkFit fit = fit_link(std::vector<LinkSample>{{1e3, 1e-6, 1}, {2e3, 2e-6, 2}});
  EXPECT_FALSE(fit.bytes_per_s);
  EXPECT_NE(fit.reason.find("alike"), std::string::npos);
}

}  // namespace
}  // namespace mb
