#include "bench/cli/nearby_cases.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "parallel/exec/predict.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

using Json = nlohmann::ordered_json;

bool equally_long_and_large(const Prediction& a, const Prediction& b) {
  return a.step_s == b.step_s && a.memory.total() == b.memory.total() &&
         a.interval.high_s == b.interval.high_s;
}

// Each field of `used` that differs from `named`, by itself as it was.
template <class T>
void add_without_effect(std::vector<std::string>& found, const char* prefix, const Case& c,
                        const T& named, T Case::*part,
                        T (*from_json)(std::string_view, std::string_view),
                        const Prediction& predicted) {
  const Json used = Json::parse(to_json(c.*part)), base = Json::parse(to_json(named));
  for (const auto& [key, value] : used.items()) {
    if (key == "name" || key == "source" || key == "curves" || value == base.at(key)) continue;
    Json without = used;
    without[key] = base.at(key);
    Case other = c;
    other.*part = from_json(without.dump(), key);
    const Prediction p =
        predict(other.model, other.mesh, other.options, other.machine, other.stack);
    if (equally_long_and_large(p, predicted)) found.push_back(cat(prefix, key, "=", value.dump()));
  }
}

// The case with some of its words replaced.
std::vector<std::string> with_words(const Case& c, const std::vector<std::string>& replaced) {
  std::vector<std::string> words = replaced;
  for (const std::string& word : split_words(to_text(c))) {
    const std::string key = word.substr(0, word.find('='));
    const bool is_replaced = std::any_of(replaced.begin(), replaced.end(), [&](const auto& other) {
      return other.substr(0, other.find('=')) == key;
    });
    if (!is_replaced) words.push_back(word);
  }
  return words;
}

bool fits(const std::vector<std::string>& words) {
  try {
    const Case c = parse_case(words);
    const StepMemory memory = memory_of_step(c.model, c.mesh, c.options, c.machine, c.stack);
    return static_cast<double>(memory.total()) <= 1e9 * c.machine.memory_gb;
  } catch (const Error&) {
    return false;  // a case that its rules refuse is no way out
  }
}

// What costs time least comes first.
std::vector<std::vector<std::string>> ways_to_less_memory(const Case& c) {
  std::vector<std::vector<std::string>> ways;
  std::vector<std::string> all;
  const bool divides = c.mesh.data_size() > 1;
  if (divides && c.options.zero < 1) ways.push_back({"zero=1"});
  if (c.mesh.size(Axis::tp) > 1 && !c.options.sequence_parallel) {
    ways.push_back({"sequence_parallel=on"});
    all.push_back("sequence_parallel=on");
  }
  if (c.options.recompute == Recompute::none) ways.push_back({"recompute=attention"});
  for (std::int64_t b = c.options.micro_batch / 2; b >= 1; b /= 2)
    ways.push_back({cat("micro_batch=", b)});
  if (c.options.recompute != Recompute::full) {
    ways.push_back({"recompute=full"});
    all.push_back("recompute=full");
  }
  if (c.options.micro_batch > 1) all.push_back("micro_batch=1");
  for (const int zero : {1, 2, 3}) {
    if (!divides || zero <= c.options.zero) continue;
    if (zero > 1) ways.push_back({cat("zero=", zero)});
    ways.push_back(all);
    ways.back().push_back(cat("zero=", zero));
  }
  if (!divides && !all.empty()) ways.push_back(all);
  return ways;
}

}  // namespace

std::vector<std::string> inputs_without_effect(const Case& c) {
  const Case named = read_case({cat("machine=", c.machine_name), cat("stack=", c.stack_name)});
  if (named.machine == c.machine && named.stack == c.stack) return {};
  const Prediction predicted = predict(c.model, c.mesh, c.options, c.machine, c.stack);
  std::vector<std::string> found;
  add_without_effect(found, "machine.", c, named.machine, &Case::machine, machine_from_json,
                     predicted);
  add_without_effect(found, "stack.", c, named.stack, &Case::stack, stack_from_json, predicted);
  return found;
}

std::string nearest_that_fits(const Case& c) {
  for (const std::vector<std::string>& way : ways_to_less_memory(c)) {
    if (!fits(with_words(c, way))) continue;
    std::string text;
    for (const std::string& word : way) text += cat(text.empty() ? "" : " ", word);
    return text;
  }
  return "";
}

}  // namespace mb
