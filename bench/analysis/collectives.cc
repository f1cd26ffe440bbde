#include "bench/analysis/collectives.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "bench/analysis/intervals.h"
#include "bench/analysis/matching.h"
#include "bench/analysis/stats.h"
#include "parallel/cost/collective_cost.h"

namespace mb {
namespace {

// Axis, kind, site family, bytes, group size. A send or receive has the kind after the last one.
using Key = std::tuple<int, int, std::uint16_t, std::int64_t, int>;

struct Samples {
  std::vector<int> nodes;  // of the group or pair that is spread most
  Group group;             // of the first
  double count = 0;        // operations, over all ranks
  double seen = 0;         // operations, over lanes: each has one participant that did not wait
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

// The nodes of the members of the group that is spread most; of a message, of its two ranks.
class Spread {
 public:
  explicit Spread(const Plan& plan) : plan_(plan) {}

  const std::vector<int>& of(Group group) {
    const auto [entry, is_new] = groups_.try_emplace(group);
    if (is_new) {
      for (const std::vector<int>& ranks : plan_.mesh.groups(group)) widen(entry->second, ranks);
    }
    return entry->second;
  }
  // Between a stage and all that it exchanges messages with.
  const std::vector<int>& of_messages() {
    if (!messages_.empty()) return messages_;
    for (const auto& [from, to] : pairs()) {
      for (const std::vector<int>& pipeline : plan_.mesh.groups(group_of(Axis::pp)))
        widen(messages_, std::vector{pipeline[from], pipeline[to]});
    }
    return messages_;
  }

 private:
  void widen(std::vector<int>& widest, const std::vector<int>& ranks) const {
    std::vector<int> nodes = plan_.mesh.nodes_of(ranks);
    if (widest.empty() || link_class(nodes) > link_class(widest)) widest = std::move(nodes);
  }
  std::set<std::pair<int, int>> pairs() const {
    std::set<std::pair<int, int>> pairs;
    for (const Program& program : plan_.programs) {
      for (const Instruction& i : program.instructions) {
        if (const auto* send = std::get_if<Send>(&i.action)) pairs.emplace(program.stage, send->to);
      }
    }
    return pairs;
  }

  const Plan& plan_;
  std::map<Group, std::vector<int>> groups_;
  std::vector<int> messages_;
};

// Largest busbw over links of that shape.
double ceiling_of(int kind, const std::vector<int>& nodes, Algorithm algorithm,
                  const LinkShape& links) {
  if (kind == kSendRecv)
    return 1e9 * (link_class(nodes) == LinkClass::inter ? links.inter : links.intra).gb_per_s;
  Machine machine;
  machine.intra = links.intra, machine.inter = links.inter;
  const auto collective = static_cast<CollectiveKind>(kind);
  const double ceiling = *busbw_ceiling(collective, algorithm, nodes, machine);
  if (!links.inter_of_node) return ceiling;
  constexpr std::int64_t bytes = 1 << 30;
  const double crossing = wire_of(collective, algorithm, bytes, nodes).busier().node;
  if (crossing == 0) return ceiling;
  return std::min(ceiling, busbw_factor(collective, static_cast<int>(nodes.size())) *
                               static_cast<double>(bytes) / crossing * links.inter.gb_per_s * 1e9);
}

// What the profile's bytes pass, and what its links could do.
void add_links(CollectiveProfile& out, int kind, const Samples& samples, const LinkModel& model) {
  const std::vector<int>& nodes = samples.nodes;
  if (const auto found = model.measured.find({kind, samples.group}); found != model.measured.end())
    out.measured_bytes_per_s = found->second;
  out.link = link_class(nodes);
  out.steps = 1, out.link_bytes = static_cast<double>(out.bytes);
  if (kind != kSendRecv) {
    out.algorithm = model.algorithm;
    const auto seconds = [&](const Link& link) {
      return collective_seconds(static_cast<CollectiveKind>(kind), Algorithm::own, out.bytes, nodes,
                                link, link);
    };
    constexpr double kFast = 1e30;
    out.steps = seconds({.latency_us = 1e6, .gb_per_s = kFast});
    out.link_bytes = 1e9 * seconds({.latency_us = 0, .gb_per_s = 1});
  }
  if (out.link == LinkClass::none) {
    out.no_ceiling = "one rank has no link";
  } else if (!model.links) {
    out.no_ceiling = model.reason;
  } else {
    out.ceiling_bytes_per_s =
        ceiling_of(kind, nodes, model.algorithm.value_or(Algorithm::ring), *model.links);
  }
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

std::optional<double> CollectiveProfile::ceiling_fraction() const {
  if (!busbw_bytes_per_s || !ceiling_bytes_per_s) return std::nullopt;
  return *busbw_bytes_per_s / *ceiling_bytes_per_s;
}

std::optional<double> CollectiveProfile::measured_fraction() const {
  if (!busbw_bytes_per_s || !measured_bytes_per_s) return std::nullopt;
  return *busbw_bytes_per_s / *measured_bytes_per_s;
}

std::vector<LinkClassFit> fit_links(std::span<const CollectiveProfile> profiles) {
  std::map<LinkClass, std::vector<LinkSample>> samples;
  for (const CollectiveProfile& p : profiles) {
    if (p.link != LinkClass::none)
      samples[p.link].push_back({.bytes = p.link_bytes, .seconds = p.transfer_s, .steps = p.steps});
  }
  std::vector<LinkClassFit> fits;
  for (const auto& [link, of_class] : samples) fits.push_back({link, fit_link(of_class)});
  return fits;
}

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
                                                   std::int64_t clock_uncertainty_ns,
                                                   const LinkModel& model) {
  const CommAxes axes = comm_axes(plan);
  const std::vector<std::string> families = families_of(plan);
  const std::vector<std::uint16_t> family = representatives(families);
  std::map<Key, Samples> all;
  Spread spread(plan);
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
        if (samples.nodes.empty()) {
          samples.nodes = collective ? spread.of(collective->group) : spread.of_messages();
          samples.group = collective ? collective->group : group_of(Axis::pp);
        }
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
  for (auto& [key, samples] : all) {
    out.push_back(summarize(key, samples, axes, families));
    add_links(out.back(), std::get<1>(key), samples, model);
  }
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
