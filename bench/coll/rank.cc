#include "bench/coll/rank.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <type_traits>

#include "bench/coll/needs.h"
#include "parallel/comm/algorithms.h"
#include "parallel/comm/gate.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

constexpr std::int64_t kBatch = 4096;
constexpr std::int64_t kSampleEvery = 8, kFullEvery = 1000;
constexpr int kMostWarmUps = 10;
// How long after their meeting ranks begin: warm-up doubles the least until all are there in time.
constexpr std::int64_t kLeastLeadNs = 2000, kMostLeadNs = 64'000;
constexpr double kInTimeNs = 200;
constexpr std::int64_t kNapNs = 20'000'000, kSpinNs = 200'000;

// What a rank has to tell at the end of a point, as numbers of 64 bits.
struct Account {
  Findings findings;
  ThreadUsage usage;
  std::int64_t crowded = 0;
};
static_assert(std::is_trivially_copyable_v<Account> && sizeof(Account) == 13 * 8);

std::string comm_name(const Group& group, Algorithm algorithm) {
  return cat("coll ", name_of(group),
             algorithm == Algorithm::own ? "" : cat(" by ", name_of(algorithm)));
}

}  // namespace

Stamps::Stamps(std::int64_t capacity)
    : pages_(2 * capacity * static_cast<std::int64_t>(sizeof(std::int64_t))),
      start_(pages_.as<std::int64_t>()),
      end_(start_ + capacity) {
  pages_.prefault();
}

CollRank::CollRank(World& world, const CollConfig& config, const std::vector<Point>& points,
                   int rank, RankPlace& place, const Cores& cores, DeviceMaker make_device)
    : world_(world),
      config_(config),
      cores_(cores),
      rank_(rank),
      place_(place),
      largest_(largest_buffers(config, points, rank)),
      spins_(!core_share(world, cores).is_crowded()),
      pinned_(spins_ && ranks_on_machine(world) == world.local_ranks()),
      make_device_(std::move(make_device)) {
  for (const Point& point : points) {
    const std::vector<int> members = members_of(config, point.group, rank);
    const std::string name = comm_name(point.group, Algorithm::own);
    const auto known = std::find_if(groups_.begin(), groups_.end(),
                                    [&](const auto& group) { return group.name == name; });
    if (!members.empty() && known == groups_.end()) groups_.push_back({name, members});
  }
}

Stamps& CollRank::stamps(Series series) { return series_[static_cast<int>(series)]; }

std::unique_ptr<Comm> CollRank::meet(const std::string& name, const std::vector<int>& members,
                                     bool native) {
  place_.set(operation_, RankStep::meeting);
  std::unique_ptr<Comm> comm =
      native ? world_.native_comm(name, members, rank_) : world_.comm(name, members, rank_);
  place_.set(operation_, RankStep::working);
  return comm;
}

Comm& CollRank::comm_of(const Group& group, Algorithm algorithm, const std::vector<int>& members) {
  const std::string name = comm_name(group, algorithm);
  std::unique_ptr<Comm>& comm = comms_[name];
  if (comm) return *comm;
  if (gpu_) comm = gpu_->comm(name, members);
  if (comm) return *comm;
  comm = meet(name, members, algorithm == Algorithm::native);
  if (algorithm != Algorithm::own && algorithm != Algorithm::native)
    comm = with_algorithm(std::move(comm), algorithm, config_.mesh.nodes_of(members));
  return *comm;
}

Comm& CollRank::start_of(const Group& group, const std::vector<int>& members) {
  if (config_.all_groups) return *control_;
  const std::string name = cat("coll start ", name_of(group));
  std::unique_ptr<Comm>& comm = comms_[name];
  if (!comm) comm = meet(name, members);
  return *comm;
}

Background* CollRank::background_of(const Beside& beside) {
  const std::string name =
      cat("coll beside ", name_of(beside.operation), ' ', name_of(beside.group), ' ', beside.bytes);
  std::unique_ptr<Background>& background = backgrounds_[name];
  if (background) return background.get();
  const std::vector<int> members = config_.mesh.members(beside.group, rank_);
  background =
      std::make_unique<Background>(meet(name, members),
                                   call_of(beside.operation, static_cast<int>(members.size()),
                                           beside.bytes, DType::fp32, ReduceOp::sum, 0),
                                   config_.pages, cores_);
  return background.get();
}

