#include "bench/analysis/link_fit.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "bench/analysis/stats.h"

namespace mb {
namespace {

struct Line {
  double latency = 0, per_byte = 0;
  double at(const LinkSample& s) const { return latency * s.steps + per_byte * s.bytes; }
};

// Of weights * ((latency * steps + per_byte * bytes) / seconds - 1)^2; nullopt where steps and
// bytes cannot be told apart.
std::optional<Line> solve(std::span<const LinkSample> samples, std::span<const double> weights) {
  double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double a = samples[i].steps / samples[i].seconds;
    const double b = samples[i].bytes / samples[i].seconds;
    aa += weights[i] * a * a, ab += weights[i] * a * b, bb += weights[i] * b * b;
    a1 += weights[i] * a, b1 += weights[i] * b;
  }
  const double determinant = aa * bb - ab * ab;
  if (!(determinant > 1e-9 * aa * bb)) return std::nullopt;
  const Line line{(bb * a1 - ab * b1) / determinant, (aa * b1 - ab * a1) / determinant};
  return line.latency < 0 ? Line{0, b1 / bb} : line;
}

std::vector<double> errors_of(const Line& line, std::span<const LinkSample> samples) {
  std::vector<double> errors;
  for (const LinkSample& s : samples) errors.push_back(std::abs(line.at(s) / s.seconds - 1));
  return errors;
}

// Tukey's biweight, nothing beyond 4.685 standard deviations as the median tells them.
void weigh(std::span<const double> errors, std::vector<double>& weights) {
  const double limit = 4.685 * 1.4826 * std::max(median(errors), 1e-12);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double share = errors[i] / limit;
    weights[i] = share < 1 ? (1 - share * share) * (1 - share * share) : 0;
  }
}

}  // namespace

LinkFit fit_link(std::span<const LinkSample> all) {
  constexpr int kRounds = 30;
  std::vector<LinkSample> samples;
  std::set<double> sizes;
  for (const LinkSample& s : all) {
    if (!(s.seconds > 0)) continue;
    samples.push_back(s);
    sizes.insert(s.bytes);
  }
  LinkFit fit{.samples = static_cast<int>(samples.size()), .sizes = static_cast<int>(sizes.size())};
  if (sizes.size() < 2) {
    fit.reason = sizes.empty() ? "no transfer over them took time"
                               : "all transfers have one size; a fit takes two or more";
    return fit;
  }
  std::vector<double> weights(samples.size(), 1);
  std::optional<Line> line = solve(samples, weights);
  for (int round = 0; line && round < kRounds; ++round) {
    weigh(errors_of(*line, samples), weights);
    const std::optional<Line> next = solve(samples, weights);
    if (!next) break;  // what is left has one size
    line = next;
  }
  if (!line) {
    fit.reason = "latencies and bytes of the transfers grow alike";
  } else if (!(line->per_byte > 0)) {
    fit.reason = "larger transfers took no longer";
  } else {
    fit.latency_s = line->latency;
    fit.bytes_per_s = 1 / line->per_byte;
    fit.error = median(errors_of(*line, samples));
  }
  return fit;
}

}  // namespace mb
