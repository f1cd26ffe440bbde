// What unlike ranks and spread cost a step in virtual time, as row and text.
#pragma once

#include <optional>
#include <string>

#include "bench/cli/case.h"
#include "bench/report/json.h"
#include "parallel/exec/jitter.h"
#include "parallel/exec/predict.h"

namespace mb {

struct Variation {
  double step_s = 0;
  std::optional<double> even_step_s;  // without stragglers and slow NICs, where there are some
  std::optional<StepSpread> spread;   // with jitter=
};

StepVariation variation_of(const Case& c);

// Adds "imbalance" and "jitter", each where the case has it.
void add_variation(Json& row, const Case& c, const Variation& variation);
std::string variation_text(const Case& c, const Variation& variation);

}  // namespace mb
