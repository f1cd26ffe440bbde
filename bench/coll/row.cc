#include "bench/coll/row.h"

#include <algorithm>
#include <cmath>

#include "bench/analysis/stats.h"
#include "bench/coll/buffers.h"
#include "bench/coll/needs.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json seconds(const Distribution& d) {
  return {{"n", d.n},
          {"min_s", 1e-9 * d.min},
          {"p50_s", 1e-9 * d.p50},
          {"p95_s", 1e-9 * d.p95},
          {"p99_s", 1e-9 * d.p99},
          {"p999_s", 1e-9 * d.p999},
          {"max_s", 1e-9 * d.max},
          {"median_deviation_s", 1e-9 * d.deviation},
          {"low_s", d.interval ? Json(1e-9 * d.interval->low) : Json(nullptr)},
          {"high_s", d.interval ? Json(1e-9 * d.interval->high) : Json(nullptr)},
          {"outliers", d.outliers}};
}

std::vector<double> times_s(const GroupResult& group) {
  std::vector<double> times = completions_ns(group.of(Series::operation));
  for (double& time : times) time *= 1e-9 * share_of_time(group.call.operation);
  return times;
}

Json time_metric(const std::vector<double>& times) {
  const double middle = median(times);
  Json json = {{"value", middle},   {"unit", "s"},
               {"n", times.size()}, {"min", *std::min_element(times.begin(), times.end())},
               {"median", middle},  {"mean", mean(times)}};
  if (const auto spread = stdev(times)) json["stdev"] = *spread;
  return json;
}

Metric rate_metric(const char* name, const std::optional<double>& rate, const char* reason) {
  Metric metric{.name = name, .unit = "B/s"};
  if (rate) {
    metric.samples = {*rate};
  } else {
    metric.reason = reason;
  }
  return metric;
}

Json members_json(const GroupResult& group, const GroupSummary& s) {
  Json members = Json::array();
  for (std::size_t k = 0; k < s.members.size(); ++k) {
    const MemberTimes& m = s.members[k];
    members.push_back({{"rank", group.ranks[k]},
                       {"host", k < group.hosts.size() ? Json(group.hosts[k]) : Json(nullptr)},
                       {"wait_s", 1e-9 * m.wait_ns},
                       {"transfer_s", 1e-9 * m.transfer_ns},
                       {"late_s", 1e-9 * m.late_ns},
                       {"arrived_last", m.arrived_last}});
  }
  return members;
}

Json expected_json(const Expected& e) {
  Json json = {{"link", name_of(e.link)},
               {"seconds", or_null(e.seconds)},
               {"busbw_ceiling_bytes_per_s", or_null(e.busbw_ceiling)},
               {"ceiling_by", e.ceiling_by},
               {"fraction", or_null(e.fraction)},
               {"wire_intra_bytes", nullptr},
               {"wire_inter_bytes", nullptr},
               {"wire_node_bytes", nullptr}};
  if (e.wire) {
    json["wire_intra_bytes"] = e.wire->intra;
    json["wire_inter_bytes"] = e.wire->inter;
    json["wire_node_bytes"] = e.wire->node;
  }
  return json;
}

Json check_json(const CollConfig& config, const GroupResult& group) {
  const Findings& f = group.findings;
  const bool checked = config.check && f.checked > 0;
  Json json = {{"wrong", checked ? Json(f.wrong) : Json(nullptr)},
               {"checked_elements", f.checked},
               {"full_operations", f.full},
               {"sampled_operations", f.sampled},
               {"first_wrong", nullptr}};
  if (!checked) json["reason"] = config.check ? "nothing was moved" : "check=off";
  if (f.wrong > 0)
    json["first_wrong"] = cat("rank ", group.wrong_rank, ", operation ", f.operation, ", element ",
                              f.index, ": got ", element_text(f.got, group.call.type),
                              ", expected ", element_text(f.expected, group.call.type));
  return json;
}

Json verdict_json(const GroupResult& group, const Verdict& verdict) {
  Json who = Json::array();
  const bool names_group = verdict.fault == Fault::slow_group;
  for (const int member : verdict.who) who.push_back(names_group ? member : group.ranks[member]);
  return {{"fault", name_of(verdict.fault)},
          {"who", who},
          {"effect_s", 1e-9 * verdict.effect_ns},
          {"text", to_text(verdict, group.ranks)}};
}