void CollRank::set_up() {
  control_ = meet("coll control", all_ranks(world_));
  buffers_ = std::make_unique<Buffers>(largest_, pool_bytes(config_), config_.pages);
  for (int series = 0; series < kSeries; ++series) series_.emplace_back(kBatch);
  if (make_device_) {
    place_.set(operation_, RankStep::meeting);
    gpu_ = std::make_unique<CollGpu>(make_device_, world_, rank_, groups_, buffers_->most_bytes());
    place_.set(operation_, RankStep::working);
  } else if (config_.call == CallKind::stream) {
    stream_ = make_cpu_device(1, cat("coll", rank_));
  }
  Device* const stream = gpu_ ? &gpu_->device() : stream_.get();
  if (!stream) return;
  stream->submit(0, [this] { cores_.take_all(); });
  stream->synchronize();
}

void CollRank::set_point(const Point& point) {
  if (!control_) set_up();
  const std::vector<int> members = members_of(config_, point.group, rank_);
  comm_ = start_ = nullptr;
  checker_.reset();
  in_place_ = point.in_place;
  operation_ = 0;
  lead_ns_ = kLeastLeadNs;
  usage_ = {};
  interrupted_ = false;
  background_ = point.beside ? background_of(*point.beside) : nullptr;
  compute_ = point.overlap == ComputeKind::none
                 ? nullptr
                 : std::make_unique<ComputeThread>(point.overlap, cores_);
  if (!members.empty()) {
    const int index = index_of(members, rank_);
    call_ = call_of(point, static_cast<int>(members.size()), config_.root);
    comm_ = &comm_of(point.group, point.algorithm, members);
    start_ = &start_of(point.group, members);
    checker_ = std::make_unique<Checker>(call_, index, in_place_,
                                         static_cast<std::uint64_t>(config_.seed));
    buffers_->shape(buffer_sizes(call_, index, in_place_));
    for (std::int64_t slot = 0; slot < buffers_->slots(); ++slot)
      checker_->fill(buffers_->in(slot), buffers_->out(slot));
    if (gpu_) {
      gpu_->stand_for(buffers_->data());
      gpu_->put(buffers_->data(), buffers_->shaped_bytes());
    }
  }
  result_.reset();
  if (rank_ != 0) return;
  result_.emplace();
  result_->point = point;
  const auto groups = groups_of(config_, point.group);
  for (int g = 0; g < static_cast<int>(groups.size()); ++g) {
    GroupResult group{.index = g, .ranks = groups[g]};
    const int size = static_cast<int>(group.ranks.size());
    group.call = call_of(point, size, config_.root);
    group.ranks.resize(participants(point.operation, size));
    if (group.ranks.empty()) group.ranks = groups[g];
    for (const int rank : group.ranks) group.hosts.push_back(world_.host_of(rank));
    result_->groups.push_back(std::move(group));
  }
}

std::optional<PointResult> CollRank::measure(const Point& point, const Asked& interrupted) {
  if (pinned_) cores_.take_one(index_of(world_.local_ranks(), rank_));
  set_point(point);
  std::vector<Run> runs = {Run::operation};
  if (background_) runs = {Run::alone, Run::operation};
  if (compute_) runs = {Run::operation, Run::compute, Run::both};
  const std::int64_t warm = warm_up(interrupted);
  if (compute_ && !interrupted_) calibrate();
  if (!interrupted_) timed(runs, interrupted);
  share_findings();
  if (rank_ != 0) return std::nullopt;
  result_->warm_up = warm;
  result_->interrupted = interrupted_;
  result_->compute_units = compute_ ? units_ : 0;
  result_->clock_uncertainty_ns = static_cast<double>(
      world_.clock_uncertainty_ns() + (gpu_ ? gpu_->device().clock_uncertainty_ns() : 0));
  result_->pinned = pinned_;
  result_->huge_share = buffers_->huge_share();
  return std::move(result_);
}

std::int64_t CollRank::warm_up(const Asked& interrupted) {
  if (config_.warm_up == 0) return 0;
  const std::int64_t start = now_ns();
  const std::int64_t operations = std::min<std::int64_t>(config_.warm_up, kBatch);
  std::vector<double> medians;
  std::int64_t done = 0;
  for (Decision go{operations}; go.next > 0;) {
    batch(Run::operation, operations);
    share(Run::operation, operations, false);
    done += operations;
    Decision own{operations};
    if (rank_ == 0) {
      medians.push_back(last_median_ns_);
      const bool late = static_cast<double>(now_ns() - start) > 0.5e9 * config_.time_cap_s ||
                        medians.size() >= kMostWarmUps;
      const bool warm = is_warm(medians);
      if (warm || late) own.next = 0;
      result_->warm = warm;
      own.interrupted = interrupted();
      if (last_skew_ns_ > kInTimeNs) own.lead_ns = std::min(2 * lead_ns_, kMostLeadNs);
    }
    go = decide(own);
    if (spins_) lead_ns_ = std::max(lead_ns_, go.lead_ns);
  }
  usage_ = {};
  return done;
}

