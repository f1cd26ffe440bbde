// Tables for the terminal. The first is that of nccl-tests, column for column, so that what reads
// its output reads this: sizes in bytes, times in us, 1 GB/s = 1e9 B/s.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/coll/summary.h"

namespace mb {

// A point as it was measured, with what it means.
struct MeasuredPoint {
  PointResult result;
  PointSummary summary;
};

// At most 7 characters, as nccl-tests prints a time.
std::string time_text(double us);
// Lines that begin with #: what is measured on which groups, and the heads of the columns.
std::string table_head(const CollConfig& config, const std::vector<Point>& points,
                       const Surroundings& around);
// The row of each group at one size, and before them # lines with whatever is remarkable. Either
// half may be missing, not both.
std::string table_rows(const CollConfig& config, const MeasuredPoint* out_of_place,
                       const MeasuredPoint* in_place);
// The two closing lines that parsers look for, and nccl-tests' last #.
std::string table_foot(const std::vector<MeasuredPoint>& all);

// The factor of each operation and what S means, links and ceilings: before the run.
std::string explanation(const CollConfig& config, const Surroundings& around);
// What the first table has no room for, a line for the slowest group of each point.
std::string second_table(const std::vector<MeasuredPoint>& all);
// Slow-down of each axis' operation (rows) while each axis' (columns) runs beside it.
std::string matrix_text(const std::vector<std::string>& axes,
                        const std::vector<std::vector<std::optional<double>>>& slow_down);

// Wrong elements of all groups and points.
std::int64_t wrong_elements(const std::vector<MeasuredPoint>& all);

}  // namespace mb
