#include "parallel/exec/rank.h"

#include <algorithm>
#include <chrono>
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
namespace {

// Counts what a Comm carries meanwhile.
class Counted {
 public:
  Counted(const Comm& comm, CommCount& count)
      : comm_(comm), count_(count), before_(comm.carried()) {}
  ~Counted() {
    const CommCount after = comm_.carried();
    count_ = {after.calls - before_.calls, after.elements - before_.elements,
              after.bytes - before_.bytes};
  }

 private:
  const Comm& comm_;
  CommCount& count_;
  const CommCount before_;
};

}  // namespace

Rank::Rank(const Plan& plan, int rank, std::string name, const LiveSettings& settings, World& world)
    : plan_(plan),
      program_(plan.program_of(rank)),
      lifetimes_(program_),
      rank_(rank),
      settings_(settings),
      world_(world),
      device_(settings.make_device ? settings.make_device(rank)
                                   : make_cpu_device(kStreams, cat("r", rank))),
      name_(device_->text().empty() ? std::move(name) : cat(name, " on ", device_->text())),
      memory_(plan, rank, *device_, settings.init, settings.poison),
      awaited_(program_.instructions.size()) {
  place_on(plan.mesh);
  for (const Tensor& tensor : program_.tensors) {
    if (tensor.persistent && tensor.base == kNone) counter_.take(tensor, kNone);
  }
  for (auto& standing : standing_) standing.store(kNone);
  for (InstructionId id : program_.waits) awaited_[id] = true;
  prepare();
}

// All that a step would otherwise allocate.
void Rank::prepare() {
  std::array<std::int64_t, kStreams> room{};
  for (const Instruction& instruction : program_.instructions) {
    const int stream = static_cast<int>(instruction.stream);
    if (const auto* compute = std::get_if<Compute>(&instruction.action)) {
      device_->prepare(stream, plan_.op(*compute));
    } else if (!std::holds_alternative<Copy>(instruction.action)) {
      std::int64_t bytes = 0;
      for (const auto operands : {program_.reads(instruction), program_.writes(instruction)}) {
        for (TensorId t : operands) bytes += Staging::room_of(program_.tensors[t].bytes);
      }
      room[stream] = std::max(room[stream], bytes);
    }
  }
  if (device_->memory_is_host()) return;
  for (int stream = 0; stream < kStreams; ++stream) {
    staging_.emplace_back(*device_, stream);
    staging_.back().reserve(room[stream]);
  }
}

void Rank::make_comms() {
  std::map<CommKey, Stream> wanted;
  for (const Instruction& instruction : program_.instructions) {
    if (std::holds_alternative<Compute>(instruction.action) ||
        std::holds_alternative<Copy>(instruction.action))
      continue;
    wanted.emplace(key_of(instruction), instruction.stream);
  }
  std::vector<World::GroupName> groups;
  for (const auto& [key, stream] : wanted) groups.push_back(group_of_comm(key));
  if (world_.enqueues())
    world_.announce(device_->native(static_cast<int>(Stream::compute)), groups, rank_);
  for (const auto& [key, stream] : wanted) {
    const auto& [name, members] = groups[comms_.size()];
    comms_.emplace(
        key, world_.enqueues()
                 ? world_.comm_on(device_->native(static_cast<int>(stream)), name, members, rank_)
                 : world_.comm(name, members, rank_));
  }
}

World::GroupName Rank::group_of_comm(const CommKey& key) const {
  std::vector<int> members = plan_.mesh.members(key.group, rank_);
  std::string name =
      cat(name_of(key.group), ' ', key.point_to_point ? "messages" : name_of(key.stream));
  if (key.from < 0) return {name, members};
  return {cat(name, ' ', key.from, " to ", key.to), {members[key.from], members[key.to]}};
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
    device_->begin_step(record);
    submit_all();
    device_->synchronize();
    if (record_) device_->resolve(spans);
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

Rank::CommKey Rank::key_of(const Instruction& instruction) const {
  if (const auto* collective = std::get_if<Collective>(&instruction.action))
    return {collective->group, instruction.stream, false};
  CommKey key{group_of(Axis::pp), Stream::pp_send, true};
  if (!world_.enqueues()) return key;
  key.from = key.to = plan_.mesh.coordinate(rank_, Axis::pp);
  if (const auto* send = std::get_if<Send>(&instruction.action)) key.to = send->to;
  if (const auto* recv = std::get_if<Recv>(&instruction.action)) key.from = recv->from;
  return key;
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
    events[id] = device_->submit(
        stream, [this, id] { execute(id); }, awaited_[id]);
    for (TensorId t : lifetimes_.dead_after(id)) counter_.give(program_.tensors[t]);
  }
}

// A range for the profiler that watches, if one does.
class Rank::Marked {
 public:
  Marked(const Rank& rank, InstructionId id)
      : active_(markers_active()), hook_(instruction_hook()) {
    if (hook_.begin) hook_.begin(rank.rank_, id);
    if (!active_) return;
    const Instruction& instruction = rank.program_.instructions[id];
    const bool computes = std::holds_alternative<Compute>(instruction.action);
    marker_push({.message = label_text(rank.plan_, instruction.label),
                 .category = name_of(instruction.label.pass),
                 .micro_batch = instruction.label.micro_batch,
                 .layer = instruction.label.layer,
                 .bytes = computes ? 0 : payload_bytes(rank.program_, instruction)});
  }
  ~Marked() {
    if (active_) marker_pop();
    if (hook_.end) hook_.end();
  }

 private:
  const bool active_;
  const InstructionHook hook_;
};

