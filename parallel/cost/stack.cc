#include "parallel/cost/stack.h"

#include "parallel/cost/fields.h"

namespace mb {
namespace {

const Fields<Stack>& fields() {
  using S = Stack;
  using enum FieldRange;
  static const Fields<Stack> table(
      "stack.", {
                    {"fused_attention", [](S& s) -> bool& { return s.fused_attention; }},
                    {"eager", [](S& s) -> bool& { return s.eager; }},
                    {"scatter_sends", [](S& s) -> bool& { return s.scatter_sends; }},
                    {"fp8_matmul", [](S& s) -> bool& { return s.fp8_matmul; }},
                    {"host_waits", [](S& s) -> bool& { return s.host_waits; }},
                    {"attention_share", [](S& s) -> double& { return s.attention_share; }},
                    {"compute_share", [](S& s) -> double& { return s.compute_share; }},
                    {"memory_share", [](S& s) -> double& { return s.memory_share; }},
                    {"comm_share", [](S& s) -> double& { return s.comm_share; }},
                    {"host_us", [](S& s) -> double& { return s.host_us; }, from_zero},
                    {"log_sigma", [](S& s) -> double& { return s.log_sigma; }, from_zero},
                    {"source", [](S& s) -> std::string& { return s.source; }},
                    {"fitted_machine", [](S& s) -> std::string& { return s.fitted_machine; }},
                    {"fitted_nodes", [](S& s) -> int& { return s.fitted_nodes; }, from_zero},
                });
  return table;
}

}  // namespace

// Constants that `mb published --fit` finds on published steps;
// scripts/mb/published/fitted_rows.json names the rows. log_sigma is the spread of these rows,
// widened for their number.
const std::vector<Stack>& stacks() {
  static const std::vector<Stack> table = {
      {.name = "kernels", .source = "nothing: the Plan's kernels at the machine's rates"},
      {.name = "megatron-2021",
       .fused_attention = false,
       .eager = true,
       .scatter_sends = true,
       .compute_share = 0.688,
       .comm_share = 1,
       .log_sigma = 0.084,
       .source = "3 rows of Megatron-LM on A100, SC21"},
      {.name = "megatron-2022",
       .fused_attention = false,
       .eager = true,
       .scatter_sends = true,
       .compute_share = 0.688,
       .comm_share = 1,
       .source = "those of megatron-2021, with sequence parallelism and selective recomputation to "
                 "come from the case"},
      {.name = "megatron-deepspeed",
       .fused_attention = false,
       .eager = true,
       .compute_share = 0.702,
       .comm_share = 0.469,
       .log_sigma = 0.141,
       .source = "10 rows of Megatron-DeepSpeed on A100, BigScience's search for BLOOM"},
      {.name = "megatron-vtrain",
       .fused_attention = false,
       .eager = true,
       .scatter_sends = true,
       .host_waits = true,
       .compute_share = 0.777,
       .comm_share = 0.904,
       .host_us = 64.4,
       .log_sigma = 0.095,
       .source = "40 rows of Megatron-DeepSpeed on a node of A100, vTrain's validation"},
      {.name = "megatron-vtrain-nodes",
       .fused_attention = false,
       .eager = true,
       .scatter_sends = true,
       .compute_share = 0.814,
       .comm_share = 0.638,
       .log_sigma = 0.11,
       .source = "11 rows of Megatron-DeepSpeed on 64 to 512 A100, vTrain's validation"},
      {.name = "megatron-b200",
       .compute_share = 0.547,
       .host_us = 150,
       .log_sigma = 0.04,
       .source = "2 rows of Llama 3 on B200, SimuMax's measurements"},
      {.name = "llm-foundry-a100",
       .eager = true,
       .attention_share = 0.6,
       .compute_share = 0.93,
       .memory_share = 0.32,
       .log_sigma = 0.063,
       .source = "14 rows of MPT on A100, llm-foundry"},
      {.name = "llm-foundry-h100",
       .eager = true,
       .attention_share = 0.6,
       .compute_share = 0.658,
       .memory_share = 0.561,
       .log_sigma = 0.04,
       .source = "7 rows of MPT on H100, llm-foundry"},
      {.name = "llm-foundry-fp8",
       .eager = true,
       .fp8_matmul = true,
       .attention_share = 0.6,
       .compute_share = 0.658,
       .memory_share = 0.561,
       .source = "those of llm-foundry-h100"},
      {.name = "torchtitan-fp8",
       .fp8_matmul = true,
       .compute_share = 0.565,
       .log_sigma = 0.098,
       .source = "2 rows of Llama 3.1 on H100, torchtitan in fp8"},
      {.name = "torchtitan", .compute_share = 0.565, .source = "those of torchtitan-fp8"},
      {.name = "megatron-bridge",
       .fp8_matmul = true,
       .compute_share = 0.793,
       .memory_share = 0.317,
       .host_us = 73.1,
       .log_sigma = 0.123,
       .source = "9 rows of Llama and others in fp8, Megatron-Bridge and NeMo 2024"},
      {.name = "megatron-bridge-fp4",
       .fp8_matmul = true,
       .compute_share = 0.793,
       .memory_share = 0.317,
       .host_us = 73.1,
       .source = "those of megatron-bridge"},
      {.name = "nemo-2024",
       .fp8_matmul = true,
       .compute_share = 0.516,
       .log_sigma = 0.14,
       .source = "2 rows of NeMo in fp8 on H100, 2024"},
  };
  return table;
}

Stack find_stack(std::string_view name) {
  return find_named(stacks(), name, cat("stack=", name),
                    [](const Stack& s) -> std::string_view { return s.name; });
}

void set_field(Stack& stack, std::string_view field, std::string_view value) {
  fields().set_text(stack, field, value);
}

void check_stack(const Stack& stack) { fields().check(stack); }

std::string to_json(const Stack& stack) { return fields().to_json(stack).dump(2); }

Stack stack_from_json(std::string_view text, std::string_view origin) {
  Stack stack = fields().from_json(text, origin, "meshbench stacks NAME");
  check_stack(stack);
  return stack;
}

}  // namespace mb
