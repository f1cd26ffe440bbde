#include "parallel/plan/plan.h"

namespace mb {

std::string_view name_of(Stream stream) {
  constexpr std::string_view names[] = {"compute", "tp", "dp", "pp_send",
                                        "pp_recv", "cp", "ep", "copy"};
  return names[static_cast<int>(stream)];
}

std::string_view name_of(MemoryClass memory) {
  constexpr std::string_view names[] = {"parameter", "gradient",   "main_parameter",
                                        "moment",    "activation", "gathered",
                                        "bucket",    "workspace",  "input"};
  return names[static_cast<int>(memory)];
}

std::string_view name_of(Pass pass) {
  constexpr std::string_view names[] = {"input",       "forward",   "backward", "input_grad",
                                        "weight_grad", "recompute", "reduce",   "optimizer"};
  return names[static_cast<int>(pass)];
}

std::string_view name_of(Placement placement) {
  constexpr std::string_view names[] = {"linear", "looped", "v"};
  return names[static_cast<int>(placement)];
}

char letter_of(Pass pass) { return "LFBIWRGO"[static_cast<int>(pass)]; }

namespace {
TensorId payload(const Program& program, const Instruction& instruction) {
  const auto* collective = std::get_if<Collective>(&instruction.action);
  if (std::holds_alternative<Recv>(instruction.action)) return program.writes(instruction).front();
  const TensorId read = program.reads(instruction).front();
  if (!collective) return read;
  const TensorId written = program.writes(instruction).front();
  const bool smaller = program.tensors[written].elements < program.tensors[read].elements;
  const bool writes = collective->kind == CollectiveKind::all_gather ||
                      (collective->kind == CollectiveKind::all_to_all_v && smaller);
  return writes ? written : read;
}
}  // namespace

std::int64_t payload_bytes(const Program& program, const Instruction& instruction) {
  const Tensor& tensor = program.tensors[payload(program, instruction)];
  return payload_elements(program, instruction) * size_of(tensor.dtype);
}

std::int64_t payload_elements(const Program& program, const Instruction& instruction) {
  const auto* collective = std::get_if<Collective>(&instruction.action);
  return program.tensors[payload(program, instruction)].elements /
         (collective ? collective->slices : 1);
}

}  // namespace mb
