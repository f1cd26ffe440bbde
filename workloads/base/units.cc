#include "workloads/base/units.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <span>

#include "workloads/base/error.h"

namespace mb {
namespace {

// A unit's value in the base unit; formatting uses it for values of `from` base units or more.
struct Unit {
  std::string_view name;
  double scale;
  double from;
};
constexpr Unit unit(std::string_view name, double scale) { return {name, scale, scale}; }

constexpr double kKi = 1024, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi, kPi = kTi * kKi;

// Ascending; the first is the base unit.
constexpr Unit kBinary[] = {unit("B", 1),     unit("KiB", kKi), unit("MiB", kMi),
                            unit("GiB", kGi), unit("TiB", kTi), unit("PiB", kPi)};
constexpr Unit kDecimal[] = {unit("B", 1),    unit("KB", 1e3),  unit("MB", 1e6),
                             unit("GB", 1e9), unit("TB", 1e12), unit("PB", 1e15)};
constexpr Unit kBare[] = {unit("", 1),    unit("K", kKi), unit("k", kKi),
                          unit("M", kMi), unit("G", kGi), unit("T", kTi)};
constexpr Unit kDuration[] = {
    unit("ns", 1), unit("us", 1e3), unit("ms", 1e6), unit("s", 1e9), {"m", 60e9, 600e9}};
constexpr Unit kBandwidth[] = {unit("B/s", 1), unit("KB/s", 1e3), unit("MB/s", 1e6),
                               unit("GB/s", 1e9), unit("TB/s", 1e12)};
constexpr Unit kBitRate[] = {unit("Mbit/s", 1e6 / 8), unit("Gbit/s", 1e9 / 8),
                             unit("Tbit/s", 1e12 / 8)};
constexpr Unit kFlopRate[] = {unit("FLOP/s", 1),    unit("KFLOP/s", 1e3),  unit("MFLOP/s", 1e6),
                              unit("GFLOP/s", 1e9), unit("TFLOP/s", 1e12), unit("PFLOP/s", 1e15),
                              unit("EFLOP/s", 1e18)};
constexpr Unit kCount[] = {unit("", 1),    unit("K", 1e3),  unit("k", 1e3), unit("M", 1e6),
                           unit("G", 1e9), unit("T", 1e12), unit("P", 1e15)};

std::string four_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

// Rounds first, so that 999.99 K is told as 1 M.
std::string format(double value, std::span<const Unit> units) {
  if (!std::isfinite(value)) return four_digits(value);
  const double rounded = std::abs(std::stod(four_digits(value)));
  const Unit* best = &units.front();
  for (const Unit& unit : units) {
    if (rounded >= unit.from && unit.scale > best->scale) best = &unit;
  }
  const std::string number = four_digits(value / best->scale);
  return best->name.empty() ? number : number + " " + std::string(best->name);
}

// The whole of `text` as a finite number.
std::optional<double> number_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

// A number, at most one space, and a unit of one of the tables.
std::optional<double> quantity_in(std::string_view text,
                                  std::initializer_list<std::span<const Unit>> tables) {
  const std::size_t digits = text.find_last_of("0123456789.");
  if (digits == std::string_view::npos) return {};
  const std::optional<double> number = number_in(text.substr(0, digits + 1));
  std::string_view name = text.substr(digits + 1);
  if (name.size() > 1 && name.front() == ' ') name.remove_prefix(1);
  for (const std::span<const Unit> table : tables) {
    for (const Unit& unit : table) {
      if (number && unit.name == name) return *number * unit.scale;
    }
  }
  return {};
}

}  // namespace

std::string format_bytes(double bytes) { return format(bytes, kBinary); }
std::string format_bytes_decimal(double bytes) { return format(bytes, kDecimal); }
std::string format_duration(double ns) { return format(ns, kDuration); }
std::string format_bandwidth(double bytes_per_s) { return format(bytes_per_s, kBandwidth); }
std::string format_flop_rate(double flops_per_s) { return format(flops_per_s, kFlopRate); }
std::string format_count(double count) { return format(count, kCount); }

std::int64_t parse_bytes(std::string_view text, std::string_view subject) {
  const auto bytes = quantity_in(text, {kBare, kBinary, kDecimal});
  require(bytes && *bytes >= 0 && *bytes < 0x1p63 && *bytes == std::floor(*bytes), subject, "=",
          text,
          ": not a size; give whole bytes as 4096, 64K or 64KiB (1024), 64KB (1000), up to TB");
  return static_cast<std::int64_t>(*bytes);
}

double parse_duration_ns(std::string_view text, std::string_view subject) {
  const auto ns = quantity_in(text, {kDuration});
  require(ns && *ns >= 0, subject, "=", text,
          ": not a duration; give a number with ns, us, ms, s or m (minutes), such as 2.5ms");
  return *ns;
}

double parse_bandwidth(std::string_view text, std::string_view subject) {
  const auto rate = quantity_in(text, {kBandwidth, kBitRate});
  require(rate && *rate > 0, subject, "=", text,
          ": not a bandwidth; give a number above 0 with MB/s, GB/s (1e9 bytes), TB/s or Gbit/s");
  return *rate;
}

double parse_flop_rate(std::string_view text, std::string_view subject) {
  const auto rate = quantity_in(text, {kFlopRate});
  require(rate && *rate > 0, subject, "=", text,
          ": not a compute rate; give a number above 0 with GFLOP/s, TFLOP/s or PFLOP/s");
  return *rate;
}

double parse_count(std::string_view text, std::string_view subject) {
  const auto count = quantity_in(text, {kCount});
  require(count && *count >= 0, subject, "=", text,
          ": not a count; give a number, with K, M, G or T for powers of 1000, such as 124.4M");
  return *count;
}

std::int64_t parse_integer(std::string_view text, std::string_view subject) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size(), subject, "=", text,
          ": not a whole number; give digits only, such as 24");
  return value;
}

double parse_number(std::string_view text, std::string_view subject) {
  const auto value = number_in(text);
  require(value.has_value(), subject, "=", text, ": not a number; give one such as 0.02 or 1e-5");
  return *value;
}

bool parse_bool(std::string_view text, std::string_view subject) {
  const bool on = text == "true" || text == "1";
  require(on || text == "false" || text == "0", subject, "=", text, ": give true or false");
  return on;
}

}  // namespace mb
