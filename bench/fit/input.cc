#include "bench/fit/input.h"

#include "bench/fit/lines.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// A comma and a name that one of the tables has.
bool is_csv(std::string_view text) {
  for (const std::string_view line : lines_of(text.substr(0, 4096))) {
    if (line.empty() || line.starts_with('#')) continue;
    return line.find(',') != std::string_view::npos;
  }
  return false;
}

}  // namespace

void read_measurements(std::string_view text, const std::string& path, FitRows& rows) {
  require(!text.starts_with("\x1f\x8b"), path, ": is compressed; give what gunzip makes of it");
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  require(first != std::string_view::npos, path, ": is empty; did what was to write it run?");
  const bool is_json = text[first] == '{' || text[first] == '[';
  if (is_json && (text[first] == '[' || text.find("\"traceEvents\"") != std::string_view::npos))
    return read_trace(text, path, rows);
  if (is_json) return read_json_rows(text.substr(first), path, rows);
  require(text.find('\0') == std::string_view::npos, path,
          ": is no text; give logs, tables or traces as text");
  if (is_csv(text)) return read_csv(text, path, rows);
  require(
      text.find("algbw") != std::string_view::npos ||
          text.find("nThread") != std::string_view::npos,
      path,
      ": not recognised; give nccl-tests' output, rows of 'meshbench coll' or 'run', a table of "
      "m,n,k,dtype,time_us or case,step_s, or a profiler's trace");
  read_nccl_log(text, path, rows);
}

}  // namespace mb
