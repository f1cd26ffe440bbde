#include "bench/cli/choose_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "bench/report/table.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

std::string seconds(double s) { return format_duration(1e9 * s); }
std::string gigabytes(double bytes) { return fmt::format("{:.1f} GB", 1e-9 * bytes); }
std::string count(std::int64_t n) {
  std::string text = cat(n);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(at, ",");
  return text;
}

// The words in which a case differs from what all have.
std::string choices_of(const Chosen& chosen, const Candidate& candidate) {
  const Case c = case_of(chosen.asked, chosen.space, candidate);
  Case plain = chosen.asked.base;
  std::string text;
  for (const CaseKey& key : case_keys()) {
    const std::string value = key.get(c);
    if (key.name == "mesh" || key.name == "micro_batch" || value != key.get(plain))
      text += cat(text.empty() ? "" : " ", quoted(key.name, value));
  }
  return text;
}

std::string searched(const Chosen& chosen) {
  const SearchResult& r = chosen.result;
  return fmt::format(
      "searched        {} cases of {} meshes by closed form in {}, {} of them walked slot by slot, "
      "{} simulated; {} in all\n"
      "                {} need more than the {} of a device, {} are slower than with fewer "
      "tensor_chunks, {} other choices break a rule, {} orders of axes are no better than "
      "another\n",
      count(r.cases), count(static_cast<std::int64_t>(chosen.space.meshes().size())),
      seconds(r.forms_s), count(r.walked), count(r.simulated), seconds(r.total_s),
      count(r.too_large), gigabytes(chosen.space.question().memory_bytes),
      count(r.slower_in_chunks),
      [&] {
        std::int64_t sum = 0;
        for (const auto& [rule, rejected] : r.rejected) sum += rejected.cases;
        return count(sum);
      }(),
      count(chosen.space.dominated_orders()));
}

// Where the search had to stop: what it does not know.
std::string left_text(const SearchResult& r) {
  if (r.left == 0) return "";
  return fmt::format(
      "                {} more may be the fastest if estimates err by as much as they may, and "
      "were "
      "not simulated; fix choices to search less\n",
      count(r.left));
}

std::string best_text(const Chosen& chosen) {
  const Simulated& best = chosen.result.fastest.front();
  const Question& q = chosen.space.question();
  const Prediction& p = best.prediction;
  const double tokens = static_cast<double>(q.global_batch) * static_cast<double>(q.model.sequence);
  std::string text = fmt::format(
      "\nbest            {}\n"
      "step time       {}; 80 % of measured steps lie between {} and {}\n"
      "throughput      {:.1f} tokens/s for each GPU\n"
      "memory          {} of {}: {} live, {} rounding and fragmentation, {} libraries and context\n"
      "calibrated on   {}\n",
      choices_of(chosen, best.candidate), seconds(p.step_s), seconds(p.interval.low_s),
      seconds(p.interval.high_s), tokens / p.step_s / q.gpus,
      gigabytes(static_cast<double>(p.memory.total())), gigabytes(q.memory_bytes),
      gigabytes(static_cast<double>(p.memory.planned + p.memory.stack)),
      gigabytes(static_cast<double>(p.memory.rounding + p.memory.fragmentation)),
      gigabytes(static_cast<double>(p.memory.library + p.memory.context)), q.stack.source);
  for (const std::string& reason : p.interval.extrapolated)
    text += fmt::format("                extrapolated: {}\n", reason);
  text += "bound by        ";
  bool first = true;
  for (const TimePart& part : chosen.best.parts) {
    const double share = part.seconds / p.step_s;
    if (share < 0.005) continue;
    text += fmt::format("{}{} {:.1f} %", first ? "" : ", ", part.name, 100 * share);
    first = false;
  }
  text += ", of the mean rank\n";
  if (chosen.best.host_s > 0.001 * p.step_s)
    text += fmt::format("                the host's launches are {:.1f} % of it\n",
                        100 * chosen.best.host_s / p.step_s);
  return text + fmt::format("to run it       meshbench run {}\n",
                            to_text(case_of(chosen.asked, chosen.space, best.candidate)));
}

std::string fastest_table(const Chosen& chosen) {
  const auto& fastest = chosen.result.fastest;
  Table table({{"step"}, {"times"}, {"best beats it"}, {"memory"}, {"case", Align::left}});
  for (const Simulated& s : fastest) {
    const bool same = &s == &fastest.front();
    table.add({seconds(s.prediction.step_s),
               fmt::format("{:.3f}", s.prediction.step_s / fastest.front().prediction.step_s),
               same ? "-" : fmt::format("{:.0f} %", 100 * faster(chosen, fastest.front(), s)),
               gigabytes(needed_bytes(s.prediction)), choices_of(chosen, s.candidate)});
  }
  return "\nThe fastest that were simulated, and with what probability the first is faster than "
         "each. Errors of two "
         "cases go together\nby 0.48 on one mesh and by 0.04 on two, as on published rows; they "
         "are not independent.\n" +
         table.to_text();
}

std::string front_table(const Chosen& chosen) {
  Table table({{"step"}, {"times"}, {"memory"}, {"case", Align::left}});
  const double best = chosen.result.fastest.front().prediction.step_s;
  for (const Simulated& s : chosen.result.front)
    table.add({seconds(s.prediction.step_s), fmt::format("{:.3f}", s.prediction.step_s / best),
               gigabytes(needed_bytes(s.prediction)), choices_of(chosen, s.candidate)});
  return "\nTime against memory: of the simulated cases, those that no other beats in both.\n" +
         table.to_text();
}

