#include "bench/micro/measured_point.h"

#include "bench/cli/ranks.h"
#include "bench/coll/runner.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

std::optional<PointResult> result_of(const CollCase& c, const Point& point) {
  if (c.mode == Mode::sim) return predict(c, point, c.machine);
  const DeviceMaker make_device = devices_of(c.mode, c.mesh);
  CaseWorld world(c.mode, c.mesh, c.link, c.timeout_s);
  CollRunner runner(
      *world, c, {point}, [] { return false; }, make_device);
  return runner.measure(point);
}

}  // namespace

std::optional<PointSummary> measured_point(const CollCase& c, const Point& point,
                                           const Surroundings& around) {
  const std::optional<PointResult> result = result_of(c, point);
  if (!result) return std::nullopt;
  std::int64_t wrong = 0;
  for (const GroupResult& group : result->groups) wrong += group.findings.wrong;
  require(wrong == 0, wrong, " wrong elements");
  return summarize(c, *result, around);
}

}  // namespace mb
