// Machines as data: what virtual time knows of a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/base/dtype.h"

namespace mb {

struct Link {
  double latency_us = 0;
  double gb_per_s = 0;  // one direction, per device; 1e9 bytes
  bool operator==(const Link&) const = default;
};

struct Machine {
  std::string name;
  int ranks_per_node = 8;
  double fp32_tflops = 0, fp64_tflops = 0, bf16_tflops = 0;  // dense datasheet peaks of one device
  double matmul_efficiency = 0.77;                           // reached share of the peak
  double memory_gb_per_s = 0;
  double memory_efficiency = 0.95;
  double launch_us = 0;  // added to every operation
  double memory_gb = 0;  // capacity of one device, 1e9 bytes
  Link intra, inter;     // within a node, between nodes
  Link host;             // to the second memory space, where offload keeps things
  bool operator==(const Machine&) const = default;

  double peak_tflops(DType dtype) const;
};

const std::vector<Machine>& machines();
Machine find_machine(std::string_view name);  // throws Error naming the nearest known name
// Sets a field from text, as in "machine.nic_gb_per_s=50" (inter.gb_per_s). Throws Error naming
// field, value and what would do.
void set_field(Machine& machine, std::string_view field, std::string_view value);
// Throws Error naming the field that is missing or impossible.
void check_machine(const Machine& machine);
std::string to_json(const Machine& machine);
Machine machine_from_json(std::string_view text, std::string_view origin);

}  // namespace mb
