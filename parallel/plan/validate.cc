#include "parallel/plan/validate.h"

#include <array>
#include <map>
#include <vector>

#include "parallel/plan/text.h"
#include "parallel/plan/walk.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

struct Checker {
  const Plan& plan;
  const Program& program;

  std::string at(InstructionId id) const { return describe(plan, program.stage, id); }
  std::string name(TensorId t) const { return tensor_text(plan, program.tensors[t]); }

  void uses() const {
    std::vector<InstructionId> writer(program.tensors.size(), kNone);
    std::vector<bool> used(program.tensors.size(), false);
    for (InstructionId id = 0; id < static_cast<InstructionId>(program.instructions.size()); ++id) {
      const Instruction& instruction = program.instructions[id];
      for (InstructionId before : program.after(instruction)) {
        require(before >= 0 && before < id, at(id), " waits for #", before,
                ", which does not come before it");
      }
      for (TensorId t : program.reads(instruction)) {
        const TensorId root = program.root(t);
        require(program.tensors[root].persistent || writer[root] != kNone, at(id), " reads ",
                name(t), ", which nothing has written");
        used[root] = true;
      }
      for (TensorId t : program.writes(instruction)) writer[program.root(t)] = id;
    }
    for (TensorId t = 0; t < static_cast<TensorId>(program.tensors.size()); ++t) {
      if (program.tensors[t].base != kNone) continue;
      require(program.tensors[t].persistent || writer[t] == kNone || used[t], at(writer[t]),
              " writes ", name(t), ", which nothing reads: a leak");
    }
  }

  // Every pair (write, later use) on two streams must be ordered by waits; likewise (use, later
  // write).
  void order() const {
    using Clock = std::array<InstructionId, kStreams>;
    const auto none = [] {
      Clock clock;
      clock.fill(kNone);
      return clock;
    };
    struct State {
      Clock uses;
      InstructionId writer;
    };
    std::vector<State> state(program.tensors.size(), State{none(), kNone});
    std::vector<Clock> ended(program.instructions.size());
    std::array<Clock, kStreams> known;
    known.fill(none());
    for (InstructionId id = 0; id < static_cast<InstructionId>(program.instructions.size()); ++id) {
      const Instruction& instruction = program.instructions[id];
      const int own = static_cast<int>(instruction.stream);
      for (InstructionId before : program.after(instruction)) {
        for (int s = 0; s < kStreams; ++s)
          known[own][s] = std::max(known[own][s], ended[before][s]);
      }
      const auto ordered = [&](InstructionId earlier, TensorId t) {
        if (earlier == kNone) return;
        const int on = static_cast<int>(program.instructions[earlier].stream);
        require(on == own || known[own][on] >= earlier, at(id), " and ", at(earlier), " both use ",
                name(t), " and nothing orders them");
      };
      for (TensorId t : program.reads(instruction)) ordered(state[program.root(t)].writer, t);
      for (TensorId t : program.writes(instruction)) {
        for (InstructionId use : state[program.root(t)].uses) ordered(use, t);
      }
      for (TensorId t : program.reads(instruction)) state[program.root(t)].uses[own] = id;
      for (TensorId t : program.writes(instruction)) {
        state[program.root(t)].uses[own] = id;
        state[program.root(t)].writer = id;
      }
      known[own][own] = id;
      ended[id] = known[own];
    }
  }

  void memory() const {
    std::vector<std::vector<TensorId>> born(program.instructions.size()),
        dead(program.instructions.size());
    std::map<std::int64_t, TensorId> live;  // by offset
    const auto enter = [&](TensorId t) {
      const Tensor& tensor = program.tensors[t];
      if (tensor.bytes == 0) return;
      require(tensor.offset >= 0 && tensor.offset + tensor.bytes <= program.arena_bytes, name(t),
              " lies outside of the arena of stage ", program.stage);
      const auto next = live.lower_bound(tensor.offset);
      const auto clash = [&](TensorId other) {
        throw Error(cat("stage ", program.stage, ": ", name(t), " and ", name(other),
                        " share bytes while both live"));
      };
      if (next != live.end() && next->first < tensor.offset + tensor.bytes) clash(next->second);
      if (next != live.begin()) {
        const auto previous = std::prev(next);
        if (previous->first + program.tensors[previous->second].bytes > tensor.offset)
          clash(previous->second);
      }
      live.emplace_hint(next, tensor.offset, t);
    };
    for (TensorId t = 0; t < static_cast<TensorId>(program.tensors.size()); ++t) {
      const Tensor& tensor = program.tensors[t];
      if (tensor.base != kNone) {
        const Tensor& base = program.tensors[tensor.base];
        require(tensor.base_offset >= 0 && tensor.base_offset + tensor.bytes <= base.bytes, name(t),
                " reaches outside of ", name(tensor.base));
        continue;
      }
      if (tensor.persistent) {
        enter(t);
      } else if (tensor.first != kNone) {
        born[tensor.first].push_back(t);
        dead[tensor.last].push_back(t);
      }
    }
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      for (TensorId t : born[i]) enter(t);
      for (TensorId t : dead[i]) {
        if (program.tensors[t].bytes > 0) live.erase(program.tensors[t].offset);
      }
    }
  }
};

}  // namespace

void validate(const Plan& plan) {
  for (const Program& program : plan.programs) {
    const Checker checker{plan, program};
    checker.uses();
    checker.order();
    checker.memory();
  }
  Walk(plan).run([](int, InstructionId) { return std::int64_t{0}; });
}

}  // namespace mb
