// Tables with a header: matmuls by m, n, k, operations by their text, steps by their case.
#include <algorithm>
#include <cmath>
#include <map>

#include "bench/fit/input.h"
#include "bench/fit/lines.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"
#include "workloads/ops/op.h"

namespace mb {
namespace {

struct TimeColumn {
  std::string_view name;
  double seconds;
};
constexpr TimeColumn kTimes[] = {
    {"time_us", 1e-6}, {"us", 1e-6},   {"time_ms", 1e-3}, {"ms", 1e-3}, {"step_ms", 1e-3},
    {"step_s", 1},     {"seconds", 1}, {"time_s", 1},     {"ns", 1e-9}, {"time_ns", 1e-9}};

DType dtype_named(const std::string& name, const std::string& where) {
  static const std::map<std::string, DType> table = {
      {"fp32", DType::fp32},    {"float32", DType::fp32},  {"float", DType::fp32},
      {"bf16", DType::bf16},    {"bfloat16", DType::bf16}, {"fp16", DType::fp16},
      {"float16", DType::fp16}, {"half", DType::fp16},     {"fp64", DType::fp64},
      {"float64", DType::fp64}, {"double", DType::fp64}};
  const auto found = table.find(name);
  require(found != table.end(), where, "dtype '", name, "'; give fp32, bf16, fp16 or fp64");
  return found->second;
}

class Csv {
 public:
  Csv(const std::string& path, FitRows& rows) : path_(path), out_(rows) {}

  void read(std::string_view text) {
    for (const std::string_view line : lines_of(text)) {
      ++line_;
      if (line.empty() || line.starts_with('#')) continue;
      const std::vector<std::string> cells = cells_of(line);
      if (columns_.empty()) {
        header(cells);
        continue;
      }
      require(cells.size() == width_, where(), cells.size(), " cells, and the header has ", width_,
              "; is the file cut off?");
      row(cells);
      ++taken_;
    }
    require(taken_ > 0, path_, ": no row below the header; give some");
  }

 private:
  std::string where() const { return cat(path_, ":", line_, ": "); }
  bool has(const char* name) const { return columns_.contains(name); }

  void header(const std::vector<std::string>& cells) {
    width_ = cells.size();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      columns_[cells[i]] = i;
      for (const TimeColumn& column : kTimes) {
        if (column.name != cells[i]) continue;
        require(!time_, where(), "columns '", time_ ? time_->name : "", "' and '", cells[i],
                "' both are times; leave one out");
        time_ = &column, time_at_ = i;
      }
    }
    const bool matmuls = has("m") && has("n") && has("k");
    require(time_ && (matmuls || has("op") || has("case")), where(),
            "columns m,n,k,dtype and time_us are a table of matmuls, op and us one of operations, "
            "case and step_s one of steps; this has none of them");
  }

  void row(const std::vector<std::string>& cells) {
    const std::string& text = cells[time_at_];
    const double seconds =
        time_->seconds * checked_time(parse_number(text, where() + std::string(time_->name)),
                                      cat(where(), time_->name, "=", text));
    if (has("case")) {
      out_.steps.push_back({cells[columns_["case"]], seconds, path_, cat(path_, ":", line_)});
    } else if (has("op")) {
      out_.operations.push_back({{cells[columns_["op"]], 1e6 * seconds}, path_});
    } else {
      const auto size = [&](const char* name) {
        const std::int64_t n = parse_integer(cells[columns_[name]], where() + name);
        require(n > 0, where(), name, "=", n, ": give a size above 0");
        return n;
      };
      const Op op{Matmul{size("m"), size("n"), size("k")},
                  has("dtype") ? dtype_named(cells[columns_["dtype"]], where()) : DType::fp32};
      out_.operations.push_back({{to_text(op), 1e6 * seconds}, path_});
    }
  }

  const std::string& path_;
  FitRows& out_;
  std::map<std::string, std::size_t> columns_;
  const TimeColumn* time_ = nullptr;
  std::size_t width_ = 0, time_at_ = 0, taken_ = 0;
  int line_ = 0;
};

}  // namespace

double checked_time(double value, const std::string& where) {
  require(std::isfinite(value) && value > 0, where, ": give a finite time above 0");
  return value;
}

void read_csv(std::string_view text, const std::string& path, FitRows& rows) {
  Csv(path, rows).read(text);
}

}  // namespace mb
