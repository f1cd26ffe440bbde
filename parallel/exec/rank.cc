#include "parallel/exec/rank.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <span>
#include <thread>
#include <utility>

#include "parallel/exec/marker.h"
#include "parallel/plan/text.h"
#include "workloads/base/error.h"
#include "workloads/base/mutation.h"
#include "workloads/ops/peak.h"

namespace mb {

Rank::Rank(const Plan& plan, int rank, std::string name, const LiveSettings& settings, World& world)
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

void Rank::make_comms() {
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

void Rank::run(std::int64_t step, bool record, std::vector<Span>& spans,
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

std::string Rank::standing() const {
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

Rank::CommKey Rank::key_of(const Instruction& instruction) {
  if (const auto* collective = std::get_if<Collective>(&instruction.action))
    return {collective->group, instruction.stream, false};
  return {group_of(Axis::pp), Stream::pp_send, true};  // sends and receives share one
}

void Rank::place_on(const Mesh& mesh) {
  context_.shard_index = mesh.coordinate(rank_, Axis::tp);
  context_.context_index = mesh.coordinate(rank_, Axis::cp);
  context_.data_index = mesh.data_index(rank_);
  context_.owner_index = mesh.index_in(kDataOwners, rank_);
  context_.expert_owner_index = mesh.index_in(kExpertOwners, rank_);
  context_.replica_index = mesh.coordinate(rank_, Axis::rdp);
  context_.seed = settings_.seed;
  context_.batches = settings_.batches;
}

void Rank::submit_all() {
  std::vector<Event> events(program_.instructions.size());
  for (InstructionId id = 0; id < static_cast<InstructionId>(program_.instructions.size()); ++id) {
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

// A range for the profiler that watches, if one does.
class Rank::Marked {
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

void Rank::execute(InstructionId id) {
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

Operand Rank::operand(TensorId id) const {
  const Tensor& tensor = program_.tensors[id];
  return {address(id), tensor.elements, tensor.dtype};
}

void Rank::perform(InstructionId id, const Instruction& instruction) {
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

void Rank::copy(TensorId from, TensorId to) const {
  const auto start = std::chrono::steady_clock::now();
  const Tensor& tensor = program_.tensors[from];
  std::memcpy(address(to), address(from), static_cast<std::size_t>(tensor.bytes));
  if (tensor.host == program_.tensors[to].host || settings_.host_gb_per_s == 0) return;
  const std::chrono::duration<double, std::nano> takes(static_cast<double>(tensor.bytes) /
                                                       settings_.host_gb_per_s);
  std::this_thread::sleep_until(start + takes);
}

}  // namespace mb
