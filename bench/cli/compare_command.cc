#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "bench/cli/commands.h"
#include "bench/cli/explained_case.h"
#include "bench/cli/outputs.h"
#include "bench/report/table.h"
#include "workloads/base/error.h"
#include "workloads/base/suggest.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

struct Flags {
  std::vector<std::string> words;
  std::string tokens = "1G", out;
  bool json = false;
};

std::string seconds(double s) { return format_duration(1e9 * s); }
std::string signed_seconds(double s) {
  // A picosecond of seconds is rounding.
  return std::abs(s) < 1e-12 ? "0" : cat(s < 0 ? "-" : "+", seconds(std::abs(s)));
}

// The words of each case. With lines among the arguments, these are cases, and so is a word whose
// key one of them has; without, every value of the key that is there several times. All other words
// are of all cases.
std::vector<std::vector<std::string>> cases_of(const std::vector<std::string>& arguments) {
  std::vector<std::vector<std::string>> lines;
  std::set<std::string> varied;  // keys of the lines
  for (const std::string& argument : arguments) {
    lines.push_back(split_words(argument));
    if (lines.back().size() < 2) continue;
    for (const std::string& word : lines.back()) varied.insert(split_word(word).key);
  }
  const bool quoted = !varied.empty();
  std::map<std::string, int> times;
  for (const std::vector<std::string>& line : lines) {
    if (line.size() == 1) ++times[split_word(line[0]).key];
  }
  std::vector<std::string> several;
  for (const auto& [key, count] : times)
    if (count > 1 && !varied.contains(key)) several.push_back(key);
  require(several.empty() || !quoted, several.empty() ? "" : several[0],
          "= is there several times, beside cases in quotes; put it into the quotes");
  require(several.size() < 2, several.empty() ? "" : cat(several[0], "= and ", several.back()),
          "= are there several times; put each case in quotes: 'mesh=dp8 zero=1' 'mesh=tp8'");
  if (!several.empty()) varied.insert(several[0]);
  std::vector<std::vector<std::string>> cases;
  std::vector<std::string> shared;
  for (std::vector<std::string>& line : lines) {
    if (line.size() == 1 && !varied.contains(split_word(line[0]).key)) {
      shared.push_back(line[0]);
    } else if (!line.empty()) {
      cases.push_back(std::move(line));
    }
  }
  require(cases.size() > 1, "compare wants two cases or more, not ",
          std::max<std::size_t>(1, cases.size()),
          "; give each in quotes, 'mesh=dp8 zero=1' 'mesh=tp8 zero=0', or one key several times: "
          "mesh=dp8 mesh=tp8");
  require(
      cases.size() <= 8, cases.size(),
      " cases are more than a table shows; compare takes 8, and 'meshbench predict' any number");
  for (std::vector<std::string>& words : cases)
    words.insert(words.end(), shared.begin(), shared.end());
  return cases;
}

std::string letter(std::size_t at) { return std::string(1, static_cast<char>('A' + at)); }

// What is in all cases, and of each what is not.
struct Words {
  std::string shared;
  std::vector<std::string> own;
};
Words words_of(const std::vector<ExplainedCase>& cases) {
  std::vector<std::vector<std::string>> all;
  for (const ExplainedCase& e : cases) all.push_back(split_words(to_text(e.c)));
  const auto in_all = [&](const std::string& word) {
    return std::all_of(all.begin(), all.end(), [&](const auto& words) {
      return std::find(words.begin(), words.end(), word) != words.end();
    });
  };
  Words out;
  for (const std::vector<std::string>& words : all) {
    std::string shared, own;
    for (const std::string& word : words) {
      std::string& list = in_all(word) ? shared : own;
      list += (list.empty() ? "" : " ") + word;
    }
    out.shared = shared;
    out.own.push_back(own.empty() ? "(defaults)" : own);
  }
  return out;
}

std::vector<ComparedPart> parts_of(const std::vector<ExplainedCase>& cases) {
  std::vector<const Explained*> steps;
  for (const ExplainedCase& e : cases) steps.push_back(&e.step);
  return compare_parts(steps);
}

