#include "bench/report/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>

namespace mb {
namespace {

// Code points; every character that we print takes one column.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string cut(const std::string& line, const TableStyle& style) {
  if (style.width <= 0 || width_of(line) <= static_cast<std::size_t>(style.width)) return line;
  const std::string_view mark = style.utf8 ? "…" : "...";
  std::size_t keep = style.width - std::min<std::size_t>(width_of(mark), style.width), at = 0;
  for (; at < line.size() && keep > 0; --keep)
    for (++at; at < line.size() && (line[at] & 0xC0) == 0x80;) ++at;
  return line.substr(0, at) + std::string(mark);
}

std::string csv_cell(const std::string& cell) {
  if (cell.find_first_of(",\"\n\r") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (char c : cell) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

std::string markdown_cell(const std::string& cell) {
  std::string out;
  for (char c : cell) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

struct Prefix {
  double size;
  std::string_view unit;
};

std::vector<Prefix> prefixes_of(std::string_view unit) {
  if (unit == "s") return {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
  if (unit == "B")
    return {{0x1p40, "TiB"}, {0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}, {1, "B"}};
  if (unit == "1" || unit.empty()) return {{1, ""}};
  return {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}, {1, ""}};
}

}  // namespace

TableStyle style_of_environment(int width) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    const std::string_view locale = value;
    const auto names = [&](std::string_view part) {
      return locale.find(part) != std::string_view::npos;
    };
    return {names("UTF-8") || names("utf8") || names("UTF8") || names("utf-8"), width};
  }
  return {false, width};
}

void Table::add(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::to_text(const TableStyle& style) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = width_of(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, width_of(row[c]));
    widths.push_back(width);
  }
  std::string out;
  const auto line = [&](const auto& cell_of) {
    std::string text;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string cell = cell_of(c),
                        pad(widths[c] - std::min(widths[c], width_of(cell)), ' ');
      if (c > 0) text += "  ";
      text += columns_[c].align == Align::right ? pad + cell : cell + pad;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += cut(text, style) + '\n';
  };
  line([&](std::size_t c) { return columns_[c].title; });
  std::string rule;
  std::size_t total = 2 * (columns_.size() - std::min<std::size_t>(1, columns_.size()));
  for (std::size_t width : widths) total += width;
  for (std::size_t i = 0; i < total; ++i) rule += style.utf8 ? "─" : "-";
  if (style.width > 0 && total > static_cast<std::size_t>(style.width))
    rule.resize(style.width * (style.utf8 ? 3 : 1));
  out += rule + '\n';
  for (const auto& row : rows_) line([&](std::size_t c) { return row[c]; });
  return out;
}

std::string Table::to_csv() const {
  std::string out;
  for (std::size_t c = 0; c < columns_.size(); ++c)
    out += (c ? "," : "") + csv_cell(columns_[c].title);
  out += '\n';
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) out += (c ? "," : "") + csv_cell(row[c]);
    out += '\n';
  }
  return out;
}

std::string Table::to_markdown() const {
  std::string out = "|", rule = "|";
  for (const Column& column : columns_) {
    out += ' ' + markdown_cell(column.title) + " |";
    rule += column.align == Align::right ? " ---: |" : " --- |";
  }
  out += '\n' + rule + '\n';
  for (const auto& row : rows_) {
    out += '|';
    for (const std::string& cell : row) out += ' ' + markdown_cell(cell) + " |";
    out += '\n';
  }
  return out;
}

Scaled scale(std::span<const std::optional<double>> values, std::string_view unit) {
  double largest = 0;
  bool whole = true;
  for (const auto& value : values)
    if (value) largest = std::max(largest, std::abs(*value)), whole &= *value == std::floor(*value);
  const std::vector<Prefix> prefixes = prefixes_of(unit);
  const auto fits = std::find_if(prefixes.begin(), prefixes.end(),
                                 [&](const Prefix& p) { return largest >= p.size; });
  const Prefix prefix = fits == prefixes.end() ? prefixes.back() : *fits;
  const double top = largest / prefix.size;
  const bool exact = whole && prefix.size == 1 && unit != "s";
  const int decimals =
      exact || top <= 0 ? 0 : std::clamp(3 - static_cast<int>(std::floor(std::log10(top))), 0, 6);
  const bool base = unit == "s" || unit == "B" || unit == "1";
  Scaled out{base ? std::string(prefix.unit) : std::string(prefix.unit) + std::string(unit), {}};
  for (const auto& value : values)
    out.cells.push_back(value ? fmt::format("{:.{}f}", *value / prefix.size, decimals) : "-");
  return out;
}

}  // namespace mb
