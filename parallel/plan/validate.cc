#include "parallel/plan/validate.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "parallel/plan/text.h"
#include "parallel/plan/walk.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// One pass over a Program. What a stream knows to have ended is one instruction a stream: all that
// came before on that stream has ended too.
class Checker {
 public:
  Checker(const Plan& plan, const Program& program)
      : plan_(plan),
        program_(program),
        states_(program.tensors.size()),
        useful_(program.instructions.size(), false) {
    known_.fill(never());
    ended_.reserve(program.instructions.size());
  }

  void run() {
    for (TensorId t = 0; t < count(program_.tensors); ++t) place(t);
    for (InstructionId id = 0; id < count(program_.instructions); ++id) {
      const Instruction& instruction = program_.instructions[id];
      Clock& known = known_[static_cast<int>(instruction.stream)];
      wait(id, instruction, known);
      for (TensorId t : program_.reads(instruction)) read(id, program_.root(t));
      for (TensorId t : program_.writes(instruction)) write(id, program_.root(t));
      known[static_cast<int>(instruction.stream)] = id;
      for (TensorId t : program_.reads(instruction)) use(id, program_.root(t));
      for (TensorId t : program_.writes(instruction)) use(id, program_.root(t));
      for (TensorId t : program_.writes(instruction)) {
        states_[program_.root(t)].writer = states_[program_.root(t)].unread = id;
        if (program_.tensors[t].persistent) useful_[id] = true;
      }
      ended_.push_back(known);
    }
    for (TensorId t = 0; t < count(program_.tensors); ++t) {
      const InstructionId unread = states_[t].unread;
      if (unread == kNone || program_.tensors[t].persistent) continue;
      // An activation may be a by-product, which the backward computes anew.
      const bool by_product = program_.tensors[t].memory == MemoryClass::activation;
      if (!by_product || !useful_[unread])
        throw Error(cat(at(unread), " writes ", name(t), ", which nothing reads: a leak"));
    }
  }

 private:
  using Clock = std::array<InstructionId, kStreams>;
  static Clock never() {
    Clock clock;
    clock.fill(kNone);
    return clock;
  }
  struct State {
    Clock uses = never();
    InstructionId writer = kNone;
    InstructionId unread = kNone;  // the last write, until it is read
    bool occupied = false;
  };
  struct Range {
    std::int64_t end;
    TensorId tensor;
  };

  static std::int32_t count(const auto& list) { return static_cast<std::int32_t>(list.size()); }
  std::string at(InstructionId id) const { return describe(plan_, program_.stage, id); }
  std::string name(TensorId t) const { return tensor_text(plan_, program_.tensors[t]); }

  // Where a tensor lies; a persistent one takes its place for good.
  void place(TensorId t) {
    const Tensor& tensor = program_.tensors[t];
    if (tensor.base != kNone) {
      if (tensor.base_offset < 0 ||
          tensor.base_offset + tensor.bytes > program_.tensors[tensor.base].bytes)
        throw Error(cat("stage ", program_.stage, ": ", name(t), " reaches outside of ",
                        name(tensor.base)));
      return;
    }
    if (tensor.offset < 0 ||
        tensor.offset + tensor.bytes > (tensor.host ? program_.host_bytes : program_.arena_bytes))
      throw Error(cat("stage ", program_.stage, ": ", name(t), " lies outside of the arena"));
    if (tensor.persistent) occupy(t, kNone);
  }

  void wait(InstructionId id, const Instruction& instruction, Clock& known) const {
    for (InstructionId before : program_.after(instruction)) {
      if (before < 0 || before >= id)
        throw Error(cat(at(id), " waits for #", before, ", which does not come before it"));
      for (int s = 0; s < kStreams; ++s) known[s] = std::max(known[s], ended_[before][s]);
    }
  }

  void read(InstructionId id, TensorId t) {
    State& state = states_[t];
    if (!program_.tensors[t].persistent && state.writer == kNone)
      throw Error(cat(at(id), " reads ", name(t), ", which nothing has written"));
    order(state.writer, id, t, t);
    if (state.writer != kNone) useful_[state.writer] = true;
    state.unread = kNone;
  }

  void write(InstructionId id, TensorId t) {
    for (InstructionId earlier : states_[t].uses) order(earlier, id, t, t);
    State& state = states_[t];
    if (!state.occupied && !program_.tensors[t].persistent) occupy(t, id);
    state.occupied = true;
  }

  void use(InstructionId id, TensorId t) {
    const Tensor& tensor = program_.tensors[t];
    if (!tensor.persistent && (id < tensor.first || id > tensor.last))
      throw Error(cat(at(id), " uses ", name(t), ", which lives from ", at(tensor.first), " to ",
                      at(tensor.last)));
    states_[t].uses[static_cast<int>(program_.instructions[id].stream)] = id;
  }

  // `id` may use `t` only once `earlier` has done with `other`, which has the same bytes.
  void order(InstructionId earlier, InstructionId id, TensorId t, TensorId other) const {
    if (earlier == kNone) return;
    const auto on = static_cast<int>(program_.instructions[earlier].stream);
    const auto own = static_cast<int>(program_.instructions[id].stream);
    if (on == own || known_[own][on] >= earlier) return;
    const std::string both = t == other ? cat("both use ", name(t))
                                        : cat("use the bytes of ", name(t), " and ", name(other));
    throw Error(cat(at(id), " and ", at(earlier), " ", both, " and nothing orders them"));
  }

  // The bytes of `t` are its own from `id` on; whoever had them before has to be gone.
  void occupy(TensorId t, InstructionId id) {
    const std::int64_t begin = program_.tensors[t].offset, end = begin + program_.tensors[t].bytes;
    std::map<std::int64_t, Range>& ranges = ranges_[program_.tensors[t].host];
    auto range = ranges.upper_bound(begin);
    if (range != ranges.begin() && std::prev(range)->second.end > begin) --range;
    while (range != ranges.end() && range->first < end) {
      const auto [old_begin, old] = *range;
      const Tensor& other = program_.tensors[old.tensor];
      if (other.persistent || other.last >= id) {
        throw Error(cat("stage ", program_.stage, ": ", life(t), " and ", life(old.tensor),
                        " share bytes while both live"));
      }
      for (InstructionId earlier : states_[old.tensor].uses) order(earlier, id, t, old.tensor);
      range = ranges.erase(range);
      if (old_begin < begin) ranges.emplace(old_begin, Range{begin, old.tensor});
      if (old.end > end) range = ranges.emplace(end, Range{old.end, old.tensor}).first;
    }
    if (begin < end) ranges.emplace(begin, Range{end, t});
  }
  std::string life(TensorId t) const {
    if (program_.tensors[t].persistent) return cat(name(t), ", persistent,");
    return cat(name(t), ", written by ", at(program_.tensors[t].first), ",");
  }

  const Plan& plan_;
  const Program& program_;
  std::vector<State> states_;  // by tensor; views have their base's
  std::vector<bool> useful_;   // by instruction: something of what it writes is read or stays
  std::vector<Clock> ended_;   // by instruction: what is known to have ended when it ends
  std::array<Clock, kStreams> known_;
  // By memory space and first byte: who has it, or had it last.
  std::array<std::map<std::int64_t, Range>, 2> ranges_;
};

}  // namespace

void validate(const Plan& plan) {
  for (const Program& program : plan.programs) Checker(plan, program).run();
  walk(plan, RankClasses::by_stage(plan));
}

}  // namespace mb
