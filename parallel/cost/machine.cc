#include "parallel/cost/machine.h"

#include <algorithm>
#include <initializer_list>

#include "parallel/cost/fields.h"
#include "parallel/cost/protocols.h"

namespace mb {
namespace {

const Fields<Machine>& fields() {
  using M = Machine;
  using enum FieldRange;
  static const Fields<Machine> table(
      "machine.",
      {
          {"ranks_per_node", [](M& m) -> int& { return m.ranks_per_node; }},
          {"fp32_tflops", [](M& m) -> double& { return m.fp32_tflops; }},
          {"fp64_tflops", [](M& m) -> double& { return m.fp64_tflops; }},
          {"bf16_tflops", [](M& m) -> double& { return m.bf16_tflops; }, from_zero},
          {"fp8_tflops", [](M& m) -> double& { return m.fp8_tflops; }, from_zero},
          {"matmul_efficiency", [](M& m) -> double& { return m.matmul_efficiency; }, share},
          {"attention_efficiency", [](M& m) -> double& { return m.attention_efficiency; }, share},
          {"wave_sms", [](M& m) -> int& { return m.wave_sms; }, from_zero},
          {"tile_fill_k", [](M& m) -> double& { return m.tile_fill_k; }, from_zero},
          {"memory_gb_per_s", [](M& m) -> double& { return m.memory_gb_per_s; }},
          {"memory_efficiency", [](M& m) -> double& { return m.memory_efficiency; }, share},
          {"launch_us", [](M& m) -> double& { return m.launch_us; }, from_zero},
          {"gap_us", [](M& m) -> double& { return m.gap_us; }, from_zero},
          {"handoff_us", [](M& m) -> double& { return m.handoff_us; }, from_zero},
          {"memory_gb", [](M& m) -> double& { return m.memory_gb; }},
          {"link_latency_us", [](M& m) -> double& { return m.intra.latency_us; }, from_zero},
          {"link_gb_per_s", [](M& m) -> double& { return m.intra.gb_per_s; }},
          {"nic_latency_us", [](M& m) -> double& { return m.inter.latency_us; }, from_zero},
          {"nic_gb_per_s", [](M& m) -> double& { return m.inter.gb_per_s; }},
          {"host_latency_us", [](M& m) -> double& { return m.host.latency_us; }, from_zero},
          {"host_gb_per_s", [](M& m) -> double& { return m.host.gb_per_s; }},
          {"nics_per_node", [](M& m) -> int& { return m.nics_per_node; }},
          {"nic_efficiency", [](M& m) -> double& { return m.nic_efficiency; }, share},
          {"nodes", [](M& m) -> int& { return m.nodes; }, from_zero},
          {"nodes_per_leaf", [](M& m) -> int& { return m.nodes_per_leaf; }, from_zero},
          {"oversubscription", [](M& m) -> double& { return m.oversubscription; }, from_one},
          {"algorithm", [](M& m) -> std::string& { return m.algorithm; }},
          {"protocol", [](M& m) -> std::string& { return m.protocol; }},
          {"curves", [](M& m) -> std::string& { return m.curves; }},
          {"op_times", [](M& m) -> std::string& { return m.op_times; }},
          {"comm_times", [](M& m) -> std::string& { return m.comm_times; }},
          {"context_gb", [](M& m) -> double& { return m.context_gb; }, from_zero},
          {"library_gb", [](M& m) -> double& { return m.library_gb; }, from_zero},
      });
  return table;
}

}  // namespace

double Machine::peak_tflops(DType dtype) const {
  switch (dtype) {
    case DType::fp64:
      return fp64_tflops;
    case DType::bf16:
    case DType::fp16:
      return bf16_tflops;
    default:
      return fp32_tflops;
  }
}

// Peaks, memory, links and NICs: NVIDIA's and AMD's datasheets, as collected in
// github.com/stas00/ml-engineering at 744d01e (compute/accelerator, network). fp32 is the TF32
// tensor-core peak without sparsity, which training in fp32 uses; V100 has neither TF32 nor bf16,
// and its 16-bit peak is that of fp16.
//
// matmul_efficiency of A100 and H100 is fitted on a fifth of 1,500 measured bf16 matmuls each
// (aiconfigurator at 095f58a). wave_sms: the SMs, up to Ampere and on Ada; Hopper's kernels show no
// waves in these measurements, and those of Blackwell were not measured. Those of B200, B300 and
// their kin in NVL72 are fitted together with stack megatron-bridge on the same rows. Other
// machines have round figures. attention_efficiency: what FlashAttention-2 reaches on A100 (Dao,
// 2023: 0.5 to 0.73), 2 and 3 on H100 (Shah et al., 2024: 0.35 to 0.75); 0.7 on B200 and its kin
// was chosen looking at its published steps. Latencies: NCCL's tuning constants per NVLink hop and
// net hop. nic_efficiency: 92 % of the wire, what InfiniBand carries as data. Host: PCIe, one
// direction, and a round latency. Context and library buffers: 1.3 to 1.6 GB together as nvidia-smi
// shows them (BigScience's chronicles, 2022).
const std::vector<Machine>& machines() {
  static const std::vector<Machine> table = {
      {.name = "cpu",
       .ranks_per_node = 8,
       .fp32_tflops = 0.1,
       .fp64_tflops = 0.05,
       .matmul_efficiency = 0.85,
       .memory_gb_per_s = 20,
       .memory_efficiency = 0.8,
       .launch_us = 1,
       .memory_gb = 16,
       .intra = {5, 5},
       .inter = {30, 1.25},
       .host = {1, 5},
       .nics_per_node = 1},
      {.name = "v100x8",
       .ranks_per_node = 8,
       .fp32_tflops = 15.7,
       .fp64_tflops = 7.8,
       .bf16_tflops = 125,
       .matmul_efficiency = 0.7,
       .attention_efficiency = 0.4,
       .wave_sms = 80,
       .tile_fill_k = 64,
       .memory_gb_per_s = 900,
       .memory_efficiency = 0.85,
       .launch_us = 4.5,
       .memory_gb = 32,
       .intra = {3.4, 150},
       .inter = {14, 12.5},
       .host = {10, 16},
       .nics_per_node = 4,
       .nic_efficiency = 0.92,
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "a100x8",
       .ranks_per_node = 8,
       .fp32_tflops = 156,
       .fp64_tflops = 19.5,
       .bf16_tflops = 312,
       .matmul_efficiency = 0.9,
       .attention_efficiency = 0.55,
       .wave_sms = 108,
       .tile_fill_k = 64,
       .memory_gb_per_s = 2039,
       .memory_efficiency = 0.85,
       .launch_us = 4,
       .memory_gb = 80,
       .intra = {3.4, 300},
       .inter = {14, 25},
       .host = {10, 32},
       .nics_per_node = 8,
       .nic_efficiency = 0.92,
       .curves = "a100_sxm",
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "a100-40x8",
       .ranks_per_node = 8,
       .fp32_tflops = 156,
       .fp64_tflops = 19.5,
       .bf16_tflops = 312,
       .matmul_efficiency = 0.9,
       .attention_efficiency = 0.55,
       .wave_sms = 108,
       .tile_fill_k = 64,
       .memory_gb_per_s = 1555,
       .memory_efficiency = 0.85,
       .launch_us = 4,
       .memory_gb = 40,
       .intra = {3.4, 300},
       .inter = {14, 25},
       .host = {10, 32},
       .nics_per_node = 8,
       .nic_efficiency = 0.92,
       .curves = "a100_sxm",
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "a100-pciex8",
       .ranks_per_node = 8,
       .fp32_tflops = 156,
       .fp64_tflops = 19.5,
       .bf16_tflops = 312,
       .matmul_efficiency = 0.86,
       .attention_efficiency = 0.5,
       .wave_sms = 108,
       .tile_fill_k = 64,
       .memory_gb_per_s = 1935,
       .memory_efficiency = 0.85,
       .launch_us = 4,
       .memory_gb = 80,
       .intra = {5, 24},
       .inter = {14, 12.5},
       .host = {10, 32},
       .nics_per_node = 8,
       .nic_efficiency = 0.92,
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "h100x8",
       .ranks_per_node = 8,
       .fp32_tflops = 494.5,
       .fp64_tflops = 67,
       .bf16_tflops = 989,
       .fp8_tflops = 1979,
       .matmul_efficiency = 0.78,
       .attention_efficiency = 0.5,
       .tile_fill_k = 64,
       .memory_gb_per_s = 3350,
       .memory_efficiency = 0.85,
       .launch_us = 3.2,
       .memory_gb = 80,
       .intra = {3.4, 450},
       .inter = {14, 50},
       .host = {10, 64},
       .nics_per_node = 8,
       .nic_efficiency = 0.92,
       .curves = "h100_sxm",
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "h100-96x8",
       .ranks_per_node = 8,
       .fp32_tflops = 494.5,
       .fp64_tflops = 67,
       .bf16_tflops = 989,
       .fp8_tflops = 1979,
       .matmul_efficiency = 0.7,
       .attention_efficiency = 0.5,
       .tile_fill_k = 64,
       .memory_gb_per_s = 2400,
       .memory_efficiency = 0.85,
       .launch_us = 3.2,
       .memory_gb = 96,
       .intra = {3.4, 450},
       .inter = {14, 50},
       .host = {10, 64},
       .nics_per_node = 8,
       .nic_efficiency = 0.92,
       .curves = "h100_sxm",
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "h100-pciex8",
       .ranks_per_node = 8,
       .fp32_tflops = 378,
       .fp64_tflops = 51,
       .bf16_tflops = 756,
       .fp8_tflops = 1513,
       .matmul_efficiency = 0.75,
       .attention_efficiency = 0.5,
       .tile_fill_k = 64,
       .memory_gb_per_s = 2000,
       .memory_efficiency = 0.85,
       .launch_us = 3.2,
       .memory_gb = 80,
       .intra = {5, 48},
       .inter = {14, 50},
       .host = {10, 64},
       .nics_per_node = 8,
       .nic_efficiency = 0.92,
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "h200x8",
       .ranks_per_node = 8,
       .fp32_tflops = 494.5,
       .fp64_tflops = 67,
       .bf16_tflops = 989,
       .fp8_tflops = 1979,
       .matmul_efficiency = 0.78,
       .attention_efficiency = 0.5,
       .tile_fill_k = 64,
       .memory_gb_per_s = 4800,
       .memory_efficiency = 0.85,
       .launch_us = 3.2,
       .memory_gb = 141,
       .intra = {3.4, 450},
       .inter = {14, 50},
       .host = {10, 64},
       .nics_per_node = 8,
       .nic_efficiency = 0.92,
       .curves = "h200_sxm",
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "gh200",
       .ranks_per_node = 1,
       .fp32_tflops = 494.5,
       .fp64_tflops = 67,
       .bf16_tflops = 989,
       .fp8_tflops = 1979,
       .matmul_efficiency = 0.78,
       .attention_efficiency = 0.5,
       .tile_fill_k = 64,
       .memory_gb_per_s = 4000,
       .memory_efficiency = 0.85,
       .launch_us = 3.2,
       .memory_gb = 96,
       .intra = {3.4, 450},
       .inter = {14, 50},
       .host = {10, 450},
       .nics_per_node = 1,
       .nic_efficiency = 0.92,
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "b200x8",
       .ranks_per_node = 8,
       .fp32_tflops = 1125,
       .fp64_tflops = 37,
       .bf16_tflops = 2250,
       .fp8_tflops = 4500,
       .matmul_efficiency = 0.613,
       .attention_efficiency = 0.7,
       .memory_gb_per_s = 8000,
       .memory_efficiency = 0.85,
       .launch_us = 3.2,
       .memory_gb = 180,
       .intra = {3.4, 900},
       .inter = {14, 50},
       .host = {10, 64},
       .nics_per_node = 8,
       .nic_efficiency = 0.92,
       .curves = "gb200",
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "b300x8",
       .ranks_per_node = 8,
       .fp32_tflops = 1125,
       .fp64_tflops = 1.2,
       .bf16_tflops = 2250,
       .fp8_tflops = 4500,
       .matmul_efficiency = 0.754,
       .attention_efficiency = 0.7,
       .memory_gb_per_s = 8000,
       .memory_efficiency = 0.85,
       .launch_us = 3.2,
       .memory_gb = 288,
       .intra = {3.4, 900},
       .inter = {14, 100},
       .host = {10, 64},
       .nics_per_node = 8,
       .nic_efficiency = 0.92,
       .curves = "gb200",
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "gb200x72",
       .ranks_per_node = 72,
       .fp32_tflops = 1250,
       .fp64_tflops = 40,
       .bf16_tflops = 2500,
       .fp8_tflops = 5000,
       .matmul_efficiency = 0.613,
       .attention_efficiency = 0.7,
       .memory_gb_per_s = 8000,
       .memory_efficiency = 0.85,
       .launch_us = 3.2,
       .memory_gb = 186,
       .intra = {3.4, 900},
       .inter = {14, 50},
       .host = {10, 450},
       .nics_per_node = 72,
       .nic_efficiency = 0.92,
       .curves = "gb200",
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "gb300x72",
       .ranks_per_node = 72,
       .fp32_tflops = 1250,
       .fp64_tflops = 1.3,
       .bf16_tflops = 2500,
       .fp8_tflops = 5000,
       .matmul_efficiency = 0.754,
       .attention_efficiency = 0.7,
       .memory_gb_per_s = 8000,
       .memory_efficiency = 0.85,
       .launch_us = 3.2,
       .memory_gb = 288,
       .intra = {3.4, 900},
       .inter = {14, 100},
       .host = {10, 450},
       .nics_per_node = 72,
       .nic_efficiency = 0.92,
       .curves = "gb200",
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "l40sx8",
       .ranks_per_node = 8,
       .fp32_tflops = 183,
       .fp64_tflops = 1.4,
       .bf16_tflops = 362,
       .fp8_tflops = 733,
       .matmul_efficiency = 0.6,
       .attention_efficiency = 0.5,
       .wave_sms = 142,
       .tile_fill_k = 64,
       .memory_gb_per_s = 864,
       .memory_efficiency = 0.85,
       .launch_us = 4,
       .memory_gb = 48,
       .intra = {5, 25},
       .inter = {14, 25},
       .host = {10, 32},
       .nics_per_node = 4,
       .nic_efficiency = 0.92,
       .curves = "l40s",
       .context_gb = 0.5,
       .library_gb = 0.6},
      {.name = "mi300x8",
       .ranks_per_node = 8,
       .fp32_tflops = 653.7,
       .fp64_tflops = 163.4,
       .bf16_tflops = 1307.4,
       .fp8_tflops = 2610,
       .matmul_efficiency = 0.5,
       .attention_efficiency = 0.4,
       .memory_gb_per_s = 5300,
       .memory_efficiency = 0.8,
       .launch_us = 5,
       .memory_gb = 192,
       .intra = {5, 448},
       .inter = {14, 50},
       .host = {10, 64},
       .nics_per_node = 8,
       .nic_efficiency = 0.92,
       .context_gb = 0.5,
       .library_gb = 0.6},
  };
  return table;
}

Machine find_machine(std::string_view name) {
  return find_named(machines(), name, cat("machine=", name),
                    [](const Machine& m) -> std::string_view { return m.name; });
}

void set_field(Machine& machine, std::string_view field, std::string_view value) {
  fields().set_text(machine, field, value);
  // Measured times are of the links and the device that the machine had.
  const auto is_one_of = [&](std::initializer_list<std::string_view> ends) {
    return std::any_of(ends.begin(), ends.end(),
                       [&](std::string_view end) { return field.ends_with(end); });
  };
  const bool links = is_one_of({"link_gb_per_s", "link_latency_us"}),
             nics = is_one_of({"nic_gb_per_s", "nic_latency_us", "nics_per_node", "nic_efficiency",
                               "oversubscription"});
  if (links || (machine.curves == "measured" && nics)) machine.curves = "none";
  if (links || nics) machine.comm_times = "none";
  if (is_one_of({"_tflops", "matmul_efficiency", "attention_efficiency", "wave_sms", "tile_fill_k",
                 "memory_gb_per_s", "memory_efficiency", "launch_us"}))
    machine.op_times = "none";
}

void check_machine(const Machine& machine) {
  fields().check(machine);
  if (machine.curves == "measured") {
    require(!machine.measured.curves.empty(),
            "machine.curves=measured: this machine has no measured_curves; give a file that "
            "'meshbench fit' wrote, or the name of a set");
  } else if (machine.curves != "none") {
    find_curves(machine.curves);
  }
  const auto check_times = [](const std::string& value, std::string_view key, bool there) {
    require(value == "none" || value == "measured", "machine.", key, "_times=", value,
            ": give measured or none");
    require(value == "none" || there, "machine.", key,
            "_times=measured: this machine has no measured_", key == "op" ? "ops" : key,
            "; give a file that 'meshbench fit' wrote");
  };
  check_times(machine.op_times, "op", !machine.measured.ops.empty());
  check_times(machine.comm_times, "comm", !machine.measured.comm.empty());
  require(is_algorithm(machine.algorithm), "machine.algorithm=", machine.algorithm,
          ": give auto, ring or tree");
  require(is_protocol(machine.protocol), "machine.protocol=", machine.protocol,
          ": give auto, ll, ll128 or simple");
}

std::string to_json(const Machine& machine) {
  auto json = fields().to_json(machine);
  add_measured(json, machine.measured);
  return json.dump(2);
}

Machine machine_from_json(std::string_view text, std::string_view origin) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return fields().from_json(text, origin, "meshbench machines NAME");
  Measurements measured = take_measured(json, origin);
  Machine machine = fields().from_json(json.dump(), origin, "meshbench machines NAME");
  machine.measured = std::move(measured);
  check_machine(machine);
  return machine;
}

}  // namespace mb
