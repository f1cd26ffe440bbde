#include "bench/fit/constants.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "workloads/base/error.h"

namespace mb {
namespace {

using Vector = std::vector<double>;
using Rows = std::vector<std::size_t>;

class Problem {
 public:
  Problem(const std::vector<Constant>& constants, std::span<const double> measured,
          const PredictRow& predict)
      : constants_(constants), measured_(measured), predict_(predict) {}

  std::size_t rows() const { return measured_.size(); }
  double residual(const Vector& logs, std::size_t row) const {
    Vector values;
    for (const double log : logs) values.push_back(std::exp(log));
    return std::log(predict_(values, row) / measured_[row]);
  }
  double squares(const Vector& logs, const Rows& rows) const {
    double sum = 0;
    for (const std::size_t row : rows) {
      const double r = residual(logs, row);
      sum += r * r;
    }
    return sum;
  }
  Vector bounded(Vector logs) const {
    for (std::size_t c = 0; c < logs.size(); ++c)
      logs[c] = std::clamp(logs[c], std::log(constants_[c].low), std::log(constants_[c].high));
    return logs;
  }

  // The best of all combinations of a start and a fourth and four times of it.
  Vector start(const Rows& rows) const {
    Vector best, logs(constants_.size());
    double least = INFINITY;
    std::size_t combinations = 1;
    for (std::size_t c = 0; c < constants_.size(); ++c) combinations *= 3;
    for (std::size_t k = 0; k < combinations; ++k) {
      std::size_t digit = k;
      for (std::size_t c = 0; c < logs.size(); ++c, digit /= 3)
        logs[c] =
            std::log(constants_[c].start) + std::log(4) * (static_cast<double>(digit % 3) - 1);
      const Vector inside = bounded(logs);
      const double sum = squares(inside, rows);
      if (sum < least) least = sum, best = inside;
    }
    return best;
  }

  Vector descend(Vector logs, const Rows& rows, int rounds) const {
    double sum = squares(logs, rows), damping = 1e-6;
    for (int round = 0; round < rounds; ++round) {
      const auto [normal, gradient] = linearized(logs, rows);
      bool better = false;
      for (int attempt = 0; attempt < 6 && !better; ++attempt) {
        const Vector next = bounded(step(logs, normal, gradient, damping));
        const double then = squares(next, rows);
        better = then < sum;
        if (better) {
          const bool enough = sum - then < 1e-7 * sum;
          logs = next, sum = then, damping = std::max(1e-9, damping / 10);
          if (enough) return logs;
        } else {
          damping = damping * 30 + 1e-4;
        }
      }
      if (!better) break;
    }
    return logs;
  }

 private:
  struct Normal {
    std::vector<Vector> matrix;
    Vector gradient;
  };
  Normal linearized(const Vector& logs, const Rows& rows) const {
    constexpr double kDelta = 1e-3;
    const std::size_t n = logs.size();
    Normal normal{std::vector<Vector>(n, Vector(n)), Vector(n)};
    for (const std::size_t row : rows) {
      const double r = residual(logs, row);
      Vector slope(n);
      for (std::size_t c = 0; c < n; ++c) {
        Vector moved = logs;
        // Away from the nearer bound.
        const double by = logs[c] + kDelta > std::log(constants_[c].high) ? -kDelta : kDelta;
        moved[c] += by;
        slope[c] = (residual(moved, row) - r) / by;
      }
      for (std::size_t a = 0; a < n; ++a) {
        normal.gradient[a] += slope[a] * r;
        for (std::size_t b = 0; b < n; ++b) normal.matrix[a][b] += slope[a] * slope[b];
      }
    }
    return normal;
  }
  // Levenberg's damped normal equations by elimination; no step is longer than a factor of e.
  static Vector step(const Vector& logs, std::vector<Vector> a, Vector g, double damping) {
    const std::size_t n = logs.size();
    double trace = 0;
    for (std::size_t c = 0; c < n; ++c) trace += a[c][c];
    for (std::size_t c = 0; c < n; ++c) a[c][c] += damping * trace + 1e-12;
    for (std::size_t c = 0; c < n; ++c) {
      for (std::size_t row = c + 1; row < n; ++row) {
        const double factor = a[row][c] / a[c][c];
        for (std::size_t k = c; k < n; ++k) a[row][k] -= factor * a[c][k];
        g[row] -= factor * g[c];
      }
    }
    Vector x = logs;
    Vector delta(n);
    for (std::size_t c = n; c-- > 0;) {
      double sum = -g[c];
      for (std::size_t k = c + 1; k < n; ++k) sum -= a[c][k] * delta[k];
      delta[c] = sum / a[c][c];
    }
    for (std::size_t c = 0; c < n; ++c) x[c] += std::clamp(delta[c], -1.0, 1.0);
    return x;
  }

  const std::vector<Constant>& constants_;
  std::span<const double> measured_;
  const PredictRow& predict_;
};

}  // namespace

ConstantsFit fit_constants(const std::vector<Constant>& constants, std::span<const double> measured,
                           const PredictRow& predict, HoldOut hold_out) {
  require(measured.size() > constants.size(), measured.size(), " rows; ", constants.size(),
          " constants take ", rows_wanted(constants.size()));
  const Problem problem(constants, measured, predict);
  Rows all(measured.size());
  std::iota(all.begin(), all.end(), 0);
  const Vector best = problem.descend(problem.start(all), all, 12);
  ConstantsFit fit;
  for (const double log : best) fit.values.push_back(std::exp(log));
  const double n = static_cast<double>(all.size());
  for (const std::size_t row : all)
    fit.error += std::abs(std::exp(problem.residual(best, row)) - 1) / n;
  if (hold_out == HoldOut::no) return fit;
  const std::size_t folds = std::min<std::size_t>(10, all.size());
  double squares = 0;
  for (std::size_t fold = 0; fold < folds; ++fold) {
    Rows others;
    for (const std::size_t row : all)
      if (row % folds != fold) others.push_back(row);
    const Vector without = problem.descend(best, others, 2);
    for (std::size_t row = fold; row < all.size(); row += folds) {
      const double log = problem.residual(without, row), off = std::abs(std::exp(log) - 1);
      fit.held_out += off / n;
      fit.held_out_worst = std::max(fit.held_out_worst, off);
      squares += log * log;
    }
  }
  fit.log_sigma = std::sqrt(squares / n);
  return fit;
}

}  // namespace mb
