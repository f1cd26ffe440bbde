#include "workloads/base/units.h"

#include <gtest/gtest.h>

#include "tests/support/error.h"

namespace mb {
namespace {

TEST(FormatBytes, UsesPowersOf1024) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(80.0 * 1024 * 1024 * 1024), "80 GiB");
  EXPECT_EQ(format_bytes(-2048), "-2 KiB");
}

TEST(FormatBytes, DecimalUsesPowersOf1000) {
  EXPECT_EQ(format_bytes_decimal(1500), "1.5 KB");
  EXPECT_EQ(format_bytes_decimal(80e9), "80 GB");
}

TEST(FormatCount, KeepsFourDigits) {
  EXPECT_EQ(format_count(124439808), "124.4 M");
  EXPECT_EQ(format_count(512), "512");
  EXPECT_EQ(format_count(1.008e12), "1.008 T");
}

TEST(FormatCount, RoundsBeforeItPicksTheUnit) { EXPECT_EQ(format_count(999999), "1 M"); }

TEST(FormatDuration, TurnsToMinutesFromTenOnly) {
  EXPECT_EQ(format_duration(250), "250 ns");
  EXPECT_EQ(format_duration(12500), "12.5 us");
  EXPECT_EQ(format_duration(3.2e6), "3.2 ms");
  EXPECT_EQ(format_duration(102.6e9), "102.6 s");
  EXPECT_EQ(format_duration(720e9), "12 m");
}

TEST(FormatRate, UsesPowersOf1000) {
  EXPECT_EQ(format_bandwidth(300e9), "300 GB/s");
  EXPECT_EQ(format_flop_rate(312e12), "312 TFLOP/s");
  EXPECT_EQ(format_flop_rate(98.7e9), "98.7 GFLOP/s");
}

TEST(ParseBytes, TakesBinaryDecimalAndBareLetters) {
  EXPECT_EQ(parse_bytes("4096", "size"), 4096);
  EXPECT_EQ(parse_bytes("64K", "size"), 65536);
  EXPECT_EQ(parse_bytes("64k", "size"), 65536);
  EXPECT_EQ(parse_bytes("64KiB", "size"), 65536);
  EXPECT_EQ(parse_bytes("64KB", "size"), 64000);
  EXPECT_EQ(parse_bytes("1.5 GiB", "size"), 1610612736);
  EXPECT_EQ(parse_bytes("8G", "size"), std::int64_t{8} << 30);
}

TEST(ParseBytes, RefusesAnythingElse) {
  for (const char* bad : {"", "K", "-1", "64X", "64KBs", "1.5", "64  K", "1e30", "nan", "4 096"}) {
    EXPECT_EQ(message_of([&] { parse_bytes(bad, "--max-bytes"); }),
              cat("--max-bytes=", bad,
                  ": not a size; give whole bytes as 4096, 64K or 64KiB (1024), 64KB (1000), up to "
                  "TB"));
  }
}

TEST(ParseDuration, ReturnsNanoseconds) {
  EXPECT_EQ(parse_duration_ns("250ns", "t"), 250);
  EXPECT_EQ(parse_duration_ns("12.5us", "t"), 12500);
  EXPECT_EQ(parse_duration_ns("3 ms", "t"), 3e6);
  EXPECT_EQ(parse_duration_ns("2s", "t"), 2e9);
  EXPECT_EQ(parse_duration_ns("1m", "t"), 60e9);
}

TEST(ParseDuration, WantsAUnit) {
  EXPECT_EQ(message_of([] { parse_duration_ns("10", "--latency"); }),
            "--latency=10: not a duration; give a number with ns, us, ms, s or m (minutes), such "
            "as 2.5ms");
}

TEST(ParseBandwidth, TakesBytesOrBits) {
  EXPECT_EQ(parse_bandwidth("300GB/s", "b"), 300e9);
  EXPECT_EQ(parse_bandwidth("400Gbit/s", "b"), 50e9);
}

TEST(ParseBandwidth, RefusesZeroAndBareNumbers) {
  for (const char* bad : {"0GB/s", "300", "300GB", "-1GB/s"}) {
    EXPECT_EQ(message_of([&] { parse_bandwidth(bad, "b"); }),
              cat("b=", bad,
                  ": not a bandwidth; give a number above 0 with MB/s, GB/s (1e9 bytes), TB/s or "
                  "Gbit/s"));
  }
}

TEST(ParseFlopRate, TakesSiPrefixes) {
  EXPECT_EQ(parse_flop_rate("312TFLOP/s", "peak"), 312e12);
  EXPECT_EQ(parse_flop_rate("60 GFLOP/s", "peak"), 60e9);
  EXPECT_EQ(message_of([] { parse_flop_rate("312T", "peak"); }),
            "peak=312T: not a compute rate; give a number above 0 with GFLOP/s, TFLOP/s or "
            "PFLOP/s");
}

TEST(ParseCount, KIs1000) {
  EXPECT_EQ(parse_count("512", "n"), 512);
  EXPECT_EQ(parse_count("64K", "n"), 64000);
  EXPECT_EQ(parse_count("1.5G", "n"), 1.5e9);
  EXPECT_EQ(message_of([] { parse_count("many", "n"); }),
            "n=many: not a count; give a number, with K, M, G or T for powers of 1000, such as "
            "124.4M");
}

TEST(ParseInteger, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(parse_integer("-24", "n"), -24);
  for (const char* bad : {"", "2.0", "24x", " 24", "0x10", "99999999999999999999"}) {
    EXPECT_EQ(message_of([&] { parse_integer(bad, "n"); }),
              cat("n=", bad, ": not a whole number; give digits only, such as 24"));
  }
}

TEST(ParseNumber, RefusesWhatIsNotFinite) {
  EXPECT_EQ(parse_number("1e-5", "n"), 1e-5);
  for (const char* bad : {"", "abc", "1e999", "inf", "nan", "1,5"}) {
    EXPECT_EQ(message_of([&] { parse_number(bad, "n"); }),
              cat("n=", bad, ": not a number; give one such as 0.02 or 1e-5"));
  }
}

TEST(ParseBool, TakesFourWords) {
  EXPECT_TRUE(parse_bool("true", "b") && parse_bool("1", "b"));
  EXPECT_FALSE(parse_bool("false", "b") || parse_bool("0", "b"));
  EXPECT_EQ(message_of([] { parse_bool("yes", "b"); }), "b=yes: give true or false");
}

}  // namespace
}  // namespace mb
