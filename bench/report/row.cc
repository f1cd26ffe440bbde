#include "bench/report/row.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <random>

#include "bench/analysis/stats.h"
#include "bench/report/build.h"

namespace mb {
namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// A byte count or rate that may be text in a Fact.
Json to_json(const Fact& fact) {
  return std::visit(
      [](const auto& value) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>)
          return nullptr;
        else
          return value;
      },
      fact);
}

Json to_json(const std::map<std::string, Fact>& facts) {
  Json json = Json::object();
  for (const auto& [name, fact] : facts) json[name] = to_json(fact);
  return json;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string new_run_id() {
  std::random_device random;
  return hash_text(fmt::format("{} {} {} {}", utc_now(), getpid(), random(), random()));
}

Json relative(const std::map<std::string, std::string>& artifacts) {
  Json json = Json::object();
  for (const auto& [kind, path] : artifacts)
    json[kind] = std::filesystem::proximate(path).lexically_normal().string();
  return json;
}

std::optional<std::string> text_or_none(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

Json build_json() {
  const BuildInfo info = build_info();
  return {{"git", or_null(info.commit)}, {"dirty", or_null(info.dirty)},
          {"type", info.type},           {"flags_hash", hash_text(info.flags)},
          {"compiler", info.compiler},   {"version", info.version}};
}

Json by_axis(const std::vector<std::string>& axes, const std::vector<double>& values) {
  Json json = Json::object();
  for (std::size_t i = 0; i < values.size(); ++i) json[axes[i]] = values[i];
  return json;
}

Json to_json(const StagePhase& phase, const std::vector<std::string>& axes) {
  return {{"window_s", phase.window_s},
          {"compute_s", phase.compute_s},
          {"transfer_s", by_axis(axes, phase.transfer_s)},
          {"wait_s", by_axis(axes, phase.wait_s)},
          {"memory_s", phase.memory_s},
          {"idle_s", phase.idle_s}};
}

Json ratio(double a, double b) { return b > 0 ? Json(a / b) : Json(nullptr); }

// A difference of two sums of the same times: rounding may leave it a hair below zero.
double not_negative(double difference) { return std::max(0.0, difference); }

Json to_json(const StageReport& stage, const std::vector<std::string>& axes) {
  const StageSummary& m = stage.measured;
  const double bubble_s = not_negative(m.bubble_s());
  Json json = {{"stage", m.stage},
               {"window_s", m.window_s},
               {"compute_s", m.compute_s},
               {"bubble_s", bubble_s},
               {"bubble_fraction", ratio(bubble_s, m.window_s)},
               {"bubble_over_ideal", ratio(bubble_s, m.compute_s)},
               {"warm_up", to_json(m.warm_up, axes)},
               {"steady", to_json(m.steady, axes)},
               {"cool_down", to_json(m.cool_down, axes)},
               {"closed_form", nullptr}};
  if (stage.closed_form)
    json["closed_form"] = {{"warm_up_s", stage.closed_form->warm_up},
                           {"steady_s", stage.closed_form->steady},
                           {"cool_down_s", stage.closed_form->cool_down},
                           {"bubble_s", stage.closed_form->sum()}};
  return json;
}

Json to_json(const Breakdown& breakdown) {
  const double ranks = std::max(1, breakdown.ranks * breakdown.steps);
  const auto mean_s = [&](std::int64_t ns) { return 1e-9 * static_cast<double>(ns) / ranks; };
  const double total = static_cast<double>(breakdown.window_ns) * breakdown.ranks;
  Json json = {{"steps", breakdown.steps},         {"ranks", breakdown.ranks},
               {"window_ns", breakdown.window_ns}, {"parts", Json::array()},
               {"passes", Json::array()},          {"overlapped", Json::array()}};
  for (const BreakdownPart& part : breakdown.parts)
    json["parts"].push_back({{"name", part.name},
                             {"axis", part.axis.empty() ? Json(nullptr) : Json(part.axis)},
                             {"total_ns", part.total_ns},
                             {"mean_s", mean_s(part.total_ns)},
                             {"share", ratio(static_cast<double>(part.total_ns), total)}});
  for (const PassShare& pass : breakdown.passes)
    json["passes"].push_back(
        {{"name", pass.name}, {"total_ns", pass.total_ns}, {"mean_s", mean_s(pass.total_ns)}});
  for (const HiddenComm& hidden : breakdown.overlapped)
    json["overlapped"].push_back({{"axis", hidden.axis},
                                  {"total_ns", hidden.total_ns},
                                  {"transfer_ns", hidden.transfer_ns},
                                  {"mean_s", mean_s(hidden.total_ns)}});
  return json;
}

Json to_json(const CriticalPath& path, int steps) {
  const auto window = static_cast<double>(path.window_ns);
  Json parts = Json::array();
  for (const PathPart& part : path.parts) {
    const auto ns = static_cast<double>(part.total_ns);
    parts.push_back({{"kind", part.kind},
                     {"name", part.name.empty() ? Json(nullptr) : Json(part.name)},
                     {"total_ns", part.total_ns},
                     {"mean_s", 1e-9 * ns / std::max(1, steps)},
                     {"share", ratio(ns, window)}});
  }
  return {{"window_ns", path.window_ns}, {"parts", std::move(parts)}};
}

// Without times, where they mean nothing.
Json to_json(const CollectiveProfile& p, bool timed) {
  const auto if_timed = [&](double s) { return timed ? Json(s) : Json(nullptr); };
  Json json = {{"axis", p.axis},
               {"kind", p.kind},
               {"site", p.site},
               {"group_size", p.group_size},
               {"bytes", p.bytes},
               {"count", p.count},
               {"wait_s", if_timed(p.wait_s)},
               {"wait_max_s", if_timed(p.wait_max_s)},
               {"transfer_s", if_timed(p.transfer_s)},
               {"factor", or_null(p.factor)},
               {"algbw_bytes_per_s", or_null(p.algbw_bytes_per_s)},
               {"busbw_bytes_per_s", or_null(p.busbw_bytes_per_s)},
               {"link", name_of(p.link)},
               {"algorithm", p.algorithm ? Json(name_of(*p.algorithm)) : Json(nullptr)},
               {"link_bytes", p.link_bytes},
               {"ceiling_bytes_per_s", or_null(p.ceiling_bytes_per_s)},
               {"ceiling_fraction", or_null(p.ceiling_fraction())},
               {"measured_bytes_per_s", or_null(p.measured_bytes_per_s)},
               {"measured_fraction", or_null(p.measured_fraction())}};
  if (!p.ceiling_bytes_per_s) json["no_ceiling"] = p.no_ceiling;
  if (!p.algbw_bytes_per_s) json["reason"] = p.no_rate;
  if (!p.factor) json["reason"] = "one rank has no bus";
  return json;
}

Json to_json(const LinkClassFit& of_class) {
  const LinkFit& fit = of_class.fit;
  Json json = {{"link", name_of(of_class.link)},
               {"samples", fit.samples},
               {"sizes", fit.sizes},
               {"latency_s", or_null(fit.latency_s)},
               {"bytes_per_s", or_null(fit.bytes_per_s)},
               {"error", fit.bytes_per_s ? Json(fit.error) : Json(nullptr)}};
  if (!fit.bytes_per_s) json["reason"] = fit.reason;
  return json;
}

Json to_json(const std::optional<CommCount>& count) {
  if (!count) return nullptr;
  return {{"calls", count->calls}, {"elements", count->elements}, {"bytes", count->bytes}};
}

Json to_json(const TrafficRow& row) {
  return {{"stage", row.stage},
          {"rank", row.rank},
          {"axis", name_of(row.key.group)},
          {"site", name_of(row.key.site)},
          {"kind", kind_name(row.key)},
          {"closed_form", to_json(std::optional(row.numbers.closed_form))},
          {"plan", to_json(std::optional(row.numbers.plan))},
          {"counted", to_json(row.numbers.counted)},
          {"equal", row.numbers.equal}};
}

template <class T, class... More>
Json list_of(const std::vector<T>& items, const More&... more) {
  Json json = Json::array();
  for (const T& item : items) json.push_back(to_json(item, more...));
  return json;
}

Json theory_json(const StepShape& shape, const RunReport& report) {
  const auto if_timed = [&](double s) { return report.no_speed.empty() ? Json(s) : Json(nullptr); };
  Json json = {{"bubble_fraction", nullptr},
               {"bubble_over_ideal", nullptr},
               {"forward_s", if_timed(report.forward_s)},
               {"backward_s", if_timed(report.backward_s)},
               {"weight_grad_s", if_timed(report.weight_grad_s)},
               {"idle_s", nullptr},
               {"pipeline_s", nullptr},
               {"source", bubble_source(shape.options)}};
  if (!report.bubble) {
    json["reason"] = report.no_speed.empty() ? no_bubble_form(shape.options) : report.no_speed;
    return json;
  }
  json["idle_s"] = report.bubble->idle;
  json["pipeline_s"] = report.bubble->window();
  if (report.bubble->ideal > 0) {
    json["bubble_fraction"] = report.bubble->of_window();
    json["bubble_over_ideal"] = report.bubble->of_ideal();
  } else {
    json["reason"] = "the pipeline computed nothing";
  }
  return json;
}

Json to_json(const MemoryRow& row) {
  Json json = {{"class", row.name},
               {"closed_form", name_of(row.form)},
               {"closed_form_bytes", or_null(row.closed_form_bytes)},
               {"plan_bytes", row.plan_bytes},
               {"measured_bytes", or_null(row.measured_bytes)},
               {"composition_bytes", row.composition_bytes}};
  if (!row.explanation.empty()) json["explanation"] = row.explanation;
  return json;
}

}  // namespace

Json to_json(FlopConvention convention) {
  const bool megatron = convention == FlopConvention::megatron;
  return {{"name", name_of(convention)},
          {"source", megatron ? "Megatron-LM, training.py: 6 per matmul weight, padded vocabulary, "
                                "causal half of attention"
                              : "Chowdhery et al., PaLM, 2022, appendix B: 6 N + 12 L h s"}};
}

Json to_json(const Metric& metric) {
  Metric m = metric;
  const auto finite = [](double x) { return std::isfinite(x); };
  if (!std::all_of(m.samples.begin(), m.samples.end(), finite)) {
    m.samples.clear();
    m.reason = "not finite";
  }
  if (m.samples.empty())
    return {{"value", nullptr},
            {"unit", m.unit},
            {"n", 0},
            {"reason", m.reason.empty() ? "not measured" : m.reason}};
  // Bytes are whole, and so printed.
  const auto number = [&](double x) {
    return m.unit == "B" && x == std::floor(x) ? Json(static_cast<std::int64_t>(x)) : Json(x);
  };
  const double middle = median(m.samples);
  Json json = {{"value", number(middle)},
               {"unit", m.unit},
               {"n", m.samples.size()},
               {"min", number(*std::min_element(m.samples.begin(), m.samples.end()))},
               {"median", number(middle)},
               {"mean", number(mean(m.samples))}};
  if (const auto spread = stdev(m.samples)) json["stdev"] = *spread;
  if (m.samples.size() > 1) json["samples"] = m.samples;
  return json;
}

Json to_json(const Mesh& mesh) {
  Json axes = Json::object();
  for (int a = 0; a < kAxes; ++a)
    axes[std::string(name_of(static_cast<Axis>(a)))] = mesh.size(static_cast<Axis>(a));
  return {{"text", mesh.to_text()},
          {"world", mesh.world()},
          {"axes", axes},
          {"order", mesh.order()},
          {"ranks_per_node", mesh.nodes().empty() ? Json(mesh.ranks_per_node()) : Json(nullptr)},
          {"nodes", mesh.nodes().empty() ? Json(nullptr) : Json(mesh.nodes())}};
}

Json row_head(const RowHead& head) {
  const Json params = to_json(head.params);
  const Fingerprint machine = fingerprint(head.extra_hard);
  return {{"schema", "meshbench-row/1"},
          {"run_id", new_run_id()},
          {"campaign_id", or_null(head.campaign_id)},
          {"time_utc", utc_now()},
          {"suite", head.suite},
          {"case", head.case_line},
          {"case_version", head.case_version},
          {"params", params},
          {"key", hash_text(fmt::format("{} {} {} {}", head.suite, head.case_line,
                                        head.case_version, params.dump()))},
          {"build", build_json()},
          {"fingerprint",
           {{"id", machine.id}, {"hard", to_json(machine.hard)}, {"soft", to_json(machine.soft)}}},
          {"role", head.role},
          {"pair", or_null(head.pair)},
          {"order", or_null(head.order)},
          {"seed", or_null(head.seed)},
          {"status", "ok"},
          {"status_detail", Json::object()},
          {"metrics", Json::object()},
          {"ranks", Json::object()},
          {"env", Json(published_environment())},
          {"artifacts", relative(head.artifacts)},
          {"raw", nullptr}};
}

void set_status(Json& row, const std::string& status, Json detail) {
  row["status"] = status;
  row["status_detail"] = std::move(detail);
}

void set_out_of_memory(Json& row, const OutOfMemory& error, const std::string& status) {
  set_status(row, status,
             {{"message", error.what()},
              {"needed_bytes", error.needed_bytes},
              {"capacity_bytes", error.free_bytes}});
}

void add_step(Json& row, const StepShape& shape, const RunReport& report, const RowStep& step) {
  for (const Metric& metric : report.metrics) row["metrics"][metric.name] = to_json(metric);
  for (const RankSpread& spread : report.ranks)
    row["ranks"][spread.name] = {{"unit", spread.unit},         {"min", spread.min},
                                 {"min_rank", spread.min_rank}, {"median", spread.median},
                                 {"max", spread.max},           {"max_rank", spread.max_rank}};
  row["mode"] = step.mode;
  row["virtual_time"] = step.virtual_time;
  row["steps"] = {{"warm_up", step.warm_up_steps}, {"measured", report.breakdown.steps}};
  row["mesh"] = to_json(shape.mesh);
  row["convention"] = to_json(step.convention);
  row["peak"] = {{"flops_per_s", or_null(step.peak_flops_per_s)},
                 {"devices", step.devices},
                 {"dtype", name_of(shape.options.dtype)},
                 {"source", step.peak_source}};
  row["verified"] = {
      {"ok", step.verified}, {"by", step.verified_by}, {"error", or_null(step.verified_error)}};
  row["theory"] = theory_json(shape, report);
  row["stages"] = list_of(report.stages, report.axes);
  const bool timed = report.no_speed.empty();
  if (!timed) row["no_speed"] = report.no_speed;
  row["breakdown"] = timed ? to_json(report.breakdown) : Json(nullptr);
  row["critical_path"] =
      timed ? to_json(report.critical_path, report.breakdown.steps) : Json(nullptr);
  row["collectives"] = list_of(report.collectives, timed);
  row["link_references"] = {{"ceilings", or_null(text_or_none(report.links_source))},
                            {"no_measured", or_null(text_or_none(report.no_measured))}};
  row["link_fits"] = list_of(report.link_fits);
  row["memory"] = to_json(report.memory);
  row["traffic"] = list_of(report.traffic);
  row["data_quality"] = {{"invalid_spans", report.invalid_spans}};
  const std::vector<std::string> not_finite = null_non_finite(row);
  if (!not_finite.empty()) row["not_finite"] = not_finite;
}

Json to_json(const MemoryReport& memory) {
  Json json = {{"rank", memory.rank},
               {"stage", memory.stage},
               {"source", memory.total.measured_bytes ? "allocator" : "plan"},
               {"classes", Json::array()},
               {"total", to_json(memory.total)},
               {"host", to_json(memory.host)},
               {"reserved_bytes", memory.reserved_bytes},
               {"peak", memory.peak},
               {"live", Json::array()}};
  for (const MemoryRow& row : memory.classes) json["classes"].push_back(to_json(row));
  for (const LiveTensors& live : memory.live)
    json["live"].push_back({{"name", live.name}, {"count", live.count}, {"bytes", live.bytes}});
  return json;
}

}  // namespace mb