std::string parts_table(const std::vector<ExplainedCase>& cases) {
  std::vector<Column> columns = {{"critical path", Align::left}, {"A"}};
  for (std::size_t i = 1; i < cases.size(); ++i) {
    columns.push_back({letter(i)});
    columns.push_back({letter(i) + " - A"});
  }
  Table table(columns);
  const auto add = [&](const std::string& name, const std::vector<double>& of) {
    std::vector<std::string> cells = {name, seconds(of[0])};
    for (std::size_t i = 1; i < of.size(); ++i) {
      cells.push_back(seconds(of[i]));
      cells.push_back(signed_seconds(of[i] - of[0]));
    }
    table.add(cells);
  };
  for (const ComparedPart& part : parts_of(cases)) {
    const double most = *std::max_element(part.seconds.begin(), part.seconds.end());
    if (most > 0) add(part_text(part.kind, part.name), part.seconds);
  }
  std::vector<double> steps;
  for (const ExplainedCase& e : cases) steps.push_back(e.step_s());
  add("sum = step", steps);
  return table.to_text();
}

std::string facts_table(const std::vector<ExplainedCase>& cases, double tokens) {
  std::vector<Column> columns = {{"", Align::left}};
  for (std::size_t i = 0; i < cases.size(); ++i) columns.push_back({letter(i)});
  Table table(columns);
  const auto add = [&](const std::string& name, auto of) {
    std::vector<std::string> cells = {name};
    for (const ExplainedCase& e : cases) cells.push_back(of(e));
    table.add(cells);
  };
  add("80 % of steps from",
      [](const ExplainedCase& e) { return seconds(e.step.prediction.interval.low_s); });
  add("to", [](const ExplainedCase& e) { return seconds(e.step.prediction.interval.high_s); });
  add("devices", [](const ExplainedCase& e) { return cat(e.c.mesh.world()); });
  add("tokens/s", [](const ExplainedCase& e) { return format_count(e.tokens_per_s()); });
  add("MFU %", [](const ExplainedCase& e) { return fmt::format("{:.1f}", 100 * e.mfu); });
  add("memory of a rank", [](const ExplainedCase& e) {
    return cat(format_bytes(static_cast<double>(e.step.prediction.memory.total())),
               e.fits() ? "" : ", does not fit");
  });
  add(cat("device hours for ", format_count(tokens), " tokens"),
      [&](const ExplainedCase& e) { return fmt::format("{:.4g}", e.gpu_hours(tokens)); });
  add("days", [&](const ExplainedCase& e) {
    return fmt::format("{:.4g}", tokens / e.tokens_per_s() / 86400);
  });
  return table.to_text();
}

bool same_prediction(const ExplainedCase& a, const ExplainedCase& b) {
  return a.step_s() == b.step_s() &&
         a.step.prediction.memory.total() == b.step.prediction.memory.total();
}

// Which parts make the difference, the largest first.
std::string verdict(const std::vector<ExplainedCase>& cases, const Words& words) {
  std::string text;
  const std::vector<ComparedPart> parts = parts_of(cases);
  for (std::size_t i = 1; i < cases.size(); ++i) {
    if (same_prediction(cases[i], cases[0])) {
      text += fmt::format(
          "{} is predicted as A is: what differs ({}, not {}) has no effect on this case.\n",
          letter(i), words.own[i], words.own[0]);
      continue;
    }
    std::vector<std::pair<double, std::string>> changes;
    for (const ComparedPart& part : parts)
      changes.emplace_back(part.seconds[i] - part.seconds[0], part_text(part.kind, part.name));
    std::stable_sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) {
      return std::abs(a.first) > std::abs(b.first);
    });
    std::string why;
    for (std::size_t k = 0; k < std::min<std::size_t>(3, changes.size()); ++k) {
      if (std::abs(changes[k].first) < 0.001 * cases[0].step_s()) break;
      why +=
          cat(why.empty() ? ": " : ", ", changes[k].second, " ", signed_seconds(changes[k].first));
    }
    text += fmt::format("A step of {} takes {:.3g} times as long as one of A{}.\n", letter(i),
                        cases[i].step_s() / cases[0].step_s(), why);
  }
  return text;
}