Json overlap_json(const std::optional<OverlapSummary>& o, const PointResult& result) {
  Json json = {{"compute", name_of(result.point.overlap)},
               {"units", result.compute_units},
               {"operation_s", nullptr},
               {"compute_s", nullptr},
               {"both_s", nullptr},
               {"efficiency", nullptr},
               {"operation_slow_down", nullptr},
               {"compute_slow_down", nullptr}};
  if (!o) return json;
  json["operation_s"] = 1e-9 * o->operation_ns;
  json["compute_s"] = 1e-9 * o->compute_ns;
  json["both_s"] = 1e-9 * o->both_ns;
  if (o->efficiency) json["efficiency"] = *o->efficiency;
  json["operation_slow_down"] = o->operation_slow_down;
  json["compute_slow_down"] = o->compute_slow_down;
  return json;
}

Json beside_json(const GroupResult& group, const GroupSummary& s, const PointResult& result) {
  const auto& beside = result.point.beside;
  Json json = {{"operation", nullptr},
               {"axis", nullptr},
               {"bytes", nullptr},
               {"alone_s", nullptr},
               {"slow_down", nullptr}};
  if (!beside) return json;
  json["operation"] = name_of(beside->operation);
  json["axis"] = name_of(beside->group);
  json["bytes"] = beside->bytes;
  if (s.alone_ns) {
    const double alone = *s.alone_ns * share_of_time(group.call.operation);
    json["alone_s"] = 1e-9 * alone;
    json["slow_down"] = s.completion.p50 / alone;
  }
  return json;
}

Json block_of(const CollConfig& config, const MeasuredPoint& m, std::size_t g, bool raw) {
  const GroupResult& group = m.result.groups[g];
  const GroupSummary& s = m.summary.groups[g];
  const CollCall& call = group.call;
  const bool sized = has_size(call.operation);
  const auto if_sized = [&](auto value) { return sized ? Json(value) : Json(nullptr); };
  Json block = {{"operation", name_of(call.operation)},
                {"axis", name_of(m.result.point.group)},
                {"group", group.index},
                {"groups", m.result.groups.size()},
                {"members", call.members},
                {"ranks", group.ranks},
                {"bytes", if_sized(s.bytes)},
                {"asked_bytes", if_sized(m.result.point.bytes)},
                {"count", if_sized(call.count)},
                {"dtype", if_sized(name_of(call.type))},
                {"redop", reduces(call.operation) ? Json(name_of(call.redop)) : Json(nullptr)},
                {"root", has_root(call.operation) ? Json(call.root) : Json(nullptr)},
                {"in_place", m.result.point.in_place},
                {"algorithm", name_of(m.result.point.algorithm)},
                {"call", name_of(config.call)},
                {"cache", name_of(config.cache)},
                {"pages", name_of(config.pages)},
                {"alignment_bytes", kBufferAlignment},
                {"pinned", m.result.pinned},
                {"huge_share", m.result.huge_share},
                {"factor", or_null(s.factor)},
                {"warm_up_operations", m.result.warm_up},
                {"completion", seconds(s.completion)},
                {"mean_of_ranks_s", 1e-9 * s.mean_duration_ns},
                {"submit", s.submit ? seconds(*s.submit) : Json(nullptr)},
                {"skew", seconds(s.skew)},
                {"clock_uncertainty_s", 1e-9 * m.result.clock_uncertainty_ns},
                {"members_times", members_json(group, s)},
                {"expected", expected_json(s.expected)},
                {"check", check_json(config, group)},
                {"verdict", verdict_json(group, s.verdict)},
                {"warm", m.result.warm},
                {"certain", m.result.certain},
                {"drifts", s.drifts},
                {"minor_faults", s.minor_faults},
                {"switches", s.switches},
                {"preemptions", s.preemptions},
                {"overlap", overlap_json(s.overlap, m.result)},
                {"beside", beside_json(group, s, m.result)},
                {"injected_delay_s",
                 config.injection ? Json(1e-9 * static_cast<double>(config.injection->delay_ns))
                                  : Json(nullptr)}};
  if (raw) block["samples_s"] = times_s(group);
  if (!m.summary.no_speed.empty()) {
    for (const char* time : {"completion", "mean_of_ranks_s", "submit", "skew"})
      block[time] = nullptr;
    block["members_times"] = Json::array();
    block["verdict"] = verdict_json(group, {});
    block.erase("samples_s");
  }
  return block;
}

// Of the case's lists, what this row is of.
RowHead head_of(RowHead head, const Point& point) {
  head.params["op"] = std::string(name_of(point.operation));
  head.params["axis"] = name_of(point.group);
  head.params["size"] = point.bytes;
  head.params["dtype"] = std::string(name_of(point.type));
  head.params["redop"] = std::string(name_of(point.redop));
  head.params["algorithm"] = std::string(name_of(point.algorithm));
  head.params["in_place"] = std::string(point.in_place ? "in" : "out");
  return head;
}

