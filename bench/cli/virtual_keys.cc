#include "bench/cli/virtual_keys.h"

#include "bench/cli/key_values.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

// "3:1.5,7:2": by rank or node, by how many times longer it takes.
std::map<int, double> factors(std::string_view key, std::string_view value) {
  std::map<int, double> factors;
  if (value == "none") return factors;
  for (const std::string& part : split_at(value, ',')) {
    const std::vector<std::string> ends = split_at(part, ':');
    require(ends.size() == 2, key, "=", value, ": '", part, "' is no NUMBER:FACTOR, as in ", key,
            "=3:1.5");
    const int which = static_cast<int>(whole(key, ends[0], 0));
    const double factor = parse_number(ends[1], key);
    require(factor >= 1 && factor <= 1000, key, "=", value, ": a factor of ", ends[1],
            "; it is how many times longer, from 1 to 1000");
    require(factors.emplace(which, factor).second, key, "=", value, ": ", which,
            " is there twice; give it once");
  }
  return factors;
}

std::string factors_text(const std::map<int, double>& factors) {
  std::string text;
  for (const auto& [which, factor] : factors)
    text += cat(text.empty() ? "" : ",", which, ':', number_text(factor));
  return text.empty() ? "none" : text;
}

struct JitterField {
  std::string_view name;
  double Jitter::*field;
  double most;
};
constexpr JitterField kJitterFields[] = {{"gpu", &Jitter::gpu, 0.3},
                                         {"op", &Jitter::op, 1},
                                         {"stalls", &Jitter::stalls_per_gpu_hour, 1e6},
                                         {"stall_s", &Jitter::stall_s, 1e6}};

Jitter parse_jitter(std::string_view value) {
  Jitter jitter;
  if (value == "none") return jitter;
  for (const std::string& part : split_at(value, ',')) {
    const std::vector<std::string> ends = split_at(part, ':');
    require(ends.size() == 2, "jitter=", value, ": '", part,
            "' is no NAME:NUMBER, as in jitter=gpu:0.01,op:0.03");
    const JitterField& field = find_named(
        std::vector<JitterField>(std::begin(kJitterFields), std::end(kJitterFields)), ends[0],
        cat("jitter=", value, ", '", ends[0], "'"), [](const JitterField& f) { return f.name; });
    const double number = not_negative("jitter", ends[1]);
    require(number <= field.most, "jitter=", value, ": ", ends[0], " is at most ", field.most,
            "; gpu and op are shares, 0.01 for 1 %");
    jitter.*field.field = number;
  }
  require((jitter.stalls_per_gpu_hour > 0) == (jitter.stall_s > 0), "jitter=", value,
          ": stalls: (how many a GPU has in an hour) and stall_s: (how long each is) go together");
  return jitter;
}

std::string jitter_text(const Jitter& jitter) {
  std::string text;
  for (const JitterField& f : kJitterFields) {
    if (jitter.*f.field > 0)
      text += cat(text.empty() ? "" : ",", f.name, ':', number_text(jitter.*f.field));
  }
  return text.empty() ? "none" : text;
}

}  // namespace

CaseKey straggler_key() {
  return {"straggler", "none | RANK:FACTOR,...",
          "mode=sim: ranks whose computation takes so many times as long, as in 3:1.5",
          [](Case& c, std::string_view v) { c.imbalance.ranks = factors("straggler", v); },
          [](const Case& c) { return factors_text(c.imbalance.ranks); }};
}

CaseKey slow_nic_key() {
  return {"slow_nic", "none | NODE:FACTOR,...",
          "mode=sim: nodes whose collectives and messages with others take so many times as long",
          [](Case& c, std::string_view v) { c.imbalance.nics = factors("slow_nic", v); },
          [](const Case& c) { return factors_text(c.imbalance.nics); }};
}

CaseKey jitter_key() {
  return {"jitter", "none | gpu:X,op:X,stalls:N,stall_s:X",
          "mode=sim: what spreads step times, drawn by seed=; standard deviations of a GPU's speed "
          "and of an operation's time as shares, stalls of a GPU in an hour and how long each is",
          [](Case& c, std::string_view v) { c.jitter = parse_jitter(v); },
          [](const Case& c) { return jitter_text(c.jitter); }};
}

void check_virtual(const Case& c) {
  const auto of_sim = [&](bool given, const char* key, const std::string& value) {
    require(!given || c.mode == Mode::sim, key, "=", value,
            " has no effect in mode=", name_of(c.mode),
            ", whose ranks take the time that they take; give mode=sim with it");
  };
  of_sim(!c.imbalance.ranks.empty(), "straggler", factors_text(c.imbalance.ranks));
  of_sim(!c.imbalance.nics.empty(), "slow_nic", factors_text(c.imbalance.nics));
  of_sim(!c.jitter.none(), "jitter", jitter_text(c.jitter));
  for (const auto& [rank, factor] : c.imbalance.ranks)
    require(rank < c.mesh.world(), "straggler=", rank, ':', factor, ": mesh=", c.mesh.to_text(),
            " has ranks 0 to ", c.mesh.world() - 1);
  for (const auto& [node, factor] : c.imbalance.nics) {
    require(c.mesh.node_count() > 1, "slow_nic=", node, ':', factor,
            ": all ranks of mesh=", c.mesh.to_text(),
            " are on one node, and no NIC carries anything; give a larger mesh, "
            "or machine.ranks_per_node=");
    require(node < c.mesh.node_count(), "slow_nic=", node, ':', factor, ": mesh=", c.mesh.to_text(),
            " is on nodes 0 to ", c.mesh.node_count() - 1);
  }
}

}  // namespace mb
