#include "tests/support/pairwise.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "workloads/base/rng.h"

namespace mb::test {
namespace {

class Search {
 public:
  Search(const std::vector<int>& values, const std::function<bool(const Row&)>& legal, int seed)
      : values_(values), legal_(legal), factors_(static_cast<int>(values.size())), seed_(seed) {
    first_.resize(factors_);
    std::exclusive_scan(values.begin(), values.end(), first_.begin(), 0);
    total_ = first_.back() + values.back();
    seen_.assign(static_cast<std::size_t>(total_) * total_, false);
  }

  Pairwise run() {
    for (int i = 0; i < factors_; ++i) {
      for (int j = i + 1; j < factors_; ++j) {
        for (int a = 0; a < values_[i]; ++a) {
          for (int b = 0; b < values_[j]; ++b) cover(i, a, j, b);
        }
      }
    }
    return std::move(result_);
  }

 private:
  std::vector<bool>::reference seen(int i, int a, int j, int b) {
    return seen_[static_cast<std::size_t>(first_[i] + a) * total_ + first_[j] + b];
  }
  bool is_legal(const Row& row) {
    const bool legal = legal_(row);
    result_.refused += !legal;
    return legal;
  }
  int draw(int below) { return static_cast<int>(random_bits(seed_, 0, drawn_++) % below); }
  std::vector<int> shuffled() {
    std::vector<int> order(factors_);
    std::iota(order.begin(), order.end(), 0);
    for (int i = factors_ - 1; i > 0; --i) std::swap(order[i], order[draw(i + 1)]);
    return order;
  }

  void cover(int i, int a, int j, int b) {
    if (seen(i, a, j, b)) return;
    std::optional<Row> row = start(i, a, j, b);
    if (!row) {
      ++result_.impossible;
      return;
    }
    for (const int factor : shuffled()) {
      if (factor != i && factor != j) improve(*row, factor);
    }
    for (int x = 0; x < factors_; ++x) {
      for (int y = x + 1; y < factors_; ++y) {
        result_.pairs += !seen(x, (*row)[x], y, (*row)[y]);
        seen(x, (*row)[x], y, (*row)[y]) = seen(y, (*row)[y], x, (*row)[x]) = true;
      }
    }
    result_.rows.push_back(*row);
  }

  // A legal row with this pair: the first values besides, or with one other that the pair wants.
  std::optional<Row> start(int i, int a, int j, int b) {
    Row row(factors_, 0);
    row[i] = a, row[j] = b;
    if (is_legal(row)) return row;
    for (int f = 0; f < factors_; ++f) {
      if (f == i || f == j) continue;
      for (int value = 1; value < values_[f]; ++value) {
        row[f] = value;
        if (is_legal(row)) return row;
      }
      row[f] = 0;
    }
    // Or a row that has one of the two already.
    for (Row other : result_.rows) {
      if (other[i] != a && other[j] != b) continue;
      other[i] = a, other[j] = b;
      if (is_legal(other)) return other;
    }
    return std::nullopt;
  }

  // The legal value of `factor` that meets most values of the others for the first time.
  void improve(Row& row, int factor) {
    std::vector<std::pair<int, int>> by_gain;  // the most first, else in a random order
    const int shift = draw(values_[factor]);
    for (int n = 0; n < values_[factor]; ++n) {
      const int value = (n + shift) % values_[factor];
      int gain = 0;
      for (int other = 0; other < factors_; ++other)
        gain += other != factor && !seen(factor, value, other, row[other]);
      by_gain.emplace_back(-gain, value);
    }
    std::stable_sort(by_gain.begin(), by_gain.end(),
                     [](const auto& x, const auto& y) { return x.first < y.first; });
    const int before = row[factor];
    for (const auto& [gain, value] : by_gain) {
      row[factor] = value;
      if (value == before || is_legal(row)) return;
    }
  }

  const std::vector<int>& values_;
  const std::function<bool(const Row&)>& legal_;
  int factors_, total_ = 0;
  std::uint64_t seed_, drawn_ = 0;
  std::vector<int> first_;  // by factor: its first value among all
  std::vector<bool> seen_;  // by two values
  Pairwise result_;
};

}  // namespace

Pairwise pairwise(const std::vector<int>& values, const std::function<bool(const Row&)>& legal,
                  int seed) {
  return Search(values, legal, seed).run();
}

}  // namespace mb::test
