// How long communication took and how fast it was, by axis, kind, site and size.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/plan/plan.h"
#include "parallel/timeline/timeline.h"

namespace mb {

struct CollectiveProfile {
  std::string axis, kind;  // kind is a collective's name, or "send_recv"
  std::string site;        // without its number: "bucket 3" is "bucket"
  int group_size = 1;
  std::int64_t bytes = 0;  // of one operation, as nccl-tests counts the size of each kind
  std::int64_t count = 0;  // operations over all ranks and steps
  double wait_s = 0, wait_max_s = 0;  // median and largest over participants but the last arrival
  double transfer_s = 0;              // median of the last arrival's time
  std::optional<double> factor;       // busbw / algbw; nullopt for a group of one
  std::optional<double> algbw_bytes_per_s, busbw_bytes_per_s;  // nullopt where transfer_s is 0
};

// Size over median transfer time, so that waiting for the last participant is not taken for a slow
// link. Ordered by axis (CommAxes), kind, site and size.
std::vector<CollectiveProfile> profile_collectives(const Plan& plan,
                                                   std::span<const Timeline> steps,
                                                   std::int64_t clock_uncertainty_ns = 0);

// "bucket 3" -> "bucket", "layers.3.mlp" -> "layers.*.mlp".
std::string site_family(std::string_view site);

}  // namespace mb
