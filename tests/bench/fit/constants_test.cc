#include "bench/fit/constants.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/error.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

const std::vector<Constant> kTwo = {{"latency", 1, 1e-3, 1e3}, {"rate", 1, 1e-3, 1e3}};

double model(std::span<const double> v, std::size_t row) {
  return v[0] + std::pow(2.0, static_cast<double>(row)) / v[1];
}

std::vector<double> rows_of(std::size_t rows, double noise) {
  std::vector<double> measured;
  for (std::size_t row = 0; row < rows; ++row)
    measured.push_back(model(std::vector<double>{20, 7}, row) *
                       std::exp(noise * random_normal(1, 2, row)));
  return measured;
}

TEST(Constants, AreThoseThatMadeTheRows) {
  const ConstantsFit fit = fit_constants(kTwo, rows_of(12, 0), model);
  EXPECT_NEAR(fit.values[0], 20, 1e-3);
  EXPECT_NEAR(fit.values[1], 7, 1e-3);
  EXPECT_LT(fit.held_out, 1e-4);
}

TEST(Constants, HeldOutErrorIsThatOfTheNoise) {
  const ConstantsFit fit = fit_constants(kTwo, rows_of(16, 0.05), model);
  EXPECT_NEAR(fit.log_sigma, 0.05, 0.03);
  EXPECT_GT(fit.held_out, fit.error) << "a row that was not seen is further off";
  EXPECT_GE(fit.held_out_worst, fit.held_out);
}

TEST(Constants, StayWithinTheirBounds) {
  const ConstantsFit fit = fit_constants({{"share", 0.5, 0.1, 1}}, std::vector<double>{3, 6, 9},
                                         [](std::span<const double> v, std::size_t row) {
                                           return v[0] * static_cast<double>(row + 1);
                                         });
  EXPECT_DOUBLE_EQ(fit.values[0], 1) << "three times as much would fit";
}

TEST(Constants, AsManyAsThereAreRowsAreRefused) {
  EXPECT_NE(message_of([] {
              fit_constants(kTwo, rows_of(2, 0), model);
            }).find("2 rows; 2 constants take 6"),
            std::string::npos);
}

}  // namespace
}  // namespace mb
