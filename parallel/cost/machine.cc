#include "parallel/cost/machine.h"

#include <nlohmann/json.hpp>
#include <variant>

#include "workloads/base/error.h"
#include "workloads/base/suggest.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

// One row of the table of fields, for text, JSON and checks alike.
struct Field {
  std::string_view name;
  std::variant<int Machine::*, double Machine::*, double Link::*> member;
  Link Machine::*link = nullptr;  // of a Link member
  bool may_be_zero = false;
};

const std::vector<Field>& fields() {
  static const std::vector<Field> table = {
      {"ranks_per_node", &Machine::ranks_per_node},
      {"fp32_tflops", &Machine::fp32_tflops},
      {"fp64_tflops", &Machine::fp64_tflops},
      {"bf16_tflops", &Machine::bf16_tflops, nullptr, true},
      {"matmul_efficiency", &Machine::matmul_efficiency},
      {"memory_gb_per_s", &Machine::memory_gb_per_s},
      {"memory_efficiency", &Machine::memory_efficiency},
      {"launch_us", &Machine::launch_us, nullptr, true},
      {"memory_gb", &Machine::memory_gb},
      {"link_latency_us", &Link::latency_us, &Machine::intra, true},
      {"link_gb_per_s", &Link::gb_per_s, &Machine::intra},
      {"nic_latency_us", &Link::latency_us, &Machine::inter, true},
      {"nic_gb_per_s", &Link::gb_per_s, &Machine::inter},
      {"host_latency_us", &Link::latency_us, &Machine::host, true},
      {"host_gb_per_s", &Link::gb_per_s, &Machine::host},
  };
  return table;
}

const Field& find_field(std::string_view name) {
  return find_named(fields(), name, cat("machine.", name), [](const Field& f) { return f.name; });
}

double get(const Machine& machine, const Field& field) {
  if (const auto* whole = std::get_if<int Machine::*>(&field.member)) return machine.*(*whole);
  if (const auto* number = std::get_if<double Machine::*>(&field.member)) return machine.*(*number);
  return machine.*(field.link).*(std::get<double Link::*>(field.member));
}

void set(Machine& machine, const Field& field, double value, std::string_view shown) {
  const auto* whole = std::get_if<int Machine::*>(&field.member);
  require(value > 0 || (field.may_be_zero && value == 0), "machine.", field.name, "=", shown,
          ": give a number ", field.may_be_zero ? "of at least 0" : "above 0");
  require(!whole || (value == static_cast<int>(value)), "machine.", field.name, "=", shown,
          ": give a whole number");
  const bool share = field.name.ends_with("_efficiency");
  require(!share || value <= 1, "machine.", field.name, "=", shown,
          ": a share of the peak is at most 1");
  if (whole) {
    machine.*(*whole) = static_cast<int>(value);
  } else if (const auto* number = std::get_if<double Machine::*>(&field.member)) {
    machine.*(*number) = value;
  } else {
    machine.*(field.link).*(std::get<double Link::*>(field.member)) = value;
  }
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

// Peaks, memory and links: NVIDIA's datasheets of A100 (2021), H100 and H200 (2023/24) SXM, B200
// (2024), as collected in github.com/stas00/ml-engineering. fp32 is the TF32 tensor-core peak
// without sparsity, which training in fp32 uses. Launch and efficiency are round figures, not fits.
// Latencies: NCCL 2.x tuning constants per NVLink hop and net hop. Host: PCIe 4 and 5 x16, one
// direction, and a round latency.
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
       .host = {1, 5}},
      {.name = "a100x8",
       .ranks_per_node = 8,
       .fp32_tflops = 156,
       .fp64_tflops = 19.5,
       .bf16_tflops = 312,
       .matmul_efficiency = 0.84,
       .memory_gb_per_s = 2039,
       .launch_us = 4,
       .memory_gb = 80,
       .intra = {3.4, 300},
       .inter = {14, 25},
       .host = {10, 32}},
      {.name = "h100x8",
       .ranks_per_node = 8,
       .fp32_tflops = 494.5,
       .fp64_tflops = 67,
       .bf16_tflops = 989,
       .memory_gb_per_s = 3350,
       .launch_us = 3.2,
       .memory_gb = 80,
       .intra = {3.4, 450},
       .inter = {14, 50},
       .host = {10, 64}},
      {.name = "h200x8",
       .ranks_per_node = 8,
       .fp32_tflops = 494.5,
       .fp64_tflops = 67,
       .bf16_tflops = 989,
       .memory_gb_per_s = 4800,
       .launch_us = 3.2,
       .memory_gb = 141,
       .intra = {3.4, 450},
       .inter = {14, 50},
       .host = {10, 64}},
      {.name = "b200x8",
       .ranks_per_node = 8,
       .fp32_tflops = 1125,
       .fp64_tflops = 37,
       .bf16_tflops = 2250,
       .memory_gb_per_s = 8000,
       .launch_us = 3.2,
       .memory_gb = 180,
       .intra = {3.4, 900},
       .inter = {14, 50},
       .host = {10, 64}},
  };
  return table;
}

Machine find_machine(std::string_view name) {
  return find_named(machines(), name, cat("machine=", name),
                    [](const Machine& m) -> std::string_view { return m.name; });
}

void set_field(Machine& machine, std::string_view field, std::string_view value) {
  constexpr std::string_view kPrefix = "machine.";
  if (field.starts_with(kPrefix)) field.remove_prefix(kPrefix.size());
  const Field& known = find_field(field);
  set(machine, known, parse_number(value, cat(kPrefix, field)), value);
}

void check_machine(const Machine& machine) {
  Machine copy = machine;
  for (const Field& field : fields())
    set(copy, field, get(machine, field), cat(get(machine, field)));
}

std::string to_json(const Machine& machine) {
  nlohmann::ordered_json json;
  json["name"] = machine.name;
  for (const Field& field : fields()) {
    const double value = get(machine, field);
    if (std::holds_alternative<int Machine::*>(field.member)) {
      json[std::string(field.name)] = static_cast<int>(value);
    } else {
      json[std::string(field.name)] = value;
    }
  }
  return json.dump(2);
}

Machine machine_from_json(std::string_view text, std::string_view origin) {
  Machine machine;
  try {
    const auto json = nlohmann::json::parse(text);
    require(json.is_object(), origin,
            ": a machine is one JSON object, as 'meshbench machines NAME' prints it");
    for (const auto& [key, value] : json.items()) {
      if (key == "name") {
        require(value.is_string(), origin, ": name has to be a string");
        machine.name = value;
        continue;
      }
      const Field& field = find_field(key);
      require(value.is_number(), origin, ": machine.", key, " has to be a number, not ",
              value.dump());
      set(machine, field, value, value.dump());
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(cat(origin, ": ", error.what()));
  }
  require(!machine.name.empty(), origin, ": the machine has no name");
  check_machine(machine);
  return machine;
}

}  // namespace mb
