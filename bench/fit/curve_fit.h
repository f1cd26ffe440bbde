// A curve of at most three segments from times of one collective at several sizes.
#pragma once

#include <span>
#include <vector>

#include "parallel/cost/curves.h"

namespace mb {

struct SizeTime {
  double bytes = 0, seconds = 0;
};

inline constexpr std::size_t kSizesOfACurve = 4;

struct CurveFit {
  std::vector<CurveSegment> segments;
  double error = 0;                         // mean of |fit / measured - 1|
  double held_out = 0, held_out_worst = 0;  // of each size by a curve through the others
};

// Least squares of relative errors, over all places where segments may end; as many segments as
// predict sizes best that were left out. Wants kSizesOfACurve different sizes; times of one size
// are merged to their median.
CurveFit fit_curve(std::vector<SizeTime> times);

}  // namespace mb
