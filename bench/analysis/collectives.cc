#include "bench/analysis/collectives.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>

#include "bench/analysis/intervals.h"
#include "bench/analysis/matching.h"
#include "bench/analysis/stats.h"

namespace mb {
namespace {

// Axis, kind, site family, bytes, group size. A send or receive has the kind after the last one.
using Key = std::tuple<int, int, std::uint16_t, std::int64_t, int>;
constexpr int kSendRecv = kCollectiveKinds;

struct Samples {
  double count = 0;  // operations, over all ranks
  double seen = 0;   // operations, over lanes: each has one participant that did not wait
  std::vector<double> wait_ns, transfer_ns;
};

std::vector<std::string> families_of(const Plan& plan) {
  std::vector<std::string> families;
  for (const std::string& name : plan.names) families.push_back(site_family(name));
  return families;
}

// The first name of each family stands for it.
std::vector<std::uint16_t> representatives(const std::vector<std::string>& families) {
  std::map<std::string, std::uint16_t> first;
  std::vector<std::uint16_t> out;
  for (std::size_t i = 0; i < families.size(); ++i)
    out.push_back(first.emplace(families[i], static_cast<std::uint16_t>(i)).first->second);
  return out;
}

std::optional<double> factor_of(int kind, int group_size) {
  if (kind == kSendRecv) return 1.0;
  if (group_size < 2) return std::nullopt;
  return busbw_factor(static_cast<CollectiveKind>(kind), group_size);
}

// Waits without the last arrival's, ascending: as many of the shortest are left out as there were
// operations.
std::span<const double> waits_of_others(Samples& samples) {
  std::sort(samples.wait_ns.begin(), samples.wait_ns.end());
  const auto last_arrivals = static_cast<std::size_t>(samples.seen + 0.5);
  return std::span<const double>(samples.wait_ns)
      .subspan(std::min(last_arrivals, samples.wait_ns.size()));
}

CollectiveProfile summarize(const Key& key, Samples& samples, const CommAxes& axes,
                            const std::vector<std::string>& families) {
  CollectiveProfile out;
  const auto& [axis, kind, family, bytes, group_size] = key;
  out.axis = axes.names[axis], out.site = families[family];
  out.kind = kind == kSendRecv ? "send_recv" : name_of(static_cast<CollectiveKind>(kind));
  out.bytes = bytes, out.group_size = group_size;
  out.count = static_cast<std::int64_t>(samples.count + 0.5);
  const std::span<const double> waits = waits_of_others(samples);
  out.wait_s = waits.empty() ? 0 : 1e-9 * median(waits);
  out.wait_max_s = waits.empty() ? 0 : 1e-9 * waits.back();
  out.transfer_s = samples.transfer_ns.empty() ? 0 : 1e-9 * median(samples.transfer_ns);
  out.factor = factor_of(kind, group_size);
  if (out.transfer_s > 0) {
    out.algbw_bytes_per_s = static_cast<double>(bytes) / out.transfer_s;
    if (out.factor) out.busbw_bytes_per_s = *out.factor * *out.algbw_bytes_per_s;
  }
  return out;
}

}  // namespace

std::string site_family(std::string_view site) {
  std::string out;
  for (std::size_t i = 0; i < site.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      return at < site.size() && std::isdigit(static_cast<unsigned char>(site[at])) != 0;
    };
    const bool starts_number = digit(i) && (i == 0 || site[i - 1] == ' ' || site[i - 1] == '.');
    if (!starts_number) {
      out += site[i];
      continue;
    }
    while (digit(i + 1)) ++i;
    out += '*';
  }
  if (out.ends_with(" *")) out.resize(out.size() - 2);
  return out;
}

std::vector<CollectiveProfile> profile_collectives(const Plan& plan,
                                                   std::span<const Timeline> steps,
                                                   std::int64_t clock_uncertainty_ns) {
  const CommAxes axes = comm_axes(plan);
  const std::vector<std::string> families = families_of(plan);
  const std::vector<std::uint16_t> family = representatives(families);
  std::map<Key, Samples> all;
  for (const Timeline& timeline : steps) {
    const std::vector<Lane> lanes = lanes_of(plan, timeline);
    const Arrivals arrivals = last_arrivals(plan, timeline);
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      const Program& program = plan.programs[lanes[l].stage];
      std::map<int, std::size_t> lanes_of_axis;  // how many lanes take part in an operation
      for (std::size_t id = 0; id < program.instructions.size(); ++id) {
        const int axis = axes.of[lanes[l].stage][id];
        const Span span = timeline.lanes[l][id];
        if (axis < 0 || span.end_ns < span.start_ns) continue;
        const Instruction& i = program.instructions[id];
        const auto* collective = std::get_if<Collective>(&i.action);
        const int group = collective ? plan.mesh.group_size(collective->group) : 2;
        const int kind = collective ? static_cast<int>(collective->kind) : kSendRecv;
        Samples& samples =
            all[{axis, kind, family[i.label.site], payload_bytes(program, i), group}];
        // Each participant is one of `group`; a send and its receive are the two of theirs.
        samples.count += static_cast<double>(lanes[l].ranks) / group;
        std::size_t& sharers = lanes_of_axis[axis * 2 + (collective != nullptr)];
        if (sharers == 0)
          sharers = collective
                        ? lanes_of_group(plan, timeline, collective->group, lanes[l].rank).size()
                        : 2;
        samples.seen += 1.0 / static_cast<double>(sharers);
        const WaitTransfer split = split_at(span, arrivals[l][id], clock_uncertainty_ns);
        samples.wait_ns.push_back(static_cast<double>(length_ns(split.wait)));
        if (span.start_ns == arrivals[l][id])
          samples.transfer_ns.push_back(static_cast<double>(length_ns(split.transfer)));
      }
    }
  }
  std::vector<CollectiveProfile> out;
  for (auto& [key, samples] : all) out.push_back(summarize(key, samples, axes, families));
  std::stable_sort(out.begin(), out.end(), [&](const auto& a, const auto& b) {
    const auto place = [&](const auto& row) {
      return std::find(axes.names.begin(), axes.names.end(), row.axis);
    };
    return std::tuple(place(a), std::tie(a.kind, a.site, a.bytes)) <
           std::tuple(place(b), std::tie(b.kind, b.site, b.bytes));
  });
  return out;
}

}  // namespace mb
