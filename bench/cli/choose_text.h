// What `meshbench choose` tells, for people and as rows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/choose/explain.h"
#include "bench/choose/search.h"
#include "bench/cli/choose_case.h"
#include "bench/report/json.h"

namespace mb {

struct Chosen {
  const ChooseCase& asked;
  const Space& space;
  const SearchResult& result;
  Anatomy best;
  std::vector<Change> changes;
  std::vector<RuleResult> rules;
};

std::string choose_text(const Chosen& chosen);
// Nothing fits: how much is missing, and what would do.
std::string nothing_fits_text(const ChooseCase& asked, const Space& space,
                              const SearchResult& result);
// A row for each of the fastest and of the front.
std::vector<Json> choose_rows(const Chosen& chosen);

// Of two predictions, by the stack's spread (explain.h).
double faster(const Chosen& chosen, const Simulated& a, const Simulated& b);

}  // namespace mb
