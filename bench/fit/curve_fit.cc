#include "bench/fit/curve_fit.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/analysis/stats.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

using Times = std::vector<SizeTime>;

constexpr double kFast = 1e6;      // GB/s of what does not grow with size
constexpr double kEndless = 1e18;  // bytes

struct Line {
  double latency = 0, per_byte = 0, squares = 0;
  double at(double bytes) const { return latency + per_byte * bytes; }
};

// Of times [first, last): neither constant is below 0.
Line line_of(const Times& times, std::size_t first, std::size_t last) {
  double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
  for (std::size_t i = first; i < last; ++i) {
    const double a = 1 / times[i].seconds, b = times[i].bytes / times[i].seconds;
    aa += a * a, ab += a * b, bb += b * b, a1 += a, b1 += b;
  }
  const double determinant = aa * bb - ab * ab;
  Line line;
  if (determinant > 1e-12 * aa * bb) {
    line = {(bb * a1 - ab * b1) / determinant, (aa * b1 - ab * a1) / determinant};
  } else {
    line = {a1 / aa, 0};  // one size
  }
  if (line.latency < 0) line = {0, b1 / bb};
  if (line.per_byte < 0) line = {a1 / aa, 0};
  for (std::size_t i = first; i < last; ++i) {
    const double off = line.at(times[i].bytes) / times[i].seconds - 1;
    line.squares += off * off;
  }
  return line;
}

// Ends of the segments, as indices; each holds two sizes or more.
std::vector<CurveSegment> segments_of(const Times& times, std::size_t count) {
  const std::size_t n = times.size();
  struct Best {
    double squares = INFINITY;
    std::size_t before = 0;
  };
  // best[s][i]: the first i times by s segments.
  std::vector<std::vector<Best>> best(count + 1, std::vector<Best>(n + 1));
  best[0][0].squares = 0;
  for (std::size_t s = 1; s <= count; ++s) {
    for (std::size_t i = 2 * s; i <= n; ++i) {
      for (std::size_t before = 2 * (s - 1); before + 2 <= i; ++before) {
        if (!std::isfinite(best[s - 1][before].squares)) continue;
        const double squares = best[s - 1][before].squares + line_of(times, before, i).squares;
        if (squares < best[s][i].squares) best[s][i] = {squares, before};
      }
    }
  }
  std::vector<CurveSegment> segments;
  for (std::size_t s = count, i = n; s > 0; i = best[s][i].before, --s) {
    const Line line = line_of(times, best[s][i].before, i);
    const double end = i == n ? kEndless : std::sqrt(times[i - 1].bytes * times[i].bytes);
    segments.push_back({end, 1e6 * line.latency, line.per_byte > 0 ? 1e-9 / line.per_byte : kFast});
  }
  std::reverse(segments.begin(), segments.end());
  return segments;
}

double off(const std::vector<CurveSegment>& segments, const SizeTime& time) {
  return std::abs(seconds_at({.segments = segments}, time.bytes) / time.seconds - 1);
}

}  // namespace

CurveFit fit_curve(std::vector<SizeTime> all) {
  std::map<double, std::vector<double>> by_size;
  for (const SizeTime& time : all) by_size[time.bytes].push_back(time.seconds);
  Times times;
  for (const auto& [bytes, seconds] : by_size) times.push_back({bytes, median(seconds)});
  require(times.size() >= kSizesOfACurve, times.size(), " sizes; a curve takes ", kSizesOfACurve);
  CurveFit best;
  best.held_out = INFINITY;
  for (std::size_t count = 1; count <= 3 && 2 * count < times.size(); ++count) {
    CurveFit fit{.segments = segments_of(times, count)};
    const auto n = static_cast<double>(times.size());
    for (std::size_t left_out = 0; left_out < times.size(); ++left_out) {
      Times others = times;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(left_out));
      const double error = off(segments_of(others, count), times[left_out]);
      fit.held_out += error / n;
      fit.held_out_worst = std::max(fit.held_out_worst, error);
      fit.error += off(fit.segments, times[left_out]) / n;
    }
    if (fit.held_out < best.held_out) best = fit;
  }
  return best;
}

}  // namespace mb
