// A case in virtual time, predicted and explained: what compare and scaling tell of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/analysis/explain.h"
#include "bench/cli/case.h"
#include "bench/report/json.h"

namespace mb {

// The words with mode=sim among them. Throws Error where they name another mode.
std::vector<std::string> in_virtual_time(std::vector<std::string> words);

struct ExplainedCase {
  Case c;
  Explained step;
  double tokens = 0;       // of a step
  double model_flops = 0;  // of a step, as Megatron-LM counts
  double mfu = 0;
  double step_s() const { return step.prediction.step_s; }
  double tokens_per_s() const { return tokens / step_s(); }
  // What all devices together take for so many tokens.
  double gpu_hours(double of_tokens) const {
    return of_tokens / tokens_per_s() * c.mesh.world() / 3600;
  }
  bool fits() const;
};
ExplainedCase explain_case(const Case& c);

// "bubble and waiting" and the like, as people read them.
std::string part_text(std::string_view kind, std::string_view name);

// A row of suite `suite` with metrics and "explained"; status oom_predicted where it does not fit.
Json explained_row(const std::string& suite, const ExplainedCase& explained);
// JSON Lines, whole or not at all. Throws Exit.
void write_rows(const std::string& path, const std::vector<Json>& rows);

}  // namespace mb
