#include "tests/support/fixture.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include "workloads/base/error.h"
#include "workloads/base/rng.h"
#include "workloads/base/suggest.h"
#include "workloads/base/units.h"

namespace mb {

const std::string& Fixture::setting(std::string_view key) const {
  for (const auto& [name, value] : settings) {
    if (name == key) return value;
  }
  throw Error(cat("the fixture has no setting '", key, "'"));
}

double Fixture::number(std::string_view key) const { return parse_number(setting(key), key); }

const std::vector<double>& Fixture::array(const std::string& name) const {
  const auto found = arrays.find(name);
  if (found != arrays.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, values] : arrays) names.push_back(known);
  throw Error(
      cat("the fixture has no array '", name, "'; did you mean '", nearest(name, names), "'?"));
}

ModelConfig Fixture::model() const {
  ModelConfig model;
  for (const auto& [key, value] : settings) {
    if (key.starts_with("model.")) set_field(model, key, value);
  }
  check_model(model);
  return model;
}

std::vector<std::string> Fixture::parameters() const {
  constexpr std::string_view kPrefix = "gradient/";
  std::vector<std::string> names;
  for (const auto& [name, values] : arrays) {
    if (name.starts_with(kPrefix)) names.push_back(name.substr(kPrefix.size()));
  }
  return names;
}

Fixture read_fixture(std::string_view name) {
  const std::string path = cat(MB_REFERENCE_DIR, "/", name, ".txt");
  std::ifstream file(path);
  require(file.good(), path, ": cannot open");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_fixture(text.str(), path);
}

Fixture parse_fixture(std::string_view text, std::string_view origin) {
  Fixture fixture;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos) {
      fixture.settings.emplace_back(line.substr(0, equals), line.substr(equals + 1));
      continue;
    }
    std::istringstream header(line);
    std::string name, rest;
    std::size_t count = 0;
    require(header >> name >> count && !(header >> rest), origin, ": '", line,
            "' is neither key=value nor name count");
    std::vector<double> values;
    std::getline(lines, line);
    std::istringstream numbers(line);
    for (std::string number; numbers >> number;) values.push_back(parse_number(number, name));
    require(values.size() == count, origin, ": ", name, " has ", values.size(), " values, not ",
            count);
    require(fixture.arrays.emplace(name, std::move(values)).second, origin, ": ", name,
            " is there twice");
  }
  return fixture;
}

std::array<double, 3> checksums(std::string_view name, std::uint64_t seed,
                                std::span<const double> values) {
  std::array<double, 3> sums{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    sums[0] += values[i];
    sums[1] += values[i] * values[i];
    sums[2] += values[i] * random_normal(seed + 1, stream_of(name), i);
  }
  return sums;
}

double fixture_parameter(const ModelConfig& model, std::string_view name, std::uint64_t seed,
                         double perturbation, std::uint64_t index) {
  const double draw = random_normal(seed, stream_of(name), index);
  if (name.ends_with(".bias")) return perturbation * draw;
  if (name.find("norm") != std::string_view::npos) return 1.0 + perturbation * draw;
  const bool feeds_sum = name.ends_with("attention.out.weight") ||
                         name.ends_with("mlp.down.weight") || name.ends_with("experts.down.weight");
  const double scale = feeds_sum ? std::sqrt(2.0 * static_cast<double>(model.layers)) : 1.0;
  return model.init_std / scale * draw;
}

}  // namespace mb
