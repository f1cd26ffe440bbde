// The product of every choice that a case has, by its words: model, mesh, schedule and strategies.
#pragma once

#include <string>
#include <vector>

namespace mb::test {

struct Product {
  std::vector<std::string> cases;              // their words
  int pairs = 0, impossible = 0, refused = 0;  // as in Pairwise
};
// Cases of at most 8 ranks in which every two choices meet that may, among them
// `numbers`: words that say dtype and optimizer.
Product product_of_choices(const std::vector<std::string>& numbers, int seed);

}  // namespace mb::test
