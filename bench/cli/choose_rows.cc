// Result rows of `meshbench choose`.
#include "bench/analysis/metrics.h"
#include "bench/cli/case_params.h"
#include "bench/cli/choose_text.h"
#include "bench/report/row.h"

namespace mb {
namespace {

Json change_json(const Change& change) {
  Json json = {{"what", change.what}, {"step_s", nullptr}, {"reason", change.reason}};
  if (change.step_s) json["step_s"] = *change.step_s;
  return json;
}

Json choice_json(const Chosen& chosen, const Simulated& s) {
  const Simulated& best = chosen.result.fastest.front();
  const Prediction& p = s.prediction;
  return {{"times_the_best", p.step_s / best.prediction.step_s},
          {"best_is_faster", &s == &best ? 0.5 : faster(chosen, best, s)},
          {"step_low_s", p.interval.low_s},
          {"step_high_s", p.interval.high_s},
          {"closed_form_s", s.form_s},
          {"slots_s", s.walk_s},
          {"memory_bytes", p.memory.total()},
          {"capacity_bytes", static_cast<std::int64_t>(chosen.space.question().memory_bytes)},
          {"on_front", false},
          {"calibrated_on", chosen.space.question().stack.source},
          {"extrapolated", p.interval.extrapolated}};
}

// What is told of the best alone.
void add_best(const Chosen& chosen, Json& choice) {
  for (const TimePart& part : chosen.best.parts) choice["bound_by"][part.name] = part.seconds;
  for (const Change& change : chosen.changes) choice["changes"].push_back(change_json(change));
  for (const RuleResult& rule : chosen.rules) {
    Json json = {{"rule", rule.name}, {"step_s", nullptr}, {"case", nullptr}};
    if (rule.best) {
      json["step_s"] = rule.best->prediction.step_s;
      json["case"] = to_text(case_of(chosen.asked, chosen.space, rule.best->candidate));
    }
    choice["rules"].push_back(json);
  }
  for (const AxisPlacement& axis : chosen.best.axes)
    choice["axes"].push_back({{"axis", axis.axis},
                              {"link", name_of(axis.link)},
                              {"intra_bytes", axis.intra_bytes},
                              {"inter_bytes", axis.inter_bytes}});
  const SearchResult& r = chosen.result;
  choice["searched"] = {{"cases", r.cases},
                        {"walked", r.walked},
                        {"simulated", r.simulated},
                        {"left", r.left},
                        {"too_large", r.too_large},
                        {"slower_in_chunks", r.slower_in_chunks},
                        {"closed_forms_s", r.forms_s},
                        {"total_s", r.total_s}};
  for (const auto& [rule, rejected] : r.rejected)
    choice["searched"]["rejected"][rule] = rejected.cases;
}

Json row_of(const Chosen& chosen, const Simulated& s) {
  const Case c = case_of(chosen.asked, chosen.space, s.candidate);
  RowHead head = head_of(c);
  head.suite = "choose";
  Json row = row_head(head);
  row["metrics"]["simulated_step_s"] = to_json(value("simulated_step_s", "s", s.prediction.step_s));
  row["choice"] = choice_json(chosen, s);
  row["machine"] = Json::parse(to_json(c.machine));
  return row;
}

}  // namespace

std::vector<Json> choose_rows(const Chosen& chosen) {
  std::vector<Json> rows;
  const auto& fastest = chosen.result.fastest;
  const auto on_front = [&](const Simulated& s) {
    for (const Simulated& f : chosen.result.front) {
      if (f.candidate == s.candidate) return true;
    }
    return false;
  };
  for (const Simulated& s : fastest) {
    rows.push_back(row_of(chosen, s));
    rows.back()["choice"]["on_front"] = on_front(s);
    if (rows.size() == 1) add_best(chosen, rows.back()["choice"]);
  }
  for (const Simulated& s : chosen.result.front) {
    bool known = false;
    for (const Simulated& f : fastest) known = known || f.candidate == s.candidate;
    if (known) continue;
    rows.push_back(row_of(chosen, s));
    rows.back()["choice"]["on_front"] = true;
  }
  return rows;
}

}  // namespace mb
