#include "bench/cli/variation.h"

#include <fmt/core.h>

#include "workloads/base/units.h"

namespace mb {
namespace {

Json to_json(const std::map<int, double>& factors) {
  Json json = Json::object();
  for (const auto& [which, factor] : factors) json[std::to_string(which)] = factor;
  return json;
}

std::string seconds(double s) { return format_duration(1e9 * s); }

}  // namespace

StepVariation variation_of(const Case& c) {
  return {c.imbalance, c.jitter, static_cast<std::uint64_t>(c.seed)};
}

void add_variation(Json& row, const Case& c, const Variation& variation) {
  if (variation.even_step_s) {
    row["imbalance"] = {{"slower_ranks", to_json(c.imbalance.ranks)},
                        {"slower_nics", to_json(c.imbalance.nics)},
                        {"even_step_s", *variation.even_step_s},
                        {"lost_s", variation.step_s - *variation.even_step_s},
                        {"slower_by", variation.step_s / *variation.even_step_s - 1}};
  }
  if (variation.spread) {
    const StepSpread& spread = *variation.spread;
    row["jitter"] = {{"draws", spread.steps_s.size()},
                     {"seed", c.seed},
                     {"expected_step_s", spread.mean_s()},
                     {"p5_step_s", spread.quantile_s(0.05)},
                     {"p50_step_s", spread.quantile_s(0.5)},
                     {"p95_step_s", spread.quantile_s(0.95)},
                     {"without_step_s", variation.step_s},
                     {"slower_by", spread.mean_s() / variation.step_s - 1},
                     {"not_modelled", "the spread of collectives' own times"}};
  }
}

std::string variation_text(const Case& c, const Variation& variation) {
  std::string text;
  if (variation.even_step_s) {
    const double lost = variation.step_s - *variation.even_step_s;
    text += fmt::format("imbalance       {} ({:.2f} %) lost, of {} with all ranks alike\n",
                        seconds(lost), 100 * lost / *variation.even_step_s,
                        seconds(*variation.even_step_s));
    std::string who;
    for (const auto& [rank, factor] : c.imbalance.ranks)
      who += fmt::format("{}rank {} computes {:g} times as long", who.empty() ? "" : ", ", rank,
                         factor);
    for (const auto& [node, factor] : c.imbalance.nics)
      who += fmt::format("{}node {} sends and receives {:g} times as long", who.empty() ? "" : ", ",
                         node, factor);
    text += fmt::format("                {}\n", who);
  }
  if (variation.spread) {
    const StepSpread& spread = *variation.spread;
    text += fmt::format(
        "jitter          {} expected ({:+.2f} %), 5 % below {}, 5 % above {}; {} draws, seed {}\n",
        seconds(spread.mean_s()), 100 * (spread.mean_s() / variation.step_s - 1),
        seconds(spread.quantile_s(0.05)), seconds(spread.quantile_s(0.95)), spread.steps_s.size(),
        c.seed);
  }
  return text;
}

}  // namespace mb