// As many units of computation as take about as long as the operation does.
void CollRank::calibrate() {
  constexpr std::int64_t kTries = 5;
  const double operation_ns = last_median_ns_;
  units_ = 1;
  batch(Run::compute, kTries);
  share(Run::compute, kTries, false);
  const double units = std::clamp(operation_ns / std::max(last_median_ns_, 1.0), 1.0, 1e6);
  units_ = decide({std::llround(units)}).next;
}

void CollRank::timed(const std::vector<Run>& runs, const Asked& interrupted) {
  const PacerOptions options{.interval = config_.interval,
                             .time_cap_s = config_.time_cap_s,
                             .time_least_s = config_.time_cap_s / 25,
                             .least = config_.least,
                             .most = config_.most,
                             .batch = kBatch};
  std::int64_t n = 0, spent_ns = 0;
  std::optional<double> width;
  for (Decision go = decide({next_batch(options, 0, {}, 0)}); go.next > 0;) {
    for (const Run run : runs) {
      const std::int64_t start = now_ns();
      batch(run, go.next);
      spent_ns += now_ns() - start;
      share(run, go.next, true);
    }
    n += go.next;
    Decision own;
    if (rank_ == 0) {
      width = least_certain();
      own.interrupted = interrupted();
      own.next = next_batch(options, n, width, 1e-9 * static_cast<double>(spent_ns));
    }
    go = decide(own);
  }
  if (result_) result_->certain = width && *width <= config_.interval;
}

void CollRank::batch(Run run, std::int64_t operations) {
  const bool beside = background_ && run == Run::operation;
  if (beside) background_->start();
  const ThreadUsage before = usage();
  if (start_) {
    for (std::int64_t i = 0; i < operations; ++i)
      one(run, i, i == operations - 1 || operation_ % kFullEvery == kFullEvery - 1);
  }
  const ThreadUsage spent = usage() - before;
  if (run == Run::operation) usage_ += spent;
  if (beside) background_->stop();
}

void CollRank::one(Run run, std::int64_t i, bool full) {
  void *in = buffers_->in(operation_), *out = buffers_->out(operation_);
  const bool checks = config_.check && run != Run::compute;
  // What a GPU holds is looked at as a whole.
  const bool some = checks && !full && !gpu_ && operation_ % kSampleEvery == kSampleEvery - 1;
  place_.set(operation_, RankStep::working);
  if (checks && full) checker_->fill(in, out);
  if (some) checker_->fill_some(operation_, in, out);
  if (gpu_ && checks && full) gpu_->put(buffers_->data(), buffers_->shaped_bytes());
  if (gpu_) gpu_->ready();
  wait_for_others();
  delay();
  place_.set(operation_, RankStep::operating);
  operate(run, i, in, out);
  if (gpu_ && checks && full) gpu_->get(buffers_->data(), buffers_->shaped_bytes());
  if (checks && full) checker_->check_all(operation_, in, out);
  if (some) checker_->check_some(operation_, in, out);
  ++operation_;
}

void CollRank::operate(Run run, std::int64_t i, void* in, void* out) {
  const Operands o = operands(call_, comm_->index(), in_place_, in, out);
  if (run == Run::operation || run == Run::alone) {
    return make_call(run == Run::alone ? Series::alone : Series::operation, i, o);
  }
  const std::int64_t start = now_ns();
  compute_->start(units_);
  if (run == Run::both) make_call(Series::operation_in_both, i, o);
  compute_->wait();
  Stamps& computed = stamps(run == Run::both ? Series::compute_in_both : Series::compute);
  computed.start(i, start);
  computed.end(i, compute_->end_ns());
  if (run == Run::both) {
    stamps(Series::both).start(i, start);
    stamps(Series::both)
        .end(i, std::max(compute_->end_ns(), stamps(Series::operation_in_both).ends()[i]));
  }
}

void CollRank::make_call(Series series, std::int64_t i, const Operands& operands) {
  Stamps& own = stamps(series);
  const std::int64_t start = now_ns();
  if (gpu_) {
    const CollGpu::Times times = gpu_->run(*comm_, call_, operands);
    own.start(i, times.span.start_ns);
    own.end(i, times.span.end_ns);
    stamps(Series::submit).start(i, start);
    stamps(Series::submit).end(i, times.submitted_ns);
    return;
  }
  own.start(i, start);
  if (stream_) {
    stream_->submit(0, [this, &operands] { issue(*comm_, call_, operands); });
    if (series == Series::operation) {
      stamps(Series::submit).start(i, start);
      stamps(Series::submit).end(i, now_ns());
    }
    stream_->synchronize();
  } else {
    issue(*comm_, call_, operands);
  }
  own.end(i, now_ns());
}

ThreadUsage CollRank::usage() {
  ThreadUsage sum = thread_usage();
  if (!stream_) return sum;
  stream_->submit(0, [&sum] { sum += thread_usage(); });
  stream_->synchronize();
  return sum;
}

