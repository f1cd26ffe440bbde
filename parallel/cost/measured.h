// What was measured on a machine, as `meshbench fit` writes it: curves of collectives, times of
// operations by shape, of collectives and messages as steps had them, and where each constant is
// from.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "parallel/cost/curves.h"

namespace mb {

struct Op;

// Until the device may begin the next operation.
struct OpTime {
  std::string op;  // to_text(Op); "matmul 512x1536x384 nn bf16" is of any layout without its own
  double us = 0;
  bool operator==(const OpTime&) const = default;
};

// A collective, or a message (a shift of two ranks), beside all that a step does at that time: from
// when the last of its ranks has come.
struct CommTime {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int ranks = 2, nodes = 1;
  int groups_on_a_node = 1;  // at once
  std::int64_t bytes = 0;
  double us = 0;
  bool operator==(const CommTime&) const = default;
};

struct Measurements {
  std::vector<Curve> curves;  // of a kind in order of ranks
  std::vector<OpTime> ops;
  std::vector<CommTime> comm;
  std::map<std::string, std::string> sources;  // by constant: from how many rows, of which files
  bool operator==(const Measurements&) const = default;
};

// Of a group by itself: nothing shares its NICs. nullopt where it was not measured.
std::optional<double> measured_between_nodes(const Measurements& measured, CollectiveKind kind,
                                             int ranks, int nodes, double bytes);

// Times of operations, found by shape.
class OpTimes {
 public:
  explicit OpTimes(const std::vector<OpTime>& times);
  std::optional<double> seconds(const Op& op) const;

 private:
  std::unordered_map<std::string, double> us_;
};

// As keys "measured_curves", "measured_ops", "measured_comm" and "sources" of a machine's JSON;
// none of them where there is nothing. Throws Error naming `origin` and what is impossible; take
// removes them.
void add_measured(nlohmann::ordered_json& json, const Measurements& measured);
Measurements take_measured(nlohmann::json& json, std::string_view origin);

}  // namespace mb
