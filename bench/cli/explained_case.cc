#include "bench/cli/explained_case.h"

#include <ostream>

#include "bench/analysis/metrics.h"
#include "bench/cli/case_params.h"
#include "bench/cli/commands.h"
#include "bench/cli/peak.h"
#include "bench/report/output.h"
#include "bench/report/row.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"
#include "workloads/model/counts.h"

namespace mb {

std::vector<std::string> in_virtual_time(std::vector<std::string> words) {
  for (const std::string& word : words) {
    if (!word.starts_with("mode=")) continue;
    require(word == "mode=sim", word, ": this is a question of virtual time; leave mode= out");
    return words;
  }
  words.push_back("mode=sim");
  return words;
}

bool ExplainedCase::fits() const {
  return static_cast<double>(step.prediction.memory.total()) <= 1e9 * c.machine.memory_gb;
}

ExplainedCase explain_case(const Case& c) {
  ExplainedCase out{
      .c = c,
      .step = explain(c.model, c.mesh, c.options, c.machine, c.stack),
      .tokens = static_cast<double>(c.global_batch) * static_cast<double>(c.model.sequence),
      .model_flops = model_flops(c.model, c.global_batch, FlopConvention::megatron)};
  const Peak peak = peak_of(c);
  out.mfu = out.model_flops / (out.step_s() * peak.devices * peak.flops_per_s.value());
  return out;
}

std::string part_text(std::string_view kind, std::string_view name) {
  if (kind == "wait") return "bubble and waiting";
  if (kind == "exposed") return cat("exposed ", name);
  if (kind == "copy") return "exposed copies";
  return std::string(name.empty() ? kind : name);
}

Json explained_row(const std::string& suite, const ExplainedCase& e) {
  RowHead head = head_of(e.c);
  head.suite = suite;
  Json row = row_head(head);
  const StepMemory& memory = e.step.prediction.memory;
  const StepInterval& interval = e.step.prediction.interval;
  const Peak peak = peak_of(e.c);
  for (const Metric& metric :
       {value("step_s", "s", e.step_s()), value("tokens", "token", e.tokens),
        value("tokens_per_s", "token/s", e.tokens_per_s()),
        value("model_flops", "FLOP", e.model_flops), value("mfu", "1", e.mfu),
        value("peak_bytes", "B", static_cast<double>(memory.planned))})
    row["metrics"][metric.name] = to_json(metric);
  row["mode"] = name_of(e.c.mode);
  row["virtual_time"] = true;
  row["mesh"] = to_json(e.c.mesh);
  row["convention"] = to_json(FlopConvention::megatron);
  row["peak"] = {{"flops_per_s", *peak.flops_per_s},
                 {"devices", peak.devices},
                 {"dtype", name_of(e.c.options.dtype)},
                 {"source", peak.source}};
  row["model"] = Json::parse(to_json(e.c.model));
  row["machine"] = Json::parse(to_json(e.c.machine));
  row["stack"] = Json::parse(to_json(e.c.stack));
  row["prediction"] = {{"step_low_s", interval.low_s},
                       {"step_high_s", interval.high_s},
                       {"covers", 0.8},
                       {"calibrated_on", e.c.stack.source},
                       {"extrapolated", interval.extrapolated},
                       {"not_modelled", e.step.prediction.not_modelled}};
  Json parts = Json::array();
  for (const ExplainedPart& part : e.step.parts)
    parts.push_back({{"kind", part.kind},
                     {"name", part.name.empty() ? Json(nullptr) : Json(part.name)},
                     {"seconds", part.seconds},
                     {"share", part.seconds / e.step_s()}});
  row["explained"] = {{"parts", std::move(parts)}};
  if (!e.fits())
    set_status(row, "oom_predicted",
               {{"message", cat("a rank needs ", format_bytes(static_cast<double>(memory.total())),
                                " of the ", format_bytes(1e9 * e.c.machine.memory_gb), " that ",
                                e.c.machine.name, " has")},
                {"needed_bytes", memory.total()},
                {"capacity_bytes", static_cast<std::int64_t>(1e9 * e.c.machine.memory_gb)}});
  return row;
}

void write_rows(const std::string& path, const std::vector<Json>& rows) {
  try {
    write_whole(path, [&](std::ostream& out) {
      for (const Json& row : rows) out << to_line(row);
    });
  } catch (const Error& error) {
    throw Exit(kExitNoData, error.what());
  }
}

}  // namespace mb
