// Times of collectives that nobody ran: what ranks, links and groups would leave behind.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/coll/result.h"
#include "workloads/base/rng.h"

namespace mb {

// Members start within `jitter_ns` of each other and end together `transfer_ns` after the last,
// with noise of a few percent and now and then a stall.
struct Scene {
  int members = 8;
  int operations = 60;
  double transfer_ns = 50'000, noise = 0.05, jitter_ns = 500;
  int late = -1;  // member
  double late_ns = 0;
  std::vector<int> slow;  // members whose end is by so much later
  double slow_ns = 0;
};

inline Samples samples_of(const Scene& scene, std::uint64_t seed) {
  Samples samples;
  samples.start.resize(scene.members);
  samples.end.resize(scene.members);
  std::uint64_t draw = 0;
  const auto uniform = [&] { return random_uniform(seed, 1, draw++); };
  const auto normal = [&] { return random_normal(seed, 2, draw++); };
  for (int i = 0; i < scene.operations; ++i) {
    const double begin = 1e6 * (i + 1);
    std::vector<double> starts;
    for (int k = 0; k < scene.members; ++k)
      starts.push_back(begin + scene.jitter_ns * uniform() + (k == scene.late ? scene.late_ns : 0));
    const double last = *std::max_element(starts.begin(), starts.end());
    const double stall = uniform() < 0.05 ? 3 * scene.transfer_ns * uniform() : 0;
    const double took = scene.transfer_ns * std::exp(scene.noise * normal()) + stall;
    for (int k = 0; k < scene.members; ++k) {
      const bool slow = std::find(scene.slow.begin(), scene.slow.end(), k) != scene.slow.end();
      const double end = last + took * (1 + 0.01 * uniform()) + (slow ? scene.slow_ns : 0);
      samples.start[k].push_back(std::llround(starts[k]));
      samples.end[k].push_back(std::llround(end));
    }
  }
  return samples;
}

// A point of `config` as if it had been measured, each group by its scene.
inline PointResult result_of(const CollConfig& config, const Point& point,
                             const std::vector<Scene>& scenes, std::uint64_t seed = 1) {
  PointResult result{.point = point, .warm_up = 5};
  const auto groups = groups_of(config, point.group);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    Scene scene = scenes[g % scenes.size()];
    scene.members = static_cast<int>(groups[g].size());
    GroupResult group{.index = static_cast<int>(g), .ranks = groups[g]};
    group.call = call_of(point, scene.members, config.root);
    group.of(Series::operation) = samples_of(scene, seed + 100 * g);
    group.findings = {.checked = 1000, .full = 2, .sampled = 10};
    result.groups.push_back(std::move(group));
  }
  return result;
}

}  // namespace mb
