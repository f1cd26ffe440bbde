#include "bench/analysis/intervals.h"

#include <algorithm>
#include <iterator>

namespace mb {
namespace {

bool starts_before(const Span& a, const Span& b) { return a.start_ns < b.start_ns; }

// Appends a span that starts no earlier than any before it.
void append(Intervals& to, const Span& span) {
  if (span.end_ns <= span.start_ns) return;
  if (!to.empty() && span.start_ns <= to.back().end_ns)
    to.back().end_ns = std::max(to.back().end_ns, span.end_ns);
  else
    to.push_back(span);
}

}  // namespace

Intervals unite(std::vector<Span> spans) {
  if (!std::is_sorted(spans.begin(), spans.end(), starts_before))
    std::sort(spans.begin(), spans.end(), starts_before);
  Intervals out;
  out.reserve(spans.size());
  for (const Span& span : spans) append(out, span);
  return out;
}

Intervals unite(const Intervals& a, const Intervals& b) {
  Intervals out;
  out.reserve(a.size() + b.size());
  auto i = a.begin(), j = b.begin();
  while (i != a.end() || j != b.end()) {
    const bool from_a = j == b.end() || (i != a.end() && starts_before(*i, *j));
    append(out, from_a ? *i++ : *j++);
  }
  return out;
}

Intervals intersect(const Intervals& a, const Intervals& b) {
  Intervals out;
  auto i = a.begin(), j = b.begin();
  while (i != a.end() && j != b.end()) {
    append(out, {std::max(i->start_ns, j->start_ns), std::min(i->end_ns, j->end_ns)});
    i->end_ns < j->end_ns ? ++i : ++j;
  }
  return out;
}

Intervals subtract(const Intervals& a, const Intervals& b) {
  Intervals out;
  auto j = b.begin();
  for (Span rest : a) {
    while (j != b.end() && j->end_ns <= rest.start_ns) ++j;
    for (auto k = j; k != b.end() && k->start_ns < rest.end_ns; ++k) {
      append(out, {rest.start_ns, k->start_ns});
      rest.start_ns = std::min(k->end_ns, rest.end_ns);
    }
    append(out, rest);
  }
  return out;
}

std::int64_t length_ns(const Intervals& a) {
  std::int64_t total = 0;
  for (const Span& span : a) total += length_ns(span);
  return total;
}

std::int64_t length_within_ns(const Intervals& a, Span window) {
  std::int64_t total = 0;
  auto i = std::partition_point(a.begin(), a.end(),
                                [&](const Span& s) { return s.end_ns <= window.start_ns; });
  for (; i != a.end() && i->start_ns < window.end_ns; ++i)
    total += std::min(i->end_ns, window.end_ns) - std::max(i->start_ns, window.start_ns);
  return total;
}

}  // namespace mb
