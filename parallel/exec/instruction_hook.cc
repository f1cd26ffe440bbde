#include "parallel/exec/marker.h"

namespace mb {
namespace {

InstructionHook& current() {
  static InstructionHook hook;
  return hook;
}

}  // namespace

void set_instruction_hook(const InstructionHook& hook) { current() = hook; }
const InstructionHook& instruction_hook() { return current(); }

}  // namespace mb