std::string rules_table(const Chosen& chosen) {
  Table table(
      {{"rule of thumb, at its best", Align::left}, {"step"}, {"behind"}, {"case", Align::left}});
  const double best = chosen.result.fastest.front().prediction.step_s;
  for (const RuleResult& rule : chosen.rules) {
    if (!rule.best) {
      table.add({rule.name, "-", "-", "none that fits"});
      continue;
    }
    const double behind = rule.best->prediction.step_s / best - 1;
    table.add({rule.name, seconds(rule.best->prediction.step_s),
               fmt::format("{:.1f} %", 100 * std::max(0.0, behind)),
               choices_of(chosen, rule.best->candidate)});
  }
  return "\n" + table.to_text();
}

std::string changes_table(const Chosen& chosen) {
  Table table({{"the best with", Align::left}, {"step"}, {"change"}, {"", Align::left}});
  const double best = chosen.result.fastest.front().prediction.step_s;
  for (const Change& change : chosen.changes) {
    table.add({change.what, change.step_s ? seconds(*change.step_s) : "-",
               change.step_s ? fmt::format("{:+.2f} %", 100 * (*change.step_s / best - 1)) : "-",
               change.reason});
  }
  return "\n" + table.to_text();
}

std::string links_table(const Chosen& chosen) {
  Table table({{"axis", Align::left},
               {"ranks"},
               {"links", Align::left},
               {"groups across nodes"},
               {"between nodes"},
               {"within nodes"}});
  for (const AxisPlacement& axis : chosen.best.axes) {
    table.add({axis.axis, cat(axis.ranks), std::string(name_of(axis.link)),
               cat(count(axis.crossing), " of ", count(axis.groups)),
               format_bytes(axis.inter_bytes), format_bytes(axis.intra_bytes)});
  }
  const Mesh& mesh = chosen.space.meshes()[chosen.result.fastest.front().candidate.mesh];
  return fmt::format("\nLinks of the best, order={}; bytes of all ranks in a step, over rings.\n",
                     order_text(mesh)) +
         table.to_text();
}

std::string rejected_table(const Chosen& chosen) {
  Table table({{"choices"}, {"rule that they break", Align::left}});
  std::vector<std::pair<std::int64_t, std::string>> rules;
  for (const auto& [rule, rejected] : chosen.result.rejected)
    rules.emplace_back(rejected.cases, rule);
  std::stable_sort(rules.begin(), rules.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [cases, rule] : rules) table.add({count(cases), rule});
  return rules.empty() ? "" : "\n" + table.to_text();
}

}  // namespace

double faster(const Chosen& chosen, const Simulated& a, const Simulated& b) {
  const Prediction &p = a.prediction, &q = b.prediction;
  // The interval is that of 80 %: 1.2816 standard deviations to each side.
  const double log_sigma = std::log(p.interval.high_s / p.step_s) / 1.2816;
  const auto& meshes = chosen.space.meshes();
  return probability_faster(p.step_s, q.step_s, log_sigma,
                            meshes[a.candidate.mesh] == meshes[b.candidate.mesh]);
}

std::string choose_text(const Chosen& chosen) {
  const Question& q = chosen.space.question();
  return fmt::format("{} on {} GPUs of {}, {} sequences of {} tokens a step, stack {}, {}\n\n",
                     q.model.name, q.gpus, q.machine.name, count(q.global_batch), q.model.sequence,
                     q.stack.name, name_of(q.options.dtype)) +
         searched(chosen) + left_text(chosen.result) + best_text(chosen) + fastest_table(chosen) +
         front_table(chosen) + rules_table(chosen) + changes_table(chosen) + links_table(chosen) +
         rejected_table(chosen);
}

std::string nothing_fits_text(const ChooseCase& asked, const Space& space,
                              const SearchResult& result) {
  if (!result.smallest) {
    std::string text = "every case breaks a rule:";
    for (const auto& [rule, rejected] : result.rejected) text += "\n  " + rejected.example;
    return text;
  }
  const Question& q = space.question();
  const double needed = needed_bytes(result.smallest->prediction);
  std::string text = cat("nothing fits: of ", count(result.cases), " cases the smallest needs ",
                         gigabytes(needed), " of the ", gigabytes(q.memory_bytes), " of a device, ",
                         gigabytes(needed - q.memory_bytes),
                         " too much: ", to_text(case_of(asked, space, result.smallest->candidate)));
  for (int times = 2; times <= 64; times *= 2) {
    Question more = q;
    more.gpus *= times;
    more.mesh.reset();
    more.order.reset();
    try {
      const Space larger(more);
      const SearchResult found = search(larger, {.best = 1, .front = 0});
      if (found.fastest.empty()) continue;
      return text + cat("\nThe nearest that fits has gpus=", more.gpus, ": ",
                        to_text(case_of(asked, larger, found.fastest.front().candidate)));
    } catch (const Error&) {
      break;  // more than the machine has
    }
  }
  return text + cat("\nGive more GPUs, a larger machine.memory_gb=, or leave fixed choices out");
}

}  // namespace mb
