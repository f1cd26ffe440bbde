// The one-line case: key=value words that parse to a struct and print back the same. Every result
// row carries it, and it reruns the row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cli/key.h"
#include "parallel/cost/machine.h"
#include "parallel/cost/stack.h"
#include "parallel/exec/shaped_world.h"
#include "parallel/mesh/mesh.h"
#include "parallel/strategy/strategy.h"
#include "workloads/model/config.h"

namespace mb {

enum class Mode : std::uint8_t {
  threads,
  mpi,
  cuda_threads,
  cuda_mpi,
  nccl_threads,
  nccl_mpi,
  sim
};
// Whether ranks are processes that a launcher has started, and whether they are on GPUs.
// Ranks are processes; communicate by NCCL; are on GPUs.
constexpr bool on_mpi(Mode mode) {
  return mode == Mode::mpi || mode == Mode::cuda_mpi || mode == Mode::nccl_mpi;
}
constexpr bool on_nccl(Mode mode) { return mode == Mode::nccl_threads || mode == Mode::nccl_mpi; }
constexpr bool on_cuda(Mode mode) {
  return mode == Mode::cuda_threads || mode == Mode::cuda_mpi || on_nccl(mode);
}
enum class Verify : std::uint8_t { automatic, on, off };
enum class Profile : std::uint8_t { automatic, cupti, off };

struct Case {
  std::string model_name = "gpt-1m";  // a known name, or @FILE
  ModelConfig model;                  // with the overrides
  std::string machine_name = "h100x8";
  Machine machine;  // of mode=sim
  std::string stack_name = "kernels";
  Stack stack;  // likewise
  Mesh mesh;
  int ranks_per_node = 0;  // not of mode=sim; 0: all ranks on one
  std::vector<int> nodes;  // of each rank; empty: ranks_per_node, mode=sim: the machine's
  Mode mode = Mode::threads;
  StepOptions options;  // micro_batches and loss_scale are derived from the rest
  std::string loss_scale = "auto";
  // Sequences; 0 becomes 2 micro-batches a stage, at least 4, for each data rank.
  std::int64_t global_batch = 0;
  std::string data;  // FILE (bytes) or FILE.bin (token ids); empty: the Markov source
  std::int64_t seed = 1;
  int warm_up = 2, steps = 5;  // recorded steps come after the warm-up
  Verify verify = Verify::automatic;
  bool graph = false;                    // on GPUs: steps run as one CUDA graph each
  bool tf32 = false;                     // on GPUs: what fp32 products may round operands to
  bool fused_attention = true;           // on GPUs: by cuDNN where it has kernels
  std::optional<LinkShape> link;         // of mode=threads; none: as fast as they are
  double offload_gb_per_s = 0;           // of mode=threads; 0: as memory does
  Profile profile = Profile::automatic;  // of modes with GPUs
  double timeout_s = 60;
};

using CaseKey = Key<Case>;
const std::vector<CaseKey>& case_keys();

// A case with the meshes that textbooks use, or a smaller one to begin with: "case=NAME".
struct NamedCase {
  std::string_view name, words, help;
};
const std::vector<NamedCase>& named_cases();

// Words in any order: a named case first, then model=, machine= and stack=, then the rest: what is
// more particular wins. A key twice is refused. Derives what follows from the rest, and calls
// check_case.
Case parse_case(const std::vector<std::string>& words);
// The words alone: nothing derived, no rule asked. Throws Error for a key or a value that no case
// has.
Case read_case(const std::vector<std::string>& words);
// All that differs from the defaults, model and mesh always: parse_case(split(to_text(c))) equals
// c.
std::string to_text(const Case& c);

// Throws Error with the rule that an illegal case breaks, and the nearest legal values.
void check_case(const Case& c);

// The modes as mode= has them.
const std::vector<std::pair<std::string_view, Mode>>& modes();
std::string_view name_of(Mode mode);

}  // namespace mb
