// The ranks of this process as threads, in step with those of other processes.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "parallel/exec/executor.h"
#include "parallel/exec/processes.h"
#include "parallel/exec/rank.h"
#include "parallel/exec/watchdog.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

class LiveExecutor final : public Executor {
 public:
  LiveExecutor(const Plan& plan, const LiveSettings& settings, World& world)
      : plan_(plan),
        settings_(settings),
        world_(world),
        processes_(world, "control"),
        ranks_(world.size()) {
    require(plan.mesh.world() == world.size(), "mesh=", plan.mesh.to_text(), " has ",
            plan.mesh.world(), " ranks, and the world ", world.size());
    world_.answer_with([this] { return standing_for_others(); });
    on_local_ranks([this](int rank) {
      const std::string name = processes_.several()
                                   ? cat("rank ", rank, " on ", world_.host_of(rank))
                                   : cat("rank ", rank);
      ranks_[rank] = std::make_unique<Rank>(plan_, rank, name, settings_, world_);
    });
    watched([this](int rank) { ranks_[rank]->make_comms(); });
  }
  ~LiveExecutor() override { world_.answer_with({}); }

  StepResult step(bool record) override {
    require(!world_.aborted(), "an earlier step failed: ", world_.reason());
    StepResult result{.timeline = empty_timeline(plan_)};
    result.cpu_ns.resize(ranks_.size());
    watched([&](int rank) {
      if (record) align_clocks();
      ranks_[rank]->run(step_, record, result.timeline.lanes[rank], result.cpu_ns[rank]);
      if (record && processes_.several()) share(rank, result);
    });
    for (const int rank : world_.local_ranks())
      result.clock_uncertainty_ns =
          std::max(result.clock_uncertainty_ns, 2 * ranks_[rank]->clock_uncertainty_ns());
    ++step_;
    if (!ranks_[world_.local_ranks().front()]->keeps_cpu_time()) result.cpu_ns.clear();
    // Two ranks' clocks, each off by so much from its device's.
    result.clock_uncertainty_ns += world_.clock_uncertainty_ns();
    const std::vector<double> scalars = read(0, plan_.program_of(0).scalars);
    const double tokens = std::max(scalars[1], 1.0), scale = scalars[7];
    result.training = Training{.loss = scalars[0] / tokens,
                               .balance_loss = scalars[3] / tokens,
                               .gradient_norm = std::sqrt(scalars[2]) / (tokens * scale),
                               .valid_tokens = static_cast<std::int64_t>(scalars[1]),
                               .loss_scale = scale,
                               .skipped = !std::isfinite(scalars[2])};
    return result;
  }
  std::optional<MemoryPeak> memory(int rank) const override {
    return from<MemoryPeak>(rank, [](const Rank& own) { return std::vector{own.memory()}; })[0];
  }
  std::vector<CommCount> traffic(int rank) const override {
    return from<CommCount>(rank, [](const Rank& own) { return own.traffic(); });
  }
  std::vector<double> read(int rank, TensorId tensor) const override {
    return from<double>(rank, [&](const Rank& own) { return own.read(tensor); });
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Runs work(rank) on a thread for each rank of this process. Throws Error with the first reason
  // if any fails, or OutOfMemory if that is one.
  template <class Work>
  void on_local_ranks(Work work) const {
    std::mutex mutex;
    std::optional<OutOfMemory> out_of_memory;
    {
      std::vector<std::jthread> threads;
      for (const int rank : world_.local_ranks()) {
        try {
          threads.emplace_back([&, rank] {
            try {
              work(rank);
            } catch (const OutOfMemory& error) {
              const std::lock_guard lock(mutex);
              const std::string text =
                  cat("rank ", rank, ": ", error.what(),
                      "; give a smaller model or micro_batch, zero=1 to 3, recompute=full, "
                      "offload=all, or a mesh with fewer ranks on each device");
              if (!world_.aborted())
                out_of_memory.emplace(text, error.needed_bytes, error.free_bytes);
              world_.abort(text);
            } catch (const std::exception& error) {
              world_.abort(error.what());
            }
          });
        } catch (const std::system_error& error) {
          world_.abort(cat("cannot start a thread for rank ", rank, " (", error.what(),
                           "); take fewer ranks or raise the limit on threads"));
          break;
        }
      }
    }
    if (out_of_memory) throw *out_of_memory;
    require(!world_.aborted(), world_.reason());
  }

  // The same, aborted once no rank gets on any more.
  template <class Work>
  void watched(Work work) const {
    Watchdog watchdog(
        settings_.timeout_s, [this] { return progress(); }, [this] { return hung(); });
    set_watchdog(&watchdog);
    try {
      on_local_ranks(work);
    } catch (...) {
      set_watchdog(nullptr);
      throw;
    }
    set_watchdog(nullptr);
  }
  void set_watchdog(Watchdog* watchdog) const {
    const std::lock_guard lock(mutex_);
    watchdog_ = watchdog;
    built_ = true;
    left_ = Clock::now();
  }

  // What `get` finds at `rank`, wherever that is.
  template <class T, class Get>
  std::vector<T> from(int rank, Get get) const {
    if (!processes_.several()) return get(*ranks_[rank]);
    std::vector<T> values;
    watched([&](int own) {
      if (own == rank) values = get(*ranks_[rank]);
      processes_.share(values, rank);
    });
    return values;
  }

  // Fills in the other ranks' lanes and CPU times, all on the common clock.
  void share(int rank, StepResult& result) const {
    std::vector<std::int64_t> own = {ranks_[rank]->clock_uncertainty_ns()};
    for (const Span& span : result.timeline.lanes[rank]) {
      own.push_back(world_.common_ns(span.start_ns));
      own.push_back(world_.common_ns(span.end_ns));
    }
    own.insert(own.end(), result.cpu_ns[rank].begin(), result.cpu_ns[rank].end());
    const std::vector<std::vector<std::int64_t>> all = processes_.gather(own);
    for (int r = 0; r < world_.size(); ++r) {
      result.clock_uncertainty_ns = std::max(result.clock_uncertainty_ns, 2 * all[r].front());
      auto next = all[r].begin() + 1;
      for (Span& span : result.timeline.lanes[r]) {
        span = {next[0], next[1]};
        next += 2;
      }
      result.cpu_ns[r].assign(next, all[r].end());
    }
  }

  // Before the first step and then about once a second, when rank 0 says so.
  void align_clocks() {
    if (!processes_.several()) return;
    const auto now = Clock::now();
    const bool due = ranks_[0] && (!aligned_ || now - *aligned_ > std::chrono::seconds(1));
    if (!processes_.any(due)) return;
    world_.align_clocks();
    aligned_ = now;
  }

  std::int64_t progress() const {
    std::int64_t sum = 0;
    for (const int rank : world_.local_ranks()) sum += ranks_[rank]->progress();
    return sum;
  }
  std::string standing() const {
    std::string text;
    for (const int rank : world_.local_ranks())
      text += cat(text.empty() ? "" : "; ", ranks_[rank]->standing());
    return text;
  }

  World::Standing standing_for_others() const {
    const std::lock_guard lock(mutex_);
    if (watchdog_) return {standing(), watchdog_->idle_s()};
    const std::string rank =
        cat("rank ", world_.local_ranks()[0], " on ", world_.host_of(world_.local_ranks()[0]));
    if (!built_) return {rank + ": makes its memory", 0};
    return {rank + ": has not come to this step",
            std::chrono::duration<double>(Clock::now() - left_).count()};
  }

  // No rank of this process gets on. Aborts unless one of another process does.
  bool hung() const {
    constexpr double kWaitS = 0.4;
    std::string silent, others;
    for (const auto& [rank, standing] : world_.ask_others(kWaitS)) {
      if (!standing) {
        silent += cat("rank ", rank, " on ", world_.host_of(rank), " does not answer; ");
        continue;
      }
      if (standing->idle_s < settings_.timeout_s) return false;
      others += cat("; ", standing->text);
    }
    world_.abort(cat("no rank has ended an instruction for ", settings_.timeout_s, " s: ", silent,
                     standing(), others));
    return true;
  }

  const Plan& plan_;
  LiveSettings settings_;
  World& world_;
  mutable Processes processes_;
  std::vector<std::unique_ptr<Rank>> ranks_;  // null for those of other processes
  std::int64_t step_ = 0;
  std::optional<Clock::time_point> aligned_;
  // For those who ask where this process stands.
  mutable std::mutex mutex_;
  mutable Watchdog* watchdog_ = nullptr;  // of the call at hand
  mutable bool built_ = false;
  mutable Clock::time_point left_;  // the last call
};

class ThreadExecutor final : public Executor {
 public:
  ThreadExecutor(const Plan& plan, const LiveSettings& settings)
      : world_(plan.mesh.world(), settings.delays), ranks_(plan, settings, world_) {}
  StepResult step(bool record) override { return ranks_.step(record); }
  std::optional<MemoryPeak> memory(int rank) const override { return ranks_.memory(rank); }
  std::vector<CommCount> traffic(int rank) const override { return ranks_.traffic(rank); }
  std::vector<double> read(int rank, TensorId tensor) const override {
    return ranks_.read(rank, tensor);
  }

 private:
  ThreadWorld world_;
  LiveExecutor ranks_;
};

}  // namespace

std::unique_ptr<Executor> make_live_executor(const Plan& plan, const LiveSettings& settings,
                                             World& world) {
  return std::make_unique<LiveExecutor>(plan, settings, world);
}

std::unique_ptr<Executor> make_thread_executor(const Plan& plan, const LiveSettings& settings) {
  return std::make_unique<ThreadExecutor>(plan, settings);
}

}  // namespace mb
