// Quantities as people write them, both ways: sizes, durations, rates, counts and plain numbers.
//
// Formatting keeps four significant digits and picks the largest unit that leaves at least 1.
// Parsing is strict: the whole text must be one number, at most one space, and a unit spelled as
// here. `subject` is what the value is for, "--max-bytes" say; a bad value throws Error, which
// names subject, value and the accepted forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mb {

// Powers of 1024: "512 B", "1.5 GiB"; powers of 1000: "1.5 GB".
std::string format_bytes(double bytes);
std::string format_bytes_decimal(double bytes);
// "4096", "64K" (1024, as nccl-tests), "64KiB", "64KB" (1000). Whole bytes, not negative.
std::int64_t parse_bytes(std::string_view text, std::string_view subject);

// "250 ns", "12.5 us", "3.2 ms", "1.5 s"; minutes ("12 m") from ten minutes on.
std::string format_duration(double ns);
// "250ns", "12.5us", "3ms", "2s", "10m"; a unit is needed. Returns ns, not negative.
double parse_duration_ns(std::string_view text, std::string_view subject);

// Powers of 1000: "12.5 GB/s".
std::string format_bandwidth(double bytes_per_s);
// "300GB/s", or a link's "400Gbit/s". Returns bytes per second, above 0.
double parse_bandwidth(std::string_view text, std::string_view subject);

// "312 TFLOP/s".
std::string format_flop_rate(double flops_per_s);
// "312TFLOP/s", "60 GFLOP/s". Returns FLOP per second, above 0.
double parse_flop_rate(std::string_view text, std::string_view subject);

// SI prefixes: "124.4 M", "512". Billions are G.
std::string format_count(double count);
// "512", "124.4M", "1.5G"; K is 1000 here. Not negative.
double parse_count(std::string_view text, std::string_view subject);

// Plain numbers, without a unit. A bool is "true", "false", "1" or "0".
std::int64_t parse_integer(std::string_view text, std::string_view subject);
double parse_number(std::string_view text, std::string_view subject);
bool parse_bool(std::string_view text, std::string_view subject);

}  // namespace mb