std::string text_of(const std::vector<ExplainedCase>& cases, double tokens) {
  const Words words = words_of(cases);
  std::string text = words.shared + "\n";
  for (std::size_t i = 0; i < cases.size(); ++i)
    text += cat("  ", letter(i), ": ", words.own[i], "\n");
  return text + "\n" + parts_table(cases) + "\n" + facts_table(cases, tokens) + "\n" +
         verdict(cases, words);
}

std::vector<Json> rows_of(const std::vector<ExplainedCase>& cases, double tokens) {
  std::vector<Json> rows;
  const std::vector<ComparedPart> parts = parts_of(cases);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Json row = explained_row("compare", cases[i]);
    Json differences = Json::array();
    for (const ComparedPart& part : parts)
      differences.push_back({{"kind", part.kind},
                             {"name", part.name.empty() ? Json(nullptr) : Json(part.name)},
                             {"seconds", part.seconds[i] - part.seconds[0]}});
    row["comparison"] = {{"base", to_text(cases[0].c)},
                         {"difference_s", cases[i].step_s() - cases[0].step_s()},
                         {"parts", std::move(differences)},
                         {"no_effect", i > 0 && same_prediction(cases[i], cases[0])},
                         {"tokens", tokens},
                         {"device_hours", cases[i].gpu_hours(tokens)}};
    rows.push_back(std::move(row));
  }
  return rows;
}

void show(const Flags& flags) {
  const double tokens = parse_count(flags.tokens, "--tokens");
  require(tokens > 0, "--tokens ", flags.tokens, ": give a number above 0, e.g. 300G");
  check_outputs({{"--out", flags.out}}, "");
  std::vector<ExplainedCase> cases;
  for (const std::vector<std::string>& words : cases_of(flags.words)) {
    try {
      cases.push_back(explain_case(parse_case(in_virtual_time(words))));
    } catch (const InputError&) {
      throw;
    } catch (const Error& error) {
      throw Error(cat("case '", join(words, " "), "': ", error.what()));
    }
  }
  const std::vector<Json> rows = rows_of(cases, tokens);
  if (!flags.out.empty()) write_rows(flags.out, rows);
  if (!flags.json) return fmt::print("{}", text_of(cases, tokens));
  for (const Json& row : rows) fmt::print("{}", to_line(row));
}

}  // namespace

Verb compare_verb() {
  auto flags = std::make_shared<Flags>();
  return {
      .name = "compare",
      .help = "Predicted steps side by side, and what their difference is made of",
      .arguments = {case_words(flags->words),
                    {.name = "--tokens",
                     .into = &flags->tokens,
                     .help = "A budget, for device hours and days",
                     .shows_default = true},
                    {"-o,--out", &flags->out, "Write a row for each case to this file, .jsonl"},
                    {"--json", &flags->json,
                     "Print the rows and nothing else on stdout, one a line"}},
      .footer =
          "Words in one pair of quotes are a case, and so is a word outside whose key one of them "
          "has; all "
          "others are of all cases.\nWithout quotes, a key that is there several times makes a "
          "case of each value. Differences are to the first case, A.\n\n"
          "Examples:\n  meshbench compare model=gpt3-13b dtype=bf16 global_batch=64 'mesh=dp8.tp8 "
          "zero=1' mesh=dp4.pp4.tp4\n"
          "  meshbench compare machine=h100x8 machine=b200x8 model=gpt3-13b mesh=dp8.tp8 "
          "dtype=bf16 global_batch=64 --tokens 300G\n"
          "  meshbench compare machine.oversubscription=1 machine.oversubscription=2 "
          "machine.nodes_per_leaf=4 model=gpt3-13b mesh=dp64.tp8 dtype=bf16",
      .run = [flags] { show(*flags); }};
}

}  // namespace mb
