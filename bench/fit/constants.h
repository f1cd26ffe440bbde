// Constants of a model from measured rows, and how far it is off on rows that it has not seen.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace mb {

struct Constant {
  std::string name;
  double start = 1, low = 0, high = 0;  // all above 0
};

struct ConstantsFit {
  std::vector<double> values;  // in the order of the constants
  double error = 0;            // mean of |predicted / measured - 1| over the rows
  // Of each row predicted with constants that were fitted on the others: the same mean, its
  // largest, and the spread of log(measured / predicted).
  double held_out = 0, held_out_worst = 0, log_sigma = 0;
};

// What the model says of a row, in the unit of `measured`.
using PredictRow = std::function<double(std::span<const double> values, std::size_t row)>;

enum class HoldOut : bool { no, yes };
// Least squares of log(predicted / measured) by Gauss and Newton on the logarithms of the
// constants, from the best of three starts for each; ten folds, or a row each where there are
// fewer, are held out in turn. There have to be more rows than constants.
ConstantsFit fit_constants(const std::vector<Constant>& constants, std::span<const double> measured,
                           const PredictRow& predict, HoldOut hold_out = HoldOut::yes);

// Rows that so many constants take: with fewer, what is held out says nothing.
constexpr std::size_t rows_wanted(std::size_t constants) { return 3 * constants; }

}  // namespace mb
