// What the times of a point mean: distributions, bandwidths, what is to be expected of them, and
// who is to blame.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/coll/config.h"
#include "bench/coll/cores.h"
#include "bench/coll/result.h"
#include "bench/coll/verdict.h"
#include "parallel/cost/machine.h"
#include "parallel/cost/wire.h"

namespace mb {

// What expectations are drawn from.
struct Surroundings {
  std::string mode = "threads";
  std::optional<Machine> machine;  // of mode=sim, or to compare with
  // Of mode=threads: what memory reads and writes, with as many threads as there are ranks, up to
  // the cores.
  std::optional<double> memory_bytes_per_s;
  CoreShare cores;       // of rank 0's machine; none in virtual time
  std::string no_speed;  // why times mean nothing and are left out; empty where they are shown
};

struct Expected {
  LinkClass link = LinkClass::none;
  std::optional<Wire> wire;             // none for a barrier
  std::optional<double> busbw_ceiling;  // bytes per second
  std::string ceiling_by;               // what it is of, or why there is none
  std::optional<double> fraction;       // of the ceiling that busbw reaches
  std::optional<double> seconds;        // by the machine's latencies and bandwidths
};

// T(operation), T(computation) and both at once, medians.
struct OverlapSummary {
  double operation_ns = 0, compute_ns = 0, both_ns = 0;
  // (operation + compute - both) / the shorter one; none where a unit of computation alone takes
  // more than twice as long as the operation, which then has nothing to hide behind.
  std::optional<double> efficiency;
  double operation_slow_down = 0, compute_slow_down = 0;
};

struct GroupSummary {
  Distribution completion;  // ns, of one way where the operation goes forth and back
  Distribution skew;        // ns, of arrivals
  double mean_duration_ns = 0;
  std::optional<Distribution> submit;  // ns, of every member: until its call=stream returns
  std::vector<MemberTimes> members;
  std::int64_t bytes = 0;                      // real size
  std::optional<double> factor, algbw, busbw;  // bytes per second
  Expected expected;
  Verdict verdict;  // within the group; slow_group where it is the one among groups
  bool drifts = false;
  std::optional<double> alone_ns;  // of `beside`: median without it
  std::optional<OverlapSummary> overlap;
  // Of all members, to an operation; preemptions are switches that nobody asked for.
  double minor_faults = 0, switches = 0, preemptions = 0;
};

struct PointSummary {
  std::vector<GroupSummary> groups;
  std::string no_speed;  // of the Surroundings
  Verdict among;         // groups
};

PointSummary summarize(const CollConfig& config, const PointResult& result,
                       const Surroundings& surroundings);
// What a result would be on `machine`, by the cost model: one operation.
PointResult predict(const CollConfig& config, const Point& point, const Machine& machine);

// The group that took longest.
const GroupSummary& slowest(const PointSummary& summary);

// 1, or one half where an operation goes forth and back.
double share_of_time(Operation operation);
// "late rank 3 by 2 ms"; "" for none.
std::string to_text(const Verdict& verdict, const std::vector<int>& ranks);

}  // namespace mb
