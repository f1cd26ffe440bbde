// The ranks of this process as threads: each walks its own list over a Device and its Comms.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "parallel/device/device.h"
#include "parallel/exec/collectives.h"
#include "parallel/exec/executor.h"
#include "parallel/exec/marker.h"
#include "parallel/exec/memory_counter.h"
#include "parallel/exec/processes.h"
#include "parallel/exec/rank_memory.h"
#include "parallel/exec/watchdog.h"
#include "parallel/plan/text.h"
#include "workloads/base/error.h"
#include "workloads/base/mutation.h"
#include "workloads/ops/peak.h"

namespace mb {
namespace {

// One rank: memory, streams, communicators, and what it is doing.
class Rank {
 public:
  // `name`: how messages name it.
  Rank(const Plan& plan, int rank, std::string name, const LiveSettings& settings, World& world)
      : plan_(plan),
        program_(plan.program_of(rank)),
        lifetimes_(program_),
        rank_(rank),
        name_(std::move(name)),
        settings_(settings),
        world_(world),
        device_(make_cpu_device(kStreams, cat("r", rank))),
        memory_(plan, rank, *device_, settings.init, settings.poison) {
    place_on(plan.mesh);
    for (const Tensor& tensor : program_.tensors) {
      if (tensor.persistent && tensor.base == kNone) counter_.take(tensor, kNone);
    }
    for (auto& standing : standing_) standing.store(kNone);
  }

  // Meets the other ranks of its groups. In the order of the keys, which is the same on all ranks.
  void make_comms() {
    for (const Instruction& instruction : program_.instructions) {
      if (std::holds_alternative<Compute>(instruction.action) ||
          std::holds_alternative<Copy>(instruction.action))
        continue;
      comms_.try_emplace(key_of(instruction));
    }
    for (auto& [key, comm] : comms_) {
      comm = world_.comm(
          cat(name_of(key.group), ' ', key.point_to_point ? "messages" : name_of(key.stream)),
          plan_.mesh.members(key.group, rank_), rank_);
    }
  }

  // Submits the whole list and waits for its end. On any error: aborts the world.
  void run(std::int64_t step, bool record, std::vector<Span>& spans,
           std::vector<std::int64_t>& cpu_ns) {
    context_.step = step;
    record_ = record;
    spans_ = &spans;
    cpu_ns.assign(spans.size(), 0);
    cpu_ns_ = &cpu_ns;
    carried_.assign(spans.size(), {});
    try {
      submit_all();
      device_->synchronize();
      if (settings_.poison) memory_.bury_the_rest(lifetimes_);
    } catch (const std::exception& error) {
      world_.abort(cat(name_, ": ", error.what()));
    }
  }

  std::string standing() const {
    std::string text;
    for (int s = 0; s < kStreams; ++s) {
      const InstructionId id = standing_[s].load(std::memory_order_relaxed);
      if (id == kNone) continue;
      const Instruction& instruction = program_.instructions[id];
      text += cat(text.empty() ? "" : ", ", name_of(static_cast<Stream>(s)), " in ",
                  action_text(plan_, instruction), " (", label_text(plan_, instruction.label), ")");
    }
    return cat(name_, ": ", text.empty() ? "idle" : text);
  }

  std::int64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  const MemoryPeak& memory() const { return counter_.peak(); }
  std::vector<double> read(TensorId id) const { return memory_.read(id); }

  const std::vector<CommCount>& traffic() const { return carried_; }
  const Program& program() const { return program_; }

 private:
  struct CommKey {
    Group group;
    Stream stream;
    bool point_to_point;
    auto operator<=>(const CommKey&) const = default;
  };
  static CommKey key_of(const Instruction& instruction) {
    if (const auto* collective = std::get_if<Collective>(&instruction.action))
      return {collective->group, instruction.stream, false};
    return {group_of(Axis::pp), Stream::pp_send, true};  // sends and receives share one
  }

  void place_on(const Mesh& mesh) {
    context_.shard_index = mesh.coordinate(rank_, Axis::tp);
    context_.context_index = mesh.coordinate(rank_, Axis::cp);
    context_.data_index = mesh.data_index(rank_);
    context_.owner_index = mesh.index_in(kDataOwners, rank_);
    context_.expert_owner_index = mesh.index_in(kExpertOwners, rank_);
    context_.replica_index = mesh.coordinate(rank_, Axis::rdp);
    context_.seed = settings_.seed;
    context_.batches = settings_.batches;
  }

