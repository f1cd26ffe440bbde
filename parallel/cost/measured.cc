#include "parallel/cost/measured.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "workloads/base/error.h"
#include "workloads/base/suggest.h"
#include "workloads/ops/op.h"

namespace mb {
namespace {

using Json = nlohmann::json;

constexpr const char *kCurves = "measured_curves", *kOps = "measured_ops", *kComm = "measured_comm",
                     *kSources = "sources";

// Benchmarks have no blanks in their names.
std::string key_of(std::string text) {
  std::replace(text.begin(), text.end(), ' ', '_');
  return text;
}

CollectiveKind kind_named(const std::string& name, std::string_view origin, const char* key) {
  std::vector<CollectiveKind> kinds;
  for (int k = 0; k < kCollectiveKinds; ++k) kinds.push_back(static_cast<CollectiveKind>(k));
  return find_named(kinds, name, cat(origin, ": ", key, ": operation '", name, "'"),
                    [](CollectiveKind kind) { return name_of(kind); });
}

Curve curve_of(const Json& json, std::string_view origin) {
  Curve curve{.kind = kind_named(json.at("operation"), origin, kCurves),
              .ranks = json.at("ranks"),
              .segments = {},
              .nodes = json.at("nodes")};
  for (const Json& s : json.at("segments"))
    curve.segments.push_back({s.at("to_bytes"), s.at("latency_us"), s.at("gb_per_s")});
  check_curve(curve, cat(origin, ": ", kCurves));
  return curve;
}

CommTime comm_of(const Json& json, std::string_view origin) {
  const CommTime time{.kind = kind_named(json.at("operation"), origin, kComm),
                      .ranks = json.at("ranks"),
                      .nodes = json.at("nodes"),
                      .groups_on_a_node = json.at("groups_on_a_node"),
                      .bytes = json.at("bytes"),
                      .us = json.at("us")};
  require(time.us > 0 && std::isfinite(time.us), origin, ": ", kComm, ": ", name_of(time.kind),
          " of ", time.bytes, " bytes takes ", time.us, " us; give a time above 0");
  return time;
}

}  // namespace

std::optional<double> measured_between_nodes(const Measurements& measured, CollectiveKind kind,
                                             int ranks, int nodes, double bytes) {
  for (const Curve& curve : measured.curves) {
    if (curve.kind == kind && curve.ranks == ranks && curve.nodes == nodes)
      return seconds_at(curve, bytes);
  }
  return std::nullopt;
}

OpTimes::OpTimes(const std::vector<OpTime>& times) {
  for (const OpTime& time : times) us_.emplace(key_of(time.op), time.us);
}

std::optional<double> OpTimes::seconds(const Op& op) const {
  if (us_.empty()) return std::nullopt;
  auto found = us_.find(key_of(to_text(op)));
  const auto* matmul = std::get_if<Matmul>(&op.kind);
  if (found == us_.end() && matmul)
    found = us_.find(key_of(to_text(Op{Matmul{matmul->m, matmul->n, matmul->k}, op.dtype})));
  return found == us_.end() ? std::nullopt : std::optional(1e-6 * found->second);
}

void add_measured(nlohmann::ordered_json& json, const Measurements& measured) {
  for (const Curve& curve : measured.curves) {
    nlohmann::ordered_json segments;
    for (const CurveSegment& s : curve.segments)
      segments.push_back(
          {{"to_bytes", s.bytes}, {"latency_us", s.latency_us}, {"gb_per_s", s.gb_per_s}});
    json[kCurves].push_back({{"operation", name_of(curve.kind)},
                             {"ranks", curve.ranks},
                             {"nodes", curve.nodes},
                             {"segments", segments}});
  }
  for (const OpTime& time : measured.ops) json[kOps].push_back({{"op", time.op}, {"us", time.us}});
  for (const CommTime& time : measured.comm)
    json[kComm].push_back({{"operation", name_of(time.kind)},
                           {"ranks", time.ranks},
                           {"nodes", time.nodes},
                           {"groups_on_a_node", time.groups_on_a_node},
                           {"bytes", time.bytes},
                           {"us", time.us}});
  if (!measured.sources.empty()) json[kSources] = measured.sources;
}

Measurements take_measured(Json& json, std::string_view origin) {
  Measurements measured;
  try {
    for (const Json& curve : json.value(kCurves, Json::array()))
      measured.curves.push_back(curve_of(curve, origin));
    for (const Json& time : json.value(kOps, Json::array())) {
      measured.ops.push_back({time.at("op"), time.at("us")});
      const double us = measured.ops.back().us;
      require(us > 0 && std::isfinite(us), origin, ": ", kOps, ": '", measured.ops.back().op,
              "' takes ", us, " us; give a time above 0");
    }
    for (const Json& time : json.value(kComm, Json::array()))
      measured.comm.push_back(comm_of(time, origin));
    if (json.contains(kSources)) measured.sources = json.at(kSources);
  } catch (const Json::exception& error) {
    throw Error(cat(origin, ": ", error.what(),
                    "; 'meshbench fit' writes measured_curves, measured_ops, measured_comm and "
                    "sources"));
  }
  for (const char* key : {kCurves, kOps, kComm, kSources}) json.erase(key);
  std::stable_sort(measured.curves.begin(), measured.curves.end(),
                   [](const Curve& a, const Curve& b) { return a.ranks < b.ranks; });
  return measured;
}

}  // namespace mb
