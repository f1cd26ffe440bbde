// A case as the fields of a row.
#pragma once

#include <map>
#include <string>

#include "bench/cli/case.h"
#include "bench/report/fingerprint.h"
#include "bench/report/row.h"

namespace mb {

// Every key with its value in effect, and what follows from them.
std::map<std::string, Fact> params_of(const Case& c);
// What identifies a row of the case.
RowHead head_of(const Case& c);

}  // namespace mb