void CollRank::wait_for_others() {
  place_.set(operation_, RankStep::meeting);
  if (!spins_) return start_->barrier();
  std::int64_t instant = world_.common_ns(now_ns()) + lead_ns_;
  start_->all_reduce(&instant, 1, DType::int64, ReduceOp::max);
  while (world_.common_ns(now_ns()) < instant) relax();
}

void CollRank::delay() {
  if (!config_.injection || config_.injection->rank != rank_) return;
  place_.set(operation_, RankStep::delayed);
  const std::int64_t until = now_ns() + config_.injection->delay_ns;
  for (std::int64_t left = until - now_ns(); left > 0; left = until - now_ns()) {
    if (world_.aborted()) throw Aborted(world_.reason());
    if (left > kSpinNs)
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left - kSpinNs / 2, kNapNs)));
  }
}

void CollRank::share(Run run, std::int64_t operations, bool keep) {
  place_.set(operation_, RankStep::sharing);
  switch (run) {
    case Run::operation:
      if (config_.call == CallKind::stream) share_series(Series::submit, operations, keep);
      return share_series(Series::operation, operations, keep);
    case Run::alone:
      return share_series(Series::alone, operations, keep);
    case Run::compute:
      return share_series(Series::compute, operations, keep);
    case Run::both:
      for (const Series series : {Series::both, Series::operation_in_both, Series::compute_in_both})
        share_series(series, operations, keep);
      return;
  }
}

void CollRank::share_series(Series series, std::int64_t operations, bool keep) {
  std::int64_t* own[2] = {stamps(series).starts(), stamps(series).ends()};
  for (int side = 0; side < 2; ++side) {
    for (std::int64_t i = 0; i < operations; ++i) own[side][i] = world_.common_ns(own[side][i]);
    if (rank_ == 0) gathered_[side].resize(operations * world_.size());
    control_->gather(own[side], gathered_[side].data(), operations, DType::int64, 0);
  }
  if (rank_ != 0) return;
  place_.set(operation_, RankStep::working);
  last_median_ns_ = last_skew_ns_ = 0;
  for (GroupResult& group : result_->groups) {
    Samples batch;
    for (const int rank : group.ranks) {
      const std::int64_t begin = rank * operations;
      batch.start.emplace_back(gathered_[0].begin() + begin,
                               gathered_[0].begin() + begin + operations);
      batch.end.emplace_back(gathered_[1].begin() + begin,
                             gathered_[1].begin() + begin + operations);
    }
    last_median_ns_ = std::max(last_median_ns_, median(completions_ns(batch)));
    last_skew_ns_ = std::max(last_skew_ns_, median(arrival_skews_ns(batch)));
    if (keep) group.of(series).append(batch);
  }
}

std::optional<double> CollRank::least_certain() const {
  double widest = 0;
  for (const GroupResult& group : result_->groups) {
    const auto width = relative_half_width(completions_ns(group.of(Series::operation)));
    if (!width) return std::nullopt;
    widest = std::max(widest, *width);
  }
  return widest;
}

CollRank::Decision CollRank::decide(Decision own) {
  if (own.interrupted) own.next = 0;
  place_.set(operation_, RankStep::sharing);
  std::int64_t numbers[] = {own.next, own.interrupted, own.lead_ns};
  control_->broadcast(numbers, std::size(numbers), DType::int64, 0);
  if (numbers[1] != 0) interrupted_ = true;
  return {numbers[0], numbers[1], numbers[2]};
}

void CollRank::share_findings() {
  place_.set(operation_, RankStep::sharing);
  const Account own{checker_ ? checker_->findings() : Findings{}, usage_, !spins_};
  std::vector<Account> all(rank_ == 0 ? world_.size() : 0);
  control_->gather(&own, all.data(), sizeof own / sizeof(std::int64_t), DType::int64, 0);
  if (rank_ != 0) return;
  for (GroupResult& group : result_->groups) {
    Findings& sum = group.findings;
    for (const int rank : group.ranks) {
      const Findings& found = all[rank].findings;
      const std::int64_t checked = sum.checked + found.checked, wrong = sum.wrong + found.wrong;
      const std::int64_t full = std::max(sum.full, found.full);
      const std::int64_t sampled = std::max(sum.sampled, found.sampled);
      if (found.wrong > 0 && (sum.operation < 0 || found.operation < sum.operation)) {
        group.wrong_rank = rank;
        sum = found;
      }
      sum.checked = checked, sum.wrong = wrong, sum.full = full, sum.sampled = sampled;
      group.usage += all[rank].usage;
      group.crowded |= all[rank].crowded != 0;
    }
  }
}

}  // namespace mb
