// When each instruction of a step ran: one Span an instruction, by instruction id. The same for
// every executor, so that one analysis serves them all.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace mb {

struct Plan;

// Half-open [start, end) in integer nanoseconds of a clock that all ranks share. `start` is when
// the instruction was the next of its stream and all that it waits for in its own rank had ended:
// for a collective or a receive, the arrival.
struct Span {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  bool operator==(const Span&) const = default;
};

struct Timeline {
  // One lane of spans a rank; ranks that virtual time cannot tell apart share one.
  std::vector<std::vector<Span>> lanes;
  std::vector<int> lane_of_rank;

  const std::vector<Span>& of(int rank) const { return lanes[lane_of_rank[rank]]; }
  // Earliest start to latest end over all ranks.
  Span window() const;
  bool operator==(const Timeline&) const = default;
};

// One lane a rank, all spans zero, sized for the plan's programs.
Timeline empty_timeline(const Plan& plan);

// Text, one span a line after a header: "lane instruction start_ns end_ns". load throws Error
// naming the line that cannot be read, or where the file is cut off.
void save(const Timeline& timeline, std::ostream& out);
void save(const Timeline& timeline, const std::string& path);
Timeline load_timeline(const std::string& path);

}  // namespace mb
