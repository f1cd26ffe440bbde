#include "parallel/plan/builder.h"

#include <algorithm>
#include <cassert>

#include "parallel/plan/arena.h"
#include "workloads/base/error.h"

namespace mb {

std::uint32_t Interner::op(const Op& op) {
  std::vector<std::uint32_t>& alike = of_kind_[op.kind.index()];
  for (const std::uint32_t known : alike) {
    if (ops_[known] == op) return known;
  }
  alike.push_back(static_cast<std::uint32_t>(ops_.size()));
  ops_.push_back(op);
  return alike.back();
}

std::uint16_t Interner::name(std::string_view name) {
  const auto known = name_index_.find(name);
  if (known != name_index_.end()) return known->second;
  require(names_.size() < 65535, "a plan has at most 65,535 names of sites and tensors");
  names_.emplace_back(name);
  return name_index_[names_.back()] = static_cast<std::uint16_t>(names_.size() - 1);
}

void ProgramBuilder::reserve(std::size_t instructions, std::size_t tensors) {
  program_.instructions.reserve(instructions);
  clocks_.reserve(instructions);
  program_.operands.reserve(4 * instructions);
  program_.tensors.reserve(tensors);
  uses_.reserve(tensors);
}

TensorId ProgramBuilder::add(const Tensor& tensor) {
  program_.tensors.push_back(tensor);
  uses_.push_back({known_[0], kNone});
  uses_.back().last.fill(kNone);
  return static_cast<TensorId>(program_.tensors.size() - 1);
}

TensorId ProgramBuilder::persistent(std::uint16_t name, std::int64_t elements, DType dtype,
                                    MemoryClass memory, bool host) {
  return add({.bytes = elements * size_of(dtype),
              .elements = elements,
              .name = name,
              .dtype = dtype,
              .memory = memory,
              .persistent = true,
              .host = host});
}

TensorId ProgramBuilder::view(TensorId base, std::uint16_t name, std::int64_t offset,
                              std::int64_t elements, MemoryClass memory) {
  const DType dtype = program_.tensors[base].dtype;
  return add({.bytes = elements * size_of(dtype),
              .elements = elements,
              .base = base,
              .base_offset = offset * size_of(dtype),
              .name = name,
              .dtype = dtype,
              .memory = memory,
              .persistent = program_.tensors[base].persistent,
              .host = program_.tensors[base].host});
}

TensorId ProgramBuilder::tensor(std::uint16_t name, std::int64_t elements, DType dtype,
                                MemoryClass memory, int layer, int micro_batch, bool host) {
  return add({.bytes = elements * size_of(dtype),
              .elements = elements,
              .name = name,
              .layer = static_cast<std::int16_t>(layer),
              .micro_batch = micro_batch,
              .dtype = dtype,
              .memory = memory,
              .host = host});
}

InstructionId ProgramBuilder::emit(Stream stream, const Label& label, const Action& action,
                                   std::span<const TensorId> reads,
                                   std::span<const TensorId> writes) {
  assert(reads.size() <= kMostOperands && writes.size() <= kMostOperands);
  const auto id = static_cast<InstructionId>(program_.instructions.size());
  const int own = static_cast<int>(stream);
  Clock& known = known_[own];

  // What has to end before this one starts, the latest on each other stream.
  Clock needed;
  needed.fill(kNone);
  const auto need = [&](InstructionId instruction) {
    if (instruction == kNone) return;
    const int on = static_cast<int>(program_.instructions[instruction].stream);
    needed[on] = std::max(needed[on], instruction);
  };
  for (TensorId t : reads) need(uses_[program_.root(t)].writer);
  for (TensorId t : writes) {
    for (InstructionId use : uses_[program_.root(t)].last) need(use);
  }
  for (InstructionId joined : joins_[own]) need(joined);
  joins_[own].clear();

  Instruction instruction{.action = action, .stream = stream, .label = label};
  instruction.after.begin = static_cast<std::uint32_t>(program_.waits.size());
  needed[own] = kNone;
  while (true) {  // the latest first: it implies most
    const auto latest = std::max_element(needed.begin(), needed.end());
    if (*latest == kNone) break;
    const int on = static_cast<int>(latest - needed.begin());
    if (known[on] < *latest) {
      program_.waits.push_back(*latest);
      for (int s = 0; s < kStreams; ++s) known[s] = std::max(known[s], clocks_[*latest][s]);
    }
    *latest = kNone;
  }
  instruction.after.count =
      static_cast<std::uint32_t>(program_.waits.size()) - instruction.after.begin;

  const auto append = [&](std::span<const TensorId> tensors) {
    const Slice slice{static_cast<std::uint32_t>(program_.operands.size()),
                      static_cast<std::uint32_t>(tensors.size())};
    program_.operands.insert(program_.operands.end(), tensors.begin(), tensors.end());
    return slice;
  };
  instruction.reads = append(reads);
  instruction.writes = append(writes);

  for (TensorId t : reads) uses_[program_.root(t)].last[own] = id;
  for (TensorId t : writes) {
    const TensorId root = program_.root(t);
    uses_[root].last[own] = id;
    uses_[root].writer = id;
    Tensor& tensor = program_.tensors[root];
    if (!tensor.persistent && tensor.first == kNone) tensor.first = id;
  }
  known[own] = id;
  clocks_.push_back(known);
  program_.instructions.push_back(instruction);
  return id;
}

// For an instruction on another stream than compute: the first compute instruction that starts
// after it has ended, so that a tensor that it used last can be given to whatever comes later in
// the list. The end of the list if there is none. Compute instructions are their own release
// points.
std::vector<InstructionId> ProgramBuilder::release_points() const {
  const auto count = static_cast<InstructionId>(program_.instructions.size());
  std::vector<InstructionId> release(count, count - 1);
  std::array<std::vector<InstructionId>, kStreams>
      waiting;  // ascending ids; `next` of them have been released
  std::array<std::size_t, kStreams> next{};
  for (InstructionId id = 0; id < count; ++id) {
    const int stream = static_cast<int>(program_.instructions[id].stream);
    if (stream != static_cast<int>(Stream::compute)) {
      waiting[stream].push_back(id);
      continue;
    }
    release[id] = id;
    for (int s = 1; s < kStreams; ++s) {
      while (next[s] < waiting[s].size() && waiting[s][next[s]] <= clocks_[id][s])
        release[waiting[s][next[s]++]] = id;
    }
  }
  return release;
}

Program ProgramBuilder::finish() {
  const std::vector<InstructionId> release = release_points();
  for (std::size_t t = 0; t < program_.tensors.size(); ++t) {
    Tensor& tensor = program_.tensors[t];
    if (tensor.persistent || tensor.base != kNone) continue;
    for (InstructionId use : uses_[t].last) {
      if (use != kNone) tensor.last = std::max(tensor.last, release[use]);
    }
  }
  place_in_arena(program_);
  return std::move(program_);
}

}  // namespace mb
