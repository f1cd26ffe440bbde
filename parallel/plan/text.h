// A Plan as text, for people and for goldens. Stable: the same Plan gives the same text.
#pragma once

#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace mb {

// "F0 F1 B0 F2 B1"
std::string to_text(const std::vector<Slot>& slots);

// A schedule, one row a pipeline rank ("stage"), one column a slot, after a line "placement v"
// where it is not linear. parse_schedule reads it.
std::string schedule_text(const std::vector<std::vector<Slot>>& slots, Placement placement);
std::string schedule_text(const Plan& plan);

// Every instruction of a Program: id, stream, label, action, operands, waits.
std::string program_text(const Plan& plan, const Program& program);

// "send to stage 2", "all_reduce sum tp", "matmul 512x1536x384 nt"
std::string action_text(const Plan& plan, const Instruction& instruction);
// "F3 l5 mlp.up", and for a chunk above 0 "F3.1 l5 mlp.up"
std::string label_text(const Plan& plan, const Label& label);
// "x1.l3.m0"
std::string tensor_text(const Plan& plan, const Tensor& tensor);

}  // namespace mb
