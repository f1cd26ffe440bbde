#include <algorithm>

#include "bench/doctor/affinity.h"
#include "bench/doctor/checks.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

struct Node {
  const NodeFacts& files;
  const GpuLibraryFacts& libraries;
  const BuiltWith& built;
  const Asked& asked;

  // What keeps a mode with GPUs from running: a failure if such a mode was asked for.
  Check missing(std::string name, std::string value, std::string advice) const {
    return {std::move(name), std::move(value), asked.gpus ? Verdict::would_fail : Verdict::note,
            std::move(advice)};
  }
};

Check build(const Node& node) {
  const BuiltWith& built = node.built;
  if (!built.cuda)
    return node.missing("build", "without CUDA",
                        "build with a CUDA toolkit: cmake --preset cuda && cmake --build --preset "
                        "cuda");
  std::string value = cat("with CUDA ", cuda_text(*built.cuda), ", for");
  for (int architecture : built.architectures) value += cat(" sm_", architecture);
  return {"build", value};
}

Check driver(const Node& node) {
  const NodeFacts& files = node.files;
  if (!files.driver && files.gpus.empty())
    return node.missing("GPUs", "none",
                        "modes without GPUs run; for the others use a node with "
                        "GPUs of NVIDIA");
  if (!files.driver && !node.libraries.driver_library)
    return node.missing("driver", cat("none, for ", files.gpus.size(), " GPUs on the PCI bus"),
                        "install NVIDIA's driver, or give them to the container (--gpus all)");
  if (!node.libraries.driver_library)
    return node.missing("driver", cat(*files.driver, ", but no libcuda.so.1"),
                        "install the driver's libraries, or let the container have them "
                        "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)");
  if (node.libraries.failure)
    return node.missing("driver",
                        cat(files.driver.value_or("loaded"), ": ", *node.libraries.failure),
                        "kernel module and libcuda may be of two versions (reload the module or "
                        "reboot), or no device is visible (CUDA_VISIBLE_DEVICES)");
  return {"driver", cat(files.driver.value_or("version not told"), ", runs CUDA up to ",
                        node.libraries.cuda ? cuda_text(*node.libraries.cuda) : "?")};
}

// A driver runs what was built with its own major version or an earlier one; within a major one
// also what is newer than it, without the newest functions (CUDA's minor version compatibility).
std::vector<Check> runtime(const Node& node) {
  const std::optional<int> built = node.built.cuda, runs = node.libraries.cuda;
  if (!built || !runs || node.libraries.gpus.empty()) return {};
  const std::string value = cat(cuda_text(*built), ", the driver's is ", cuda_text(*runs));
  if (*built / 1000 > *runs / 1000)
    return {node.missing("CUDA runtime", value,
                         cat("install a driver for CUDA ", *built / 1000,
                             ", or build with a toolkit of CUDA ", *runs / 1000))};
  if (*built > *runs)
    return {{"CUDA runtime", value, Verdict::note,
             "runs by minor version compatibility, which cannot compile PTX; a newer driver is "
             "better"}};
  return {{"CUDA runtime", value}};
}

std::string clocks_text(const GpuFacts& gpu) {
  std::string text;
  if (gpu.clock_mhz && gpu.max_clock_mhz)
    text += cat(", ", *gpu.clock_mhz, " of ", *gpu.max_clock_mhz, " MHz");
  if (gpu.max_memory_clock_mhz) text += cat(", memory ", *gpu.max_memory_clock_mhz, " MHz");
  return text;
}

// Machine code of an architecture runs on devices of its major version and an equal or later minor
// one; PTX of it is compiled for later ones as a program starts.
Check device(const Node& node, std::size_t index) {
  const GpuFacts& gpu = node.libraries.gpus[index];
  const std::string name = cat("GPU ", index);
  const std::string value =
      cat(gpu.name, " ", gpu.address, ", ", format_bytes(static_cast<double>(gpu.free_bytes)),
          " free of ", format_bytes(static_cast<double>(gpu.memory_bytes)), ", sm_", gpu.major,
          gpu.minor, clocks_text(gpu), gpu.ecc ? *gpu.ecc ? ", ECC on" : ", ECC off" : "",
          gpu.persistence ? *gpu.persistence ? ", persistent" : ", not persistent" : "");
  const std::vector<int>& built = node.built.architectures;
  const int own = gpu.major * 10 + gpu.minor;
  const auto runs = [&](int a) { return a / 10 == gpu.major && a <= own; };
  if (!built.empty() && *std::min_element(built.begin(), built.end()) > own)
    return node.missing(name, value,
                        cat("the build has no code for it; configure with "
                            "-DCMAKE_CUDA_ARCHITECTURES=",
                            own));
  if (!built.empty() && std::none_of(built.begin(), built.end(), runs))
    return {name, value, Verdict::note,
            cat("its code is compiled as each program starts; configure with "
                "-DCMAKE_CUDA_ARCHITECTURES=",
                own)};
  if (gpu.free_bytes < gpu.memory_bytes / 10 * 9)
    return {name, value, Verdict::note, "another process holds its memory; see nvidia-smi"};
  if (gpu.persistence && !*gpu.persistence)
    return {name, value, Verdict::note,
            "each start wakes the driver, for seconds; nvidia-smi -pm 1, or run "
            "nvidia-persistenced"};
  return {name, value};
}

