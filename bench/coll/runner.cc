#include "bench/coll/runner.h"

#include <algorithm>
#include <map>
#include <thread>

#include "bench/coll/buffers.h"
#include "bench/coll/place.h"
#include "bench/coll/rank.h"
#include "parallel/exec/watchdog.h"
#include "workloads/base/error.h"
#include "workloads/base/pages.h"
#include "workloads/base/units.h"

namespace mb {

std::int64_t buffer_bytes(const CollConfig& config, const std::vector<Point>& points, int rank) {
  const BufferSizes most = largest_buffers(config, points, rank);
  const std::int64_t one = std::max(most.in + most.out, pool_bytes(config));
  std::int64_t beside = 0;
  for (const Point& point : points) {
    if (!point.beside) continue;
    const BufferSizes sizes = beside_buffers(config, *point.beside, rank);
    beside = std::max(beside, sizes.in + sizes.out);
  }
  return one + beside;
}

void check_memory(World& world, const CollConfig& config, const std::vector<Point>& points) {
  double needed = 0;
  for (const int rank : ranks_on_machine(world))
    needed += static_cast<double>(buffer_bytes(config, points, rank));
  const double available = available_bytes();
  require(available == 0 || needed < available, "the buffers of the ranks on host ",
          world.host_of(world.local_ranks().front()), " take ", format_bytes(needed),
          ", and it has ", format_bytes(available), " left; give a smaller largest size than ",
          config.sizes_text, ", or fewer ranks");
}

struct CollRunner::State {
  State(World& w, const CollConfig& c, std::vector<Point> p, std::function<bool()> i)
      : world(w),
        config(c),
        points(std::move(p)),
        places(w.local_ranks().size()),
        interrupted(std::move(i)) {}

  World& world;
  const CollConfig config;
  const std::vector<Point> points;
  std::vector<RankPlace> places;
  std::function<bool()> interrupted;
  const Cores cores;
  std::vector<std::unique_ptr<CollRank>> ranks;
  bool stopped = false;

  std::int64_t progress() const {
    // Work of a rank's own may take long; it is no hang.
    static std::atomic<std::int64_t> changing{0};
    std::int64_t sum = 0;
    for (const RankPlace& place : places) {
      if (place.step() == RankStep::working) return -2 - changing++;
      sum += static_cast<std::int64_t>(place.raw());
    }
    return sum;
  }
};

CollRunner::CollRunner(World& world, const CollConfig& config, std::vector<Point> points,
                       std::function<bool()> interrupted)
    : state_(std::make_unique<State>(world, config, std::move(points), std::move(interrupted))) {
  require(world.size() == config.mesh.world(), "mesh=", config.mesh.to_text(), " has ",
          config.mesh.world(), " ranks, and the world has ", world.size());
  check_memory(world, config, state_->points);
  for (std::size_t i = 0; i < world.local_ranks().size(); ++i)
    state_->ranks.push_back(std::make_unique<CollRank>(world, state_->config, state_->points,
                                                       world.local_ranks()[i], state_->places[i],
                                                       state_->cores));
}

CollRunner::~CollRunner() = default;

bool CollRunner::was_interrupted() const { return state_->stopped; }

std::optional<PointResult> CollRunner::measure(const Point& point) {
  State& s = *state_;
  s.world.align_clocks();
  for (RankPlace& place : s.places) place.set(0, RankStep::working);
  std::optional<PointResult> result;
  std::vector<std::thread> threads;
  {
    const Watchdog watchdog(
        s.config.timeout_s, [&] { return s.progress(); },
        [&] {
          s.world.abort(cat(to_text(point), ": nothing has moved for ", s.config.timeout_s, " s; ",
                            diagnosis(s.world.local_ranks(), s.places.data()),
                            "; timeout_s= changes how long to wait"));
          return true;
        });
    for (std::size_t i = 0; i < s.ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        CollRank& rank = *s.ranks[i];
        try {
          std::optional<PointResult> own = rank.measure(point, s.interrupted);
          if (own) result = std::move(own);
        } catch (const Aborted&) {
        } catch (const std::exception& error) {
          s.world.abort(cat(to_text(point), ", rank ", rank.rank(), ": ", error.what()));
        }
        s.places[i].set(s.places[i].operation(), RankStep::done);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  if (s.world.aborted()) throw Error(s.world.reason());
  s.stopped = s.ranks.front()->was_interrupted();
  return result;
}

}  // namespace mb
