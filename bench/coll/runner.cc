#include "bench/coll/runner.h"

#include <chrono>
#include <mutex>
#include <thread>

#include "bench/coll/needs.h"
#include "bench/coll/place.h"
#include "bench/coll/rank.h"
#include "parallel/exec/watchdog.h"
#include "workloads/base/error.h"

namespace mb {

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

  // For those who ask where this process stands.
  using Clock = std::chrono::steady_clock;
  std::mutex mutex;
  Watchdog* watchdog = nullptr;           // of the point at hand
  Clock::time_point left = Clock::now();  // the last point

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

  bool has_others() const { return static_cast<int>(places.size()) < world.size(); }
  // "rank 0 on a: in operation 12; ..." of the ranks of this process.
  std::string standing() const {
    std::string text;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const int rank = world.local_ranks()[i];
      text += cat(i == 0 ? "" : "; ", "rank ", rank, " on ", world.host_of(rank), ": ",
                  to_text(places[i]));
    }
    return text;
  }
  World::Standing standing_for_others() {
    const std::lock_guard lock(mutex);
    if (watchdog) return {standing(), watchdog->idle_s()};
    return {cat(standing(), ", before the next point"),
            std::chrono::duration<double>(Clock::now() - left).count()};
  }

  // No rank of this process gets on. Aborts unless one of another process does.
  bool hung(const Point& point) {
    constexpr double kWaitS = 0.4;
    std::string silent, others;
    for (const auto& [rank, standing] : world.ask_others(kWaitS)) {
      if (!standing) {
        silent += cat("rank ", rank, " on ", world.host_of(rank), " does not answer; ");
        continue;
      }
      if (standing->idle_s < config.timeout_s) return false;
      others += cat("; ", standing->text);
    }
    world.abort(cat(to_text(point), ": nothing has moved for ", config.timeout_s, " s; ", silent,
                    has_others() ? standing() : diagnosis(world.local_ranks(), places.data()),
                    others, "; timeout_s= changes how long to wait"));
    return true;
  }
};

CollRunner::CollRunner(World& world, const CollConfig& config, std::vector<Point> points,
                       std::function<bool()> interrupted, DeviceMaker make_device)
    : state_(std::make_unique<State>(world, config, std::move(points), std::move(interrupted))) {
  require(world.size() == config.mesh.world(), "mesh=", config.mesh.to_text(), " has ",
          config.mesh.world(), " ranks, and the world has ", world.size());
  check_memory(world, config, state_->points);
  for (std::size_t i = 0; i < world.local_ranks().size(); ++i)
    state_->ranks.push_back(std::make_unique<CollRank>(world, state_->config, state_->points,
                                                       world.local_ranks()[i], state_->places[i],
                                                       state_->cores, make_device));
  world.answer_with([state = state_.get()] { return state->standing_for_others(); });
}

CollRunner::~CollRunner() { state_->world.answer_with({}); }

// The watchdog of one point, told to those who ask.
class CollRunner::Watched {
 public:
  Watched(State& state, const Point& point)
      : state_(state),
        watchdog_(
            state.config.timeout_s, [&state] { return state.progress(); },
            [&state, &point] { return state.hung(point); }) {
    const std::lock_guard lock(state_.mutex);
    state_.watchdog = &watchdog_;
  }
  ~Watched() {
    const std::lock_guard lock(state_.mutex);
    state_.watchdog = nullptr;
    state_.left = State::Clock::now();
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  State& state_;
  Watchdog watchdog_;
};

CoreShare CollRunner::core_share() const { return mb::core_share(state_->world, state_->cores); }

bool CollRunner::was_interrupted() const { return state_->stopped; }

std::optional<PointResult> CollRunner::measure(const Point& point) {
  State& s = *state_;
  for (RankPlace& place : s.places) place.set(0, RankStep::meeting);
  std::optional<PointResult> result;
  std::optional<OutOfMemory> out_of_memory;
  std::mutex mutex;
  std::vector<std::thread> threads;
  {
    const Watched watched(s, point);
    s.world.align_clocks();
    for (RankPlace& place : s.places) place.set(0, RankStep::working);
    for (std::size_t i = 0; i < s.ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        CollRank& rank = *s.ranks[i];
        try {
          std::optional<PointResult> own = rank.measure(point, s.interrupted);
          if (own) result = std::move(own);
        } catch (const Aborted&) {
        } catch (const OutOfMemory& error) {
          const std::lock_guard lock(mutex);
          const std::string text = cat(to_text(point), ", rank ", rank.rank(), ": ", error.what(),
                                       "; give smaller sizes, or fewer ranks on each device");
          if (!s.world.aborted()) out_of_memory.emplace(text, error.needed_bytes, error.free_bytes);
          s.world.abort(text);
        } catch (const std::exception& error) {
          s.world.abort(cat(to_text(point), ", rank ", rank.rank(), ": ", error.what()));
        }
        s.places[i].set(s.places[i].operation(), RankStep::done);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  if (out_of_memory) throw *out_of_memory;
  if (s.world.aborted()) throw Error(s.world.reason());
  s.stopped = s.ranks.front()->was_interrupted();
  return result;
}

}  // namespace mb
