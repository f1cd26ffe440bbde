// Reads measurements, whatever form they have.
#pragma once

#include <string>
#include <string_view>

#include "bench/fit/rows.h"

namespace mb {

// Adds what a file holds, recognised by its content: nccl-tests' text, rows of `meshbench coll` and
// `run`, cases with step times, tables of operations or matmuls, JSON of Google Benchmark, traces
// of PyTorch and of `meshbench run --trace`. Throws Error naming file and line, and what would do.
void read_measurements(std::string_view text, const std::string& path, FitRows& rows);

// Each of the forms. `path` is for messages, and where a log does not say which collective it
// times, for its name.
void read_nccl_log(std::string_view text, const std::string& path, FitRows& rows);
void read_csv(std::string_view text, const std::string& path, FitRows& rows);
void read_json_rows(std::string_view text, const std::string& path, FitRows& rows);
void read_trace(std::string_view text, const std::string& path, FitRows& rows);

}  // namespace mb