// A step's row has the same.
void add_place(Json& row, const CollConfig& config, const Surroundings& around) {
  row["mode"] = around.mode;
  row["virtual_time"] = around.mode == "sim";
  row["mesh"] = to_json(config.mesh);
}

void flatten(const Json& json, const std::string& at, Json& flat) {
  if (json.is_object() && !json.empty()) {
    for (const auto& [key, value] : json.items())
      flatten(value, (Json::json_pointer(at) / key).to_string(), flat);
  } else {
    flat[at] = json;
  }
}

// As CsvFile says.
std::string cell_text(const Json& value) {
  if (!value.is_string()) return value.dump();
  const std::string text = value.get<std::string>();
  const bool ambiguous = text.empty() || Json::accept(text) || text.front() == '"';
  return ambiguous ? value.dump() : text;
}

std::string quoted_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

void check_written(const std::ofstream& out, const std::string& path) {
  require(out.good(), "cannot write ", path, "; does its folder exist, and is there room?");
}

}  // namespace

std::vector<Json> coll_rows(const CollConfig& config, const MeasuredPoint& measured,
                            const Surroundings& around, const RowHead& head, bool raw) {
  std::vector<Json> rows;
  for (std::size_t g = 0; g < measured.summary.groups.size(); ++g) {
    const GroupSummary& s = measured.summary.groups[g];
    RowHead own = head_of(head, measured.result.point);
    own.params["group_index"] = static_cast<std::int64_t>(measured.result.groups[g].index);
    Json row = row_head(own);
    const char* no_bus = measured.result.groups[g].ranks.size() < 2
                             ? "not defined for one rank"
                             : "the operation moves no bytes";
    const char* no_size = "there is no size";
    const std::string& no_speed = measured.summary.no_speed;
    if (!no_speed.empty()) no_bus = no_size = no_speed.c_str();
    row["metrics"]["completion_s"] = no_speed.empty()
                                         ? time_metric(times_s(measured.result.groups[g]))
                                         : to_json(absent("completion_s", "s", no_speed));
    for (const Metric& metric : {rate_metric("algbw_bytes_per_s", s.algbw, no_size),
                                 rate_metric("busbw_bytes_per_s", s.busbw, no_bus)})
      row["metrics"][metric.name] = to_json(metric);
    add_place(row, config, around);
    if (!no_speed.empty()) row["no_speed"] = no_speed;
    row["coll"] = block_of(config, measured, g, raw);
    const std::int64_t wrong = measured.result.groups[g].findings.wrong;
    if (wrong > 0)
      set_status(row, "invalid",
                 {{"message", cat(wrong, " wrong elements: ",
                                  row["coll"]["check"]["first_wrong"].get<std::string>())}});
    const auto too_large = does_not_fit(config, measured.result.point, around);
    if (too_large) set_out_of_memory(row, *too_large, "oom_predicted");
    rows.push_back(std::move(row));
  }
  return rows;
}

Json out_of_memory_row(const CollConfig& config, const std::optional<Point>& point,
                       const Surroundings& around, const RowHead& head, const OutOfMemory& error) {
  Json row = row_head(point ? head_of(head, *point) : head);
  add_place(row, config, around);
  set_out_of_memory(row, error);
  return row;
}

JsonLines::JsonLines(const std::string& path) : path_(path), out_(path, std::ios::binary) {
  check_written(out_, path_);
}

void JsonLines::add(const Json& row) {
  out_ << to_line(row) << std::flush;
  check_written(out_, path_);
}

CsvFile::CsvFile(const std::string& path) : path_(path), out_(path, std::ios::binary) {
  check_written(out_, path_);
}

void CsvFile::add(const Json& row) {
  Json flat = Json::object();
  flatten(row, "", flat);
  rows_.push_back(flat);
  const std::size_t before = columns_.size();
  for (const auto& [column, value] : flat.items()) {
    if (std::find(columns_.begin(), columns_.end(), column) == columns_.end())
      columns_.push_back(column);
  }
  if (columns_.size() != before) return write_all();
  std::vector<std::string> cells;
  for (const std::string& column : columns_)
    cells.push_back(flat.contains(column) ? cell_text(flat[column]) : "");
  write(cells);
}

void CsvFile::write_all() {
  out_.close();
  out_.open(path_, std::ios::binary | std::ios::trunc);
  write(columns_);
  for (const Json& flat : rows_) {
    std::vector<std::string> cells;
    for (const std::string& column : columns_)
      cells.push_back(flat.contains(column) ? cell_text(flat[column]) : "");
    write(cells);
  }
}

void CsvFile::write(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) line += (line.empty() ? "" : ",") + quoted_cell(cell);
  out_ << line << '\n' << std::flush;
  check_written(out_, path_);
}

}  // namespace mb
