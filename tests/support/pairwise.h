// All-pairs test design: few rows in which every two values of different factors that go together
// stand side by side at least once.
#pragma once

#include <functional>
#include <vector>

namespace mb::test {

// A value of every factor, by its index.
using Row = std::vector<int>;

struct Pairwise {
  std::vector<Row> rows;
  int pairs = 0;       // that stand side by side
  int impossible = 0;  // for which no legal row was found
  int refused = 0;     // rows that were tried and not legal
};
// `values`: how many each factor has. The row of each factor's first value has to be legal: the
// search starts there. The same on every call with the same `seed`.
Pairwise pairwise(const std::vector<int>& values, const std::function<bool(const Row&)>& legal,
                  int seed);

}  // namespace mb::test