  void submit_all() {
    std::vector<Event> events(program_.instructions.size());
    for (InstructionId id = 0; id < static_cast<InstructionId>(program_.instructions.size());
         ++id) {
      const Instruction& instruction = program_.instructions[id];
      const int stream = static_cast<int>(instruction.stream);
      for (TensorId t : lifetimes_.born_at(id)) counter_.take(program_.tensors[t], id);
      for (InstructionId before : program_.after(instruction)) {
        if (!mutated("waits_left_out")) device_->wait(stream, events[before]);
      }
      events[id] = device_->submit(stream, [this, id] { execute(id); });
      for (TensorId t : lifetimes_.dead_after(id)) counter_.give(program_.tensors[t]);
    }
  }

  void execute(InstructionId id) {
    if (world_.aborted()) throw Aborted(world_.reason());
    const Instruction& instruction = program_.instructions[id];
    std::atomic<InstructionId>& standing = standing_[static_cast<int>(instruction.stream)];
    standing.store(id, std::memory_order_relaxed);
    const bool timed = record_ && std::holds_alternative<Compute>(instruction.action);
    const std::int64_t cpu_start = timed ? thread_cpu_ns() : 0;
    const std::int64_t start = record_ ? now_ns() : 0;
    try {
      const Marked marked(*this, instruction);
      perform(id, instruction);
      if (settings_.poison && id + 1 < static_cast<InstructionId>(program_.instructions.size())) {
        for (TensorId t : lifetimes_.dead_after(id)) memory_.bury(t);
      }
    } catch (const Aborted&) {
      throw;
    } catch (const std::exception& error) {
      // Before this stream's own end: peers must not wait for it.
      world_.abort(cat(name_, " ", name_of(instruction.stream), ", ",
                       label_text(plan_, instruction.label), ", ", action_text(plan_, instruction),
                       ": ", error.what()));
      throw;
    }
    if (record_) (*spans_)[id] = {start, now_ns()};
    if (timed) (*cpu_ns_)[id] = thread_cpu_ns() - cpu_start;
    standing.store(kNone, std::memory_order_relaxed);
    progress_.fetch_add(1, std::memory_order_relaxed);
  }

  // A range for the profiler that watches, if one does.
  class Marked {
   public:
    Marked(const Rank& rank, const Instruction& instruction) : active_(markers_active()) {
      if (!active_) return;
      const bool computes = std::holds_alternative<Compute>(instruction.action);
      marker_push(
          {label_text(rank.plan_, instruction.label), name_of(instruction.label.pass),
           computes ? instruction.label.micro_batch : payload_bytes(rank.program_, instruction)});
    }
    ~Marked() {
      if (active_) marker_pop();
    }

   private:
    bool active_;
  };

  void* address(TensorId id) const { return memory_.address(id); }
  Operand operand(TensorId id) const {
    const Tensor& tensor = program_.tensors[id];
    return {address(id), tensor.elements, tensor.dtype};
  }

