// A case as the fields of a row.
#pragma once

#include <map>
#include <string>

#include "bench/cli/case.h"
#include "bench/report/fingerprint.h"

namespace mb {

// Every key with its value in effect, and what follows from them.
std::map<std::string, Fact> params_of(const Case& c);

}  // namespace mb
