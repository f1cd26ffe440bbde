// Who holds a group up: a rank that comes late, a rank or link that is slow, or nobody.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/coll/samples.h"

namespace mb {

enum class Fault : std::uint8_t { none, late_rank, slow_rank, slow_link, slow_group };
std::string_view name_of(Fault fault);

struct Verdict {
  Fault fault = Fault::none;
  std::vector<int> who;  // members of the group: one, or the two ends of a link; or groups
  double effect_ns = 0;  // how much later, or longer than the others
  bool operator==(const Verdict&) const = default;
};

// Within one group. A member is late if its median start is after that of the others by more than a
// quarter of the median completion, by more than `uncertainty_ns` of the clocks and 1 us, and by
// far more than its deviation; it is slow, in operations whose members end apart, if its median
// transfer exceeds that of the others alike. Two slow members next to each other, or of one pair,
// are the ends of a slow link. Members that are `crowded` wait for cores, so that effects below 1
// ms have no name.
Verdict judge_group(const Samples& samples, double uncertainty_ns, bool crowded = false);

// Among groups of one axis: the one whose median completion exceeds the median of the others by
// more than a quarter, with intervals of the medians that do not meet; with `crowded` members, by 1
// ms too.
Verdict judge_groups(std::span<const Distribution> completions, bool crowded = false);

}  // namespace mb
