// Sets of instants as sorted, disjoint intervals in integer nanoseconds, and their algebra.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/timeline/timeline.h"

namespace mb {

// Half-open, ascending, with a gap between each and the next, none empty.
using Intervals = std::vector<Span>;

// The union of spans in any order: sorted, touching ones merged, those without length dropped.
Intervals unite(std::vector<Span> spans);
Intervals unite(const Intervals& a, const Intervals& b);
Intervals intersect(const Intervals& a, const Intervals& b);
Intervals subtract(const Intervals& a, const Intervals& b);  // a \ b

std::int64_t length_ns(const Intervals& a);
// Length of the part inside `window`; logarithmic where the window is short.
std::int64_t length_within_ns(const Intervals& a, Span window);
inline std::int64_t length_ns(Span span) { return span.end_ns - span.start_ns; }

}  // namespace mb
