// Ranks as threads of this process: each walks its own list over a Device and its Comms.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <map>
#include <system_error>
#include <thread>

#include "parallel/device/device.h"
#include "parallel/exec/collectives.h"
#include "parallel/exec/executor.h"
#include "parallel/exec/marker.h"
#include "parallel/exec/memory_counter.h"
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
  Rank(const Plan& plan, int rank, const LiveSettings& settings, ThreadWorld& world)
      : plan_(plan),
        program_(plan.program_of(rank)),
        lifetimes_(program_),
        rank_(rank),
        settings_(settings),
        world_(world),
        device_(make_cpu_device(kStreams, cat("r", rank))),
        memory_(plan, rank, *device_, settings.init, settings.poison) {
    place_on(plan.mesh);
    make_comms();
    for (const Tensor& tensor : program_.tensors) {
      if (tensor.persistent && tensor.base == kNone) counter_.take(tensor, kNone);
    }
    for (auto& standing : standing_) standing.store(kNone);
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
      world_.abort(cat("rank ", rank_, ": ", error.what()));
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
    return cat("rank ", rank_, ": ", text.empty() ? "idle" : text);
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

  void make_comms() {
    for (const Instruction& instruction : program_.instructions) {
      if (std::holds_alternative<Compute>(instruction.action) ||
          std::holds_alternative<Copy>(instruction.action))
        continue;
      const CommKey key = key_of(instruction);
      auto& comm = comms_[key];
      if (comm) continue;
      comm = world_.comm(
          cat(name_of(key.group), ' ', key.point_to_point ? "messages" : name_of(key.stream)),
          plan_.mesh.members(key.group, rank_), rank_);
    }
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
      world_.abort(cat("rank ", rank_, " ", name_of(instruction.stream), ", ",
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
  const LiveSettings& settings_;
  ThreadWorld& world_;
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

class ThreadExecutor final : public Executor {
 public:
  ThreadExecutor(const Plan& plan, const LiveSettings& settings)
      : plan_(plan),
        settings_(settings),
        world_(plan.mesh.world(), settings.delays),
        ranks_(plan.mesh.world()) {
    on_all_ranks([this](int rank) {
      ranks_[rank] = std::make_unique<Rank>(plan_, rank, settings_, world_);
    });
  }

  StepResult step(bool record) override {
    require(!world_.aborted(), "an earlier step failed: ", world_.reason());
    StepResult result{.timeline = empty_timeline(plan_)};
    result.cpu_ns.resize(ranks_.size());
    const Watchdog watchdog(
        settings_.timeout_s, [this] { return progress(); },
        [this] {
          world_.abort(cat("no rank has ended an instruction for ", settings_.timeout_s,
                           " s: ", standing()));
        });
    on_all_ranks([&](int rank) {
      ranks_[rank]->run(step_, record, result.timeline.lanes[rank], result.cpu_ns[rank]);
    });
    ++step_;
    const std::vector<double> scalars = ranks_[0]->read(ranks_[0]->program().scalars);
    const double tokens = std::max(scalars[1], 1.0), scale = scalars[7];
    result.training = Training{.loss = scalars[0] / tokens,
                               .balance_loss = scalars[3] / tokens,
                               .gradient_norm = std::sqrt(scalars[2]) / (tokens * scale),
                               .valid_tokens = static_cast<std::int64_t>(scalars[1]),
                               .loss_scale = scale,
                               .skipped = !std::isfinite(scalars[2])};
    return result;
  }
  std::optional<MemoryPeak> memory(int rank) const override { return ranks_[rank]->memory(); }
  std::vector<CommCount> traffic(int rank) const override { return ranks_[rank]->traffic(); }
  std::vector<double> read(int rank, TensorId tensor) const override {
    return ranks_[rank]->read(tensor);
  }

 private:
  // Runs work(rank) on a thread for each rank. Throws Error with the first reason if any fails.
  template <class Work>
  void on_all_ranks(Work work) {
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
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

  std::int64_t progress() const {
    std::int64_t sum = 0;
    for (const auto& rank : ranks_) sum += rank->progress();
    return sum;
  }
  std::string standing() const {
    std::string text;
    for (const auto& rank : ranks_) text += cat(text.empty() ? "" : "; ", rank->standing());
    return text;
  }

  const Plan& plan_;
  LiveSettings settings_;
  ThreadWorld world_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::int64_t step_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_thread_executor(const Plan& plan, const LiveSettings& settings) {
  return std::make_unique<ThreadExecutor>(plan, settings);
}

}  // namespace mb
