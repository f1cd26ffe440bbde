// Rows of this program, a JSON object a line or one in a file, and of Google Benchmark.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/coll/config.h"
#include "bench/fit/input.h"
#include "bench/fit/lines.h"
#include "parallel/mesh/mesh.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

using Parsed = nlohmann::json;

bool is_virtual(const Parsed& row) { return row.value("virtual_time", false); }

double number_at(const Parsed& json, const char* key, const std::string& where) {
  require(json.contains(key) && json.at(key).is_number(), where, key, " is ",
          json.contains(key) ? json.at(key).dump() : "missing", ", not a number");
  return json.at(key);
}

std::optional<CollectiveKind> kind_named(const std::string& name) {
  if (name == "ping_pong" || name == "both_ways") return CollectiveKind::shift;
  for (int k = 0; k < kCollectiveKinds; ++k) {
    if (name_of(static_cast<CollectiveKind>(k)) == name) return static_cast<CollectiveKind>(k);
  }
  return std::nullopt;
}

// How the groups that were at it lie on the nodes.
GroupSpread spread_in(const Parsed& row, const Parsed& coll) {
  const Parsed& json = row.at("mesh");
  Mesh mesh = Mesh::parse(json.at("text").get<std::string>());
  mesh.set_order(json.at("order").get<std::string>());
  // The one or the other: of ranks on named hosts there is a list.
  if (json.at("nodes").is_array()) {
    mesh.set_nodes(json.at("nodes"));
  } else {
    mesh.set_ranks_per_node(json.at("ranks_per_node"));
  }
  std::vector<std::vector<int>> groups;
  if (coll.at("groups") == 1) {
    groups.push_back(coll.at("ranks"));
  } else {
    groups = mesh.groups(group_named(coll.at("axis").get<std::string>(), "axis"));
  }
  for (std::vector<int>& group : groups)
    for (int& rank : group) rank = mesh.node_of(rank);
  return spread_of(groups, Machine{});
}

// Why a row of collectives is of no use; empty if it is.
std::string objection(const Parsed& row, const Parsed& coll) {
  if (row.value("status", "ok") != "ok") return "its status is " + row.at("status").dump();
  if (!coll.at("beside").at("operation").is_null() || coll.at("overlap").at("compute") != "none")
    return "something else ran beside it";
  if (!coll.at("injected_delay_s").is_null()) return "a rank was kept back";
  const std::string algorithm = coll.at("algorithm");
  if (algorithm != "own" && algorithm != "native") return "it is of algorithm=" + algorithm;
  if (!kind_named(coll.at("operation"))) return "a barrier moves nothing";
  if (coll.at("members") < 2) return "one rank moves nothing";
  if (coll.at("bytes").is_null() || coll.at("bytes") == 0) return "it moves no bytes";
  return "";
}

class Reader {
 public:
  Reader(const std::string& path, FitRows& rows) : path_(path), out_(rows) {}

  void row(const Parsed& json, const std::string& where) {
    require(json.is_object(), where, "wants a JSON object, not ", json.type_name());
    if (json.contains("coll")) return collective(json, where);
    if (json.contains("benchmarks")) return benchmarks(json, where);
    if (json.contains("case")) return step(json, where);
    throw Error(
        cat(where,
            "neither a row of 'meshbench coll' or 'run', nor a case with step_s or step_ms, "
            "nor what Google Benchmark or a profiler writes"));
  }

 private:
  void collective(const Parsed& row, const std::string& where) {
    const Parsed& coll = row.at("coll");
    require(!is_virtual(row), where, "virtual time is no measurement; leave out rows of mode=sim");
    if (const std::string why = objection(row, coll); !why.empty())
      return out_.notes.push_back(where + "left out: " + why);
    const double seconds = checked_time(number_at(coll.at("completion"), "p50_s", where),
                                        where + "coll.completion.p50_s");
    out_.collectives.push_back({*kind_named(coll.at("operation")), spread_in(row, coll),
                                coll.at("bytes"), seconds, path_});
  }

  void step(const Parsed& row, const std::string& where) {
    require(!is_virtual(row) && !row.contains("step_low_s"), where,
            "a prediction is no measurement; give rows of steps that were run");
    if (row.value("status", "ok") != "ok")
      return out_.notes.push_back(where + "left out: its status is " + row.at("status").dump());
    double seconds = 0;
    if (row.contains("metrics")) {
      seconds = number_at(row.at("metrics").at("step_s"), "median", where);
    } else if (row.contains("step_ms")) {
      seconds = 1e-3 * number_at(row, "step_ms", where);
    } else {
      seconds = number_at(row, "step_s", where);
    }
    out_.steps.push_back({row.at("case"), checked_time(seconds, where + "the step"), path_,
                          where.substr(0, where.size() - 2)});
  }

  // Of ops_bench: "op/gpt/matmul_512x1536x384_nt_bias"; CPU time, since it runs on one core.
  void benchmarks(const Parsed& json, const std::string& where) {
    const std::size_t before = out_.operations.size();
    for (const Parsed& run : json.at("benchmarks")) {
      const std::string name = run.at("name");
      if (!name.starts_with("op/") || run.value("run_type", "iteration") != "iteration") continue;
      const std::string unit = run.at("time_unit");
      const double us = unit == "ns" ? 1e-3 : unit == "us" ? 1 : unit == "ms" ? 1e3 : 1e6;
      const double time = checked_time(number_at(run, "cpu_time", where + name + ": "),
                                       where + name + ": cpu_time");
      out_.operations.push_back({{name.substr(name.find('/', 3) + 1), us * time}, path_});
    }
    require(out_.operations.size() > before, where,
            "no benchmark of an operation; give what 'ops_bench --benchmark_out=FILE' writes");
  }

  const std::string& path_;
  FitRows& out_;
};

void parse_row(std::string_view text, const std::string& where, Reader& reader) {
  try {
    reader.row(Parsed::parse(text), where);
  } catch (const Parsed::parse_error& error) {
    throw Error(cat(where, "no JSON from byte ", error.byte, " on; is the file cut off?"));
  } catch (const Parsed::exception& error) {
    throw Error(cat(where, "not a row as this program writes it: ", error.what()));
  }
}

}  // namespace

void read_json_rows(std::string_view text, const std::string& path, FitRows& rows) {
  Reader reader(path, rows);
  const std::vector<std::string_view> lines = lines_of(text);
  if (!Parsed::accept(lines.front())) return parse_row(text, path + ": ", reader);
  int number = 0;
  for (const std::string_view line : lines) {
    ++number;
    if (line.find_first_not_of(" \t") != std::string_view::npos)
      parse_row(line, cat(path, ":", number, ": "), reader);
  }
}

}  // namespace mb
