// What tracing the steps of a case has told, for rows and for people.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/measure.h"
#include "bench/report/json.h"

namespace mb {

// The block "profile" of a row.
Json profile_json(const Measured& measured);
// For the summary: what traced and at what cost, what became of records, how far device events are
// from them.
std::vector<std::string> profile_lines(const Measured& measured);
// Time and launches by class of instruction; empty where nothing was traced.
std::string profile_table(const Measured& measured);

}  // namespace mb