Check peers(const Node& node) {
  const std::vector<GpuFacts>& gpus = node.libraries.gpus;
  int links = 0;
  std::string without;
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    links += gpus[a].links.value_or(0);
    for (std::size_t b = 0; b < gpus[a].peers.size(); ++b)
      if (!gpus[a].peers[b]) without += cat(without.empty() ? "" : ", ", a, "-", b);
  }
  const std::string by = links > 0 ? cat(", NVLinks up: ", links) : ", no NVLink up";
  if (without.empty()) return {"peer access", "all pairs" + by};
  return {"peer access", cat("not ", without, by), Verdict::note,
          "NCCL copies these through host memory; look at nvidia-smi topo -p2p r, and turn off "
          "PCI access control (ACS) or the IOMMU where the machine is yours"};
}

std::vector<Check> nccl(const Node& node) {
  const auto &header = node.built.nccl, &library = node.libraries.nccl;
  const auto fails = [&](std::string value, std::string advice) {
    return std::vector<Check>{{"NCCL", std::move(value),
                               node.asked.nccl ? Verdict::would_fail : Verdict::note,
                               std::move(advice)}};
  };
  const std::string value = cat("header ", header ? nccl_text(*header) : "none", ", library ",
                                library ? nccl_text(*library) : "none");
  if (!header)
    return fails(value, "build where nccl.h is found (libnccl-dev); mode=cuda+threads needs none");
  if (!library)
    return fails(value,
                 "install libnccl2, or name its folder in LD_LIBRARY_PATH; "
                 "mode=cuda+threads needs none");
  if (*library < *header)
    return fails(value,
                 "the library is older than what the build calls; install one as new, or "
                 "build with its header");
  return {{"NCCL", value}};
}

Check profiling(const Node& node) {
  if (!node.files.profiling_admin_only)
    return {"CUPTI", "the driver does not say who may profile", Verdict::note,
            "if CUPTI refuses (insufficient privileges), device events give the timeline"};
  if (*node.files.profiling_admin_only)
    return {"CUPTI", "hardware counters for administrators only", Verdict::note,
            "activity records may be refused too, and then device events give the timeline; load "
            "the driver with NVreg_RestrictProfilingToAdminUsers=0"};
  return {"CUPTI", "every user may profile"};
}

Check direct(const Node& node) {
  if (node.files.cards.empty()) return {"GPUDirect RDMA", "no RDMA card"};
  if (node.files.peer_memory) return {"GPUDirect RDMA", "nvidia_peermem is loaded"};
  return {"GPUDirect RDMA", "nvidia_peermem is not loaded", Verdict::note,
          "unless kernel and cards export memory by dma-buf, messages pass through host memory; "
          "modprobe nvidia_peermem"};
}

// Where a rank should run that has the GPU of its number.
std::vector<Check> placement(const Node& node) {
  std::vector<PciDevice> gpus;
  for (const GpuFacts& gpu : node.libraries.gpus) {
    const auto found =
        std::find_if(node.files.gpus.begin(), node.files.gpus.end(),
                     [&](const PciDevice& pci) { return pci.address == gpu.address; });
    gpus.push_back(found == node.files.gpus.end() ? PciDevice{.address = gpu.address} : *found);
  }
  std::vector<Check> checks;
  const std::vector<Affinity> all = affinities(gpus, node.files.cards);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Affinity& a = all[i];
    Check check{cat("local rank ", i),
                cat("GPU ", i, ", NUMA node ", a.numa_node ? cat(*a.numa_node) : "not told",
                    ", cores ", a.cores.value_or("not told"),
                    a.card ? cat(", ", *a.card, " (", name_of(a.distance), ")") : "")};
    if (a.card && a.distance == Distance::system) {
      check.verdict = Verdict::note;
      check.advice = "every message crosses between processors; put a card at this GPU's node";
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

}  // namespace

std::string cuda_text(int version) { return cat(version / 1000, '.', version % 1000 / 10); }

std::string nccl_text(int code) {
  const int thousands = code < 10000 ? 1000 : 10000;  // before 2.9 a digit less
  return cat(code / thousands, '.', code % thousands / 100, '.', code % 100);
}

std::vector<Check> gpu_checks(const NodeFacts& files, const GpuLibraryFacts& libraries,
                              const BuiltWith& built, const Asked& asked) {
  const Node node{files, libraries, built, asked};
  std::vector<Check> checks = {build(node), driver(node)};
  const auto add = [&](const std::vector<Check>& more) {
    checks.insert(checks.end(), more.begin(), more.end());
  };
  add(runtime(node));
  for (std::size_t i = 0; i < libraries.gpus.size(); ++i) checks.push_back(device(node, i));
  if (libraries.gpus.size() > 1) checks.push_back(peers(node));
  if (asked.nccl || !libraries.gpus.empty()) add(nccl(node));
  if (!libraries.gpus.empty()) {
    checks.push_back(profiling(node));
    checks.push_back(direct(node));
    add(placement(node));
  }
  return checks;
}

}  // namespace mb
