#include "parallel/plan/text.h"

#include <algorithm>

#include "workloads/base/error.h"

namespace mb {
namespace {

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string slot_text(const Slot& slot) {
  return cat(letter_of(slot.pass), slot.micro_batch, slot.chunk > 0 ? cat('.', slot.chunk) : "");
}

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace

std::string to_text(const std::vector<Slot>& slots) {
  std::string text;
  for (const Slot& slot : slots) text += (text.empty() ? "" : " ") + slot_text(slot);
  return text;
}

std::string schedule_text(const std::vector<std::vector<Slot>>& slots, Placement placement) {
  std::size_t width = 0;
  for (const std::vector<Slot>& rank : slots) {
    for (const Slot& slot : rank) width = std::max(width, slot_text(slot).size() + 1);
  }
  std::string text;
  if (placement != Placement::linear) text += cat("placement ", name_of(placement), '\n');
  for (std::size_t rank = 0; rank < slots.size(); ++rank) {
    std::string line = padded(cat("stage ", rank), 10);
    for (const Slot& slot : slots[rank]) line += padded(slot_text(slot), width);
    while (line.back() == ' ') line.pop_back();
    text += line + '\n';
  }
  return text;
}

std::string schedule_text(const Plan& plan) {
  std::vector<std::vector<Slot>> slots;
  for (const Program& program : plan.programs) slots.push_back(program.slots);
  return schedule_text(slots, plan.placement);
}

std::string action_text(const Plan& plan, const Instruction& instruction) {
  return std::visit(
      Overloaded{[&](const Compute& c) { return to_text(plan.op(c)); },
                 [](const Collective& c) {
                   const bool reduces = c.kind == CollectiveKind::all_reduce ||
                                        c.kind == CollectiveKind::reduce_scatter;
                   return cat(name_of(c.kind), ' ', reduces ? cat(name_of(c.op), ' ') : "",
                              name_of(c.group), c.slices > 1 ? cat(" own 1/", c.slices) : "");
                 },
                 [](const Send& s) { return cat("send to stage ", s.to); },
                 [](const Recv& r) { return cat("recv from stage ", r.from); },
                 [](const Copy&) { return std::string("copy"); }},
      instruction.action);
}

std::string label_text(const Plan& plan, const Label& label) {
  std::string text(1, letter_of(label.pass));
  if (label.micro_batch >= 0) text += cat(label.micro_batch);
  if (label.chunk > 0) text += cat('.', static_cast<int>(label.chunk));
  if (label.layer >= 0) text += cat(" l", label.layer);
  return cat(text, ' ', plan.names[label.site]);
}

std::string tensor_text(const Plan& plan, const Tensor& tensor) {
  std::string text = plan.names[tensor.name];
  if (tensor.layer >= 0) text += cat(".l", tensor.layer);
  if (tensor.micro_batch >= 0) text += cat(".m", tensor.micro_batch);
  return text;
}

std::string program_text(const Plan& plan, const Program& program) {
  std::string text;
  for (std::size_t id = 0; id < program.instructions.size(); ++id) {
    const Instruction& instruction = program.instructions[id];
    std::string operands;
    for (TensorId t : program.reads(instruction))
      operands += tensor_text(plan, program.tensors[t]) + ' ';
    operands += "->";
    for (TensorId t : program.writes(instruction))
      operands += ' ' + tensor_text(plan, program.tensors[t]);
    std::string after;
    for (InstructionId w : program.after(instruction)) after += cat(" #", w);
    text += cat(padded(cat('#', id), 6), padded(std::string(name_of(instruction.stream)), 8),
                padded(label_text(plan, instruction.label), 24), ' ',
                padded(action_text(plan, instruction), 34), ' ', operands,
                after.empty() ? "" : "  after" + after, '\n');
  }
  return text;
}

}  // namespace mb
