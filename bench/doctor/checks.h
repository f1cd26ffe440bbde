// What is right and wrong with a node, as a line for each thing that was looked at.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/doctor/gpus.h"
#include "bench/doctor/node.h"

namespace mb {

enum class Verdict : std::uint8_t { ok, note, would_fail };
std::string_view name_of(Verdict verdict);  // "ok", "note", "would fail"

struct Check {
  std::string name, value;
  Verdict verdict = Verdict::ok;
  std::string advice;  // what to do; empty where all is well
};

// What this program was built with.
struct BuiltWith {
  std::string mpis;                // "openmpi mpich"
  std::optional<int> cuda;         // toolkit, 1000 major + 10 minor
  std::vector<int> architectures;  // 80 of sm_80, by number
  std::optional<int> nccl;         // version code of the header; none: without NCCL
};

// What the node is asked to be good for. What nobody asked for cannot fail, only be noted.
struct Asked {
  bool mpi = false, gpus = false, nccl = false;
};
std::vector<Check> diagnose(const NodeFacts& node, const GpuLibraryFacts& libraries,
                            const BuiltWith& built, const Asked& asked);
// Those of GPUs; diagnose() has them.
std::vector<Check> gpu_checks(const NodeFacts& node, const GpuLibraryFacts& libraries,
                              const BuiltWith& built, const Asked& asked);

// "13.0" of 13000.
std::string cuda_text(int version);
// "2.28.9" of 22809, "2.8.3" of 2803.
std::string nccl_text(int code);

}  // namespace mb