  void perform(InstructionId id, const Instruction& instruction) {
    const auto reads = program_.reads(instruction), writes = program_.writes(instruction);
    if (const auto* compute = std::get_if<Compute>(&instruction.action)) {
      std::array<const void*, kMostOperands> in;
      std::array<void*, kMostOperands> out;
      for (std::size_t i = 0; i < reads.size(); ++i) in[i] = address(reads[i]);
      for (std::size_t i = 0; i < writes.size(); ++i) out[i] = address(writes[i]);
      OpContext context = context_;
      context.micro_batch = std::max(instruction.label.micro_batch, 0);
      if (mutated("dropout_not_restored") && instruction.label.pass == Pass::recompute)
        ++context.seed;
      context.first_sample = (static_cast<std::int64_t>(context.data_index) * plan_.micro_batches +
                              context.micro_batch) *
                             plan_.micro_batch;
      run_cpu_op(plan_.op(*compute), context, std::span(in.data(), reads.size()),
                 std::span(out.data(), writes.size()));
      return;
    }
    if (std::holds_alternative<Copy>(instruction.action)) return copy(reads[0], writes[0]);
    Comm& comm = *comms_.at(key_of(instruction));
    const CommCount before = comm.carried();
    if (const auto* send = std::get_if<Send>(&instruction.action)) {
      const Tensor& tensor = program_.tensors[reads[0]];
      comm.send(address(reads[0]), tensor.bytes, send->to);
    } else if (const auto* recv = std::get_if<Recv>(&instruction.action)) {
      comm.recv(address(writes[0]), program_.tensors[writes[0]].bytes, recv->from);
      return;  // its communicator counts what another stream sends meanwhile
    } else {
      std::array<Operand, kMostOperands> in, out;
      for (std::size_t i = 0; i < reads.size(); ++i) in[i] = operand(reads[i]);
      for (std::size_t i = 0; i < writes.size(); ++i) out[i] = operand(writes[i]);
      const auto& collective = std::get<Collective>(instruction.action);
      if (collective.slices > 1) {
        int owner = plan_.mesh.index_in(collective.owners, rank_);
        if (mutated("tied_partitions_differ") && program_.stage > 0)
          owner = collective.slices - 1 - owner;
        in[0] = out[0] = slice_of(out[0], collective.slices, owner);
      }
      run_collective(comm, collective, std::span(in.data(), reads.size()),
                     std::span(out.data(), writes.size()));
    }
    const CommCount after = comm.carried();
    CommCount& carried = carried_[id];
    carried = {after.calls - before.calls, after.elements - before.elements,
               after.bytes - before.bytes};
    if (std::holds_alternative<Send>(instruction.action))
      carried.elements = carried.bytes / size_of(program_.tensors[reads[0]].dtype);
  }

  void copy(TensorId from, TensorId to) const {
    const auto start = std::chrono::steady_clock::now();
    const Tensor& tensor = program_.tensors[from];
    std::memcpy(address(to), address(from), static_cast<std::size_t>(tensor.bytes));
    if (tensor.host == program_.tensors[to].host || settings_.host_gb_per_s == 0) return;
    const std::chrono::duration<double, std::nano> takes(static_cast<double>(tensor.bytes) /
                                                         settings_.host_gb_per_s);
    std::this_thread::sleep_until(start + takes);
  }

  const Plan& plan_;
  const Program& program_;
  const Lifetimes lifetimes_;
  int rank_;
  const std::string name_;
  const LiveSettings& settings_;
  World& world_;
  std::unique_ptr<Device> device_;
  RankMemory memory_;
  OpContext context_;
  std::map<CommKey, std::unique_ptr<Comm>> comms_;
  MemoryCounter counter_;
  bool record_ = true;
  std::vector<CommCount> carried_;  // by instruction, in this step
  std::vector<Span>* spans_ = nullptr;
  std::vector<std::int64_t>* cpu_ns_ = nullptr;
  std::array<std::atomic<InstructionId>, kStreams> standing_;
  std::atomic<std::int64_t> progress_{0};
};

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
    ++step_;
    result.clock_uncertainty_ns = world_.clock_uncertainty_ns();
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
  // if any fails.
  template <class Work>
  void on_local_ranks(Work work) const {
    {
      std::vector<std::jthread> threads;
      for (const int rank : world_.local_ranks()) {
        try {
          threads.emplace_back([&, rank] {
            try {
              work(rank);
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
    std::vector<std::int64_t> own;
    for (const Span& span : result.timeline.lanes[rank]) {
      own.push_back(world_.common_ns(span.start_ns));
      own.push_back(world_.common_ns(span.end_ns));
    }
    own.insert(own.end(), result.cpu_ns[rank].begin(), result.cpu_ns[rank].end());
    const std::vector<std::vector<std::int64_t>> all = processes_.gather(own);
    for (int r = 0; r < world_.size(); ++r) {
      std::vector<Span>& lane = result.timeline.lanes[r];
      for (std::size_t i = 0; i < lane.size(); ++i) lane[i] = {all[r][2 * i], all[r][2 * i + 1]};
      result.cpu_ns[r].assign(all[r].begin() + 2 * static_cast<std::ptrdiff_t>(lane.size()),
                              all[r].end());
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
