// Reference results of whole models, as tests/reference/make_model_fixtures.py writes them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workloads/model/config.h"

namespace mb {

struct Fixture {
  std::vector<std::pair<std::string, std::string>> settings;  // in the order of the file
  std::map<std::string, std::vector<double>> arrays;

  // Each throws Error if there is none; `number` also if it is no number.
  const std::string& setting(std::string_view key) const;
  double number(std::string_view key) const;
  const std::vector<double>& array(const std::string& name) const;

  // The settings "model.*" as a model.
  ModelConfig model() const;
  // Names of the parameters, sorted.
  std::vector<std::string> parameters() const;
};

// From tests/reference/NAME.txt. Throws Error naming the file.
Fixture read_fixture(std::string_view name);
// `origin` is for messages.
Fixture parse_fixture(std::string_view text, std::string_view origin);

// Sum, sum of squares, and dot product with random_normal(seed + 1, stream_of(name), i).
std::array<double, 3> checksums(std::string_view name, std::uint64_t seed,
                                std::span<const double> values);

// An element of a parameter as the fixtures draw it; `index` is row-major in the whole, unpadded
// tensor. Norm weights lie around 1 and biases around 0, by perturbation * a standard normal.
double fixture_parameter(const ModelConfig& model, std::string_view name, std::uint64_t seed,
                         double perturbation, std::uint64_t index);

}  // namespace mb
