// Machines as data: what virtual time knows of a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/cost/measured.h"
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
  double fp32_tflops = 0, fp64_tflops = 0, bf16_tflops = 0,
         fp8_tflops = 0;              // dense datasheet peaks of one device
  double matmul_efficiency = 0.77;    // reached share of the peak
  double attention_efficiency = 0.5;  // the same of fused attention
  // Matmuls' tiles (tiles.h): the SMs that take them in whole waves, 0 where none do, and the k
  // that starting and ending a tile takes the time of.
  int wave_sms = 0;
  double tile_fill_k = 0;
  double memory_gb_per_s = 0;
  double memory_efficiency = 0.95;
  double launch_us = 0;  // added to every operation
  // From the end of an instruction to the start of the next on its stream, and of one on another
  // stream that waits for it.
  double gap_us = 0, handoff_us = 0;
  double memory_gb = 0;  // capacity of one device, 1e9 bytes
  Link intra, inter;     // of a device within its node, of a NIC between nodes
  Link host;             // to the second memory space, where offload keeps things
  int nics_per_node = 8;
  double nic_efficiency = 1;    // reached share of a NIC's rate
  int nodes = 0;                // that there are; 0: as many as a mesh asks for
  int nodes_per_leaf = 0;       // that share a leaf switch; 0: all
  double oversubscription = 1;  // of what leaves a leaf: rates of ports below over those above
  // Between nodes, as NCCL_ALGO and NCCL_PROTO would have it: "ring" or "tree", and "ll", "ll128"
  // or "simple"; "auto": what is fastest, which is what NCCL chooses by.
  std::string algorithm = "auto", protocol = "auto";
  // Measured times of collectives: a set of curves.h, within a node; "measured": those below.
  std::string curves = "none";
  std::string op_times = "none";    // of operations: "measured", those below, in the model's place
  std::string comm_times = "none";  // of collectives and messages: the same, as steps had them
  double context_gb = 0;            // of memory that the driver and its context take
  double library_gb = 0;            // buffers of collectives and workspaces of matmuls
  Measurements measured;            // what `meshbench fit` found
  bool operator==(const Machine&) const = default;

  double peak_tflops(DType dtype) const;
};

const std::vector<Machine>& machines();       // machine_table.cc, which says where they are from
Machine find_machine(std::string_view name);  // throws Error naming the nearest known name
// Sets a field from text, as in "machine.nic_gb_per_s=50" (inter.gb_per_s). Throws Error naming
// field, value and what would do.
void set_field(Machine& machine, std::string_view field, std::string_view value);
// Throws Error naming the field that is missing or impossible.
void check_machine(const Machine& machine);
std::string to_json(const Machine& machine);
Machine machine_from_json(std::string_view text, std::string_view origin);

}  // namespace mb