void Rank::execute(InstructionId id) {
  if (world_.aborted()) throw Aborted(world_.reason());
  const Instruction& instruction = program_.instructions[id];
  const int stream = static_cast<int>(instruction.stream);
  std::atomic<InstructionId>& standing = standing_[stream];
  standing.store(id, std::memory_order_relaxed);
  const bool timed =
      record_ && keeps_cpu_time() && std::holds_alternative<Compute>(instruction.action);
  const std::int64_t cpu_start = timed ? thread_cpu_ns() : 0;
  std::int64_t start = 0, end = 0;
  try {
    const Marked marked(*this, id);
    if (record_) start = device_->mark(stream);
    perform(id, instruction);
    if (settings_.poison && id + 1 < static_cast<InstructionId>(program_.instructions.size())) {
      for (TensorId t : lifetimes_.dead_after(id)) memory_.bury(stream, t);
    }
    if (record_) end = device_->mark(stream);
  } catch (const Aborted&) {
    throw;
  } catch (const std::exception& error) {
    // Before this stream's own end: peers must not wait for it.
    world_.abort(cat(name_, " ", name_of(instruction.stream), ", ",
                     label_text(plan_, instruction.label), ", ", action_text(plan_, instruction),
                     ": ", error.what()));
    throw;
  }
  if (record_) (*spans_)[id] = {start, end};
  if (timed) (*cpu_ns_)[id] = thread_cpu_ns() - cpu_start;
  standing.store(kNone, std::memory_order_relaxed);
  progress_.fetch_add(1, std::memory_order_relaxed);
}

Operand Rank::operand(TensorId id) const {
  const Tensor& tensor = program_.tensors[id];
  return {address(id), tensor.elements, tensor.dtype};
}

void Rank::perform(InstructionId id, const Instruction& instruction) {
  if (std::holds_alternative<Compute>(instruction.action)) return compute(instruction);
  if (!std::holds_alternative<Copy>(instruction.action)) return communicate(id, instruction);
  copy(static_cast<int>(instruction.stream), program_.reads(instruction)[0],
       program_.writes(instruction)[0]);
}

void Rank::compute(const Instruction& instruction) {
  const auto reads = program_.reads(instruction), writes = program_.writes(instruction);
  std::array<const void*, kMostOperands> in;
  std::array<void*, kMostOperands> out;
  for (std::size_t i = 0; i < reads.size(); ++i) in[i] = address(reads[i]);
  for (std::size_t i = 0; i < writes.size(); ++i) out[i] = address(writes[i]);
  OpContext context = context_;
  context.micro_batch = std::max(instruction.label.micro_batch, 0);
  if (mutated("dropout_not_restored") && instruction.label.pass == Pass::recompute) ++context.seed;
  context.first_sample =
      (static_cast<std::int64_t>(context.data_index) * plan_.micro_batches + context.micro_batch) *
      plan_.micro_batch;
  device_->run(static_cast<int>(instruction.stream),
               plan_.op(std::get<Compute>(instruction.action)), context,
               std::span(in.data(), reads.size()), std::span(out.data(), writes.size()));
}

void Rank::communicate(InstructionId id, const Instruction& instruction) {
  Comm& comm = *comms_.at(key_of(instruction));
  std::array<Operand, kMostOperands> operands_in, operands_out;
  const auto load = [this](std::span<const TensorId> tensors, std::span<Operand> into) {
    for (std::size_t i = 0; i < tensors.size(); ++i) into[i] = operand(tensors[i]);
    return into.first(tensors.size());
  };
  const std::span<Operand> in = load(program_.reads(instruction), operands_in),
                           out = load(program_.writes(instruction), operands_out);
  const auto* collective = std::get_if<Collective>(&instruction.action);
  if (collective && collective->slices > 1) {
    int owner = plan_.mesh.index_in(collective->owners, rank_);
    if (mutated("tied_partitions_differ") && program_.stage > 0)
      owner = collective->slices - 1 - owner;
    in[0] = out[0] = slice_of(out[0], collective->slices, owner);
  }
  const bool varies = collective && collective->kind == CollectiveKind::all_to_all_v;
  Staging* const staging =
      staging_.empty() ? nullptr : &staging_[static_cast<int>(instruction.stream)];
  if (staging && !world_.enqueues()) {
    staging->bring(in, out, varies);
  } else if (staging && varies) {
    staging->bring(in.subspan(1), {}, false);  // sizes
  }

  if (const auto* recv = std::get_if<Recv>(&instruction.action)) {
    // Its communicator counts what another stream sends meanwhile.
    comm.recv(out[0].data, out[0].elements * size_of(out[0].type),
              world_.enqueues() ? 0 : recv->from);
  } else {
    const Counted counted(comm, carried_[id]);
    if (const auto* send = std::get_if<Send>(&instruction.action)) {
      comm.send(in[0].data, in[0].elements * size_of(in[0].type), world_.enqueues() ? 1 : send->to);
    } else {
      run_collective(comm, *collective, in, out);
    }
  }
  if (std::holds_alternative<Send>(instruction.action)) carried_[id].elements = in[0].elements;
  if (staging && !world_.enqueues()) staging->take_back();
}

void Rank::copy(int stream, TensorId from, TensorId to) {
  const auto start = std::chrono::steady_clock::now();
  const Tensor& tensor = program_.tensors[from];
  device_->copy(stream, address(to), address(from), static_cast<std::size_t>(tensor.bytes));
  if (tensor.host == program_.tensors[to].host || settings_.host_gb_per_s == 0) return;
  const std::chrono::duration<double, std::nano> takes(static_cast<double>(tensor.bytes) /
                                                       settings_.host_gb_per_s);
  std::this_thread::sleep_until(start + takes);
}

}  // namespace mb
