// How long communication took and how fast it was, by axis, kind, site and size.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/analysis/link_fit.h"
#include "parallel/cost/wire.h"
#include "parallel/exec/shaped_world.h"
#include "parallel/plan/plan.h"
#include "parallel/timeline/timeline.h"

namespace mb {

// A kind of Collective, or this: messages.
inline constexpr int kSendRecv = kCollectiveKinds;

// What carries the communication of a run.
struct LinkModel {
  std::optional<Algorithm> algorithm = Algorithm::own;  // none: the library chooses
  std::optional<LinkShape> links;  // a machine's, or those that threads are held to
  std::string source;              // of them, where it is not the case itself
  // Why there are none.
  std::string reason = "links are as fast as memory, whose rate a run does not measure";
  // busbw that large operations of a kind reached on these groups before the run.
  using Use = std::pair<int, Group>;
  std::map<Use, double> measured;
  std::string no_measured;  // why there are none, where a run measures them
};

struct CollectiveProfile {
  std::string axis, kind;  // kind is a collective's name, or "send_recv"
  std::string site;        // without its number: "bucket 3" is "bucket"
  int group_size = 1;
  std::int64_t bytes = 0;  // of one operation, as nccl-tests counts the size of each kind
  std::int64_t count = 0;  // operations over all ranks and steps
  double wait_s = 0, wait_max_s = 0;  // median and largest over participants but the last arrival
  double transfer_s = 0;              // median of the last arrival's time
  std::optional<double> factor;       // busbw / algbw; nullopt for a group of one
  std::optional<double> algbw_bytes_per_s, busbw_bytes_per_s;
  std::string no_rate = "the transfer took no time";  // why they are not there
  LinkClass link = LinkClass::none;    // of the axis' group, or pair of ranks, that is spread most
  std::optional<Algorithm> algorithm;  // of a collective
  std::optional<double> ceiling_bytes_per_s;   // of busbw over such links
  std::string no_ceiling;                      // why there is none
  std::optional<double> measured_bytes_per_s;  // busbw of a large one before the run
  // Of alpha-beta by rings: latencies that follow each other, and bytes that pass a link.
  double steps = 0, link_bytes = 0;
  std::optional<double> ceiling_fraction() const;   // busbw / ceiling
  std::optional<double> measured_fraction() const;  // busbw / that of a large one
};

// Latency and bandwidth of a class of links by the median transfers over it, each kind, site and
// size once.
struct LinkClassFit {
  LinkClass link = LinkClass::none;
  LinkFit fit;
};
std::vector<LinkClassFit> fit_links(std::span<const CollectiveProfile> profiles);

// Size over median transfer time, so that waiting for the last participant is not taken for a slow
// link. Ordered by axis (CommAxes), kind, site and size.
std::vector<CollectiveProfile> profile_collectives(const Plan& plan,
                                                   std::span<const Timeline> steps,
                                                   std::int64_t clock_uncertainty_ns = 0,
                                                   const LinkModel& model = {});

// "bucket 3" -> "bucket", "layers.3.mlp" -> "layers.*.mlp".
std::string site_family(std::string_view site);

}  // namespace mb
