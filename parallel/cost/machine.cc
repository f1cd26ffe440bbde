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
