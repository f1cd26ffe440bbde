#include "bench/report/json.h"

#include <cmath>

#include "bench/report/output.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

void visit_non_finite(Json& json, const Json::json_pointer& at, std::vector<std::string>& found) {
  if (json.is_number_float() && !std::isfinite(json.get<double>())) {
    found.push_back(at.to_string());
    json = nullptr;
  } else if (json.is_object()) {
    for (auto& [key, value] : json.items()) visit_non_finite(value, at / key, found);
  } else if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) visit_non_finite(json[i], at / i, found);
  }
}

std::string dump(const Json& json, int indent) {
  Json copy = json;
  const std::vector<std::string> found = null_non_finite(copy);
  require(found.empty(), "a number at ", found.empty() ? "" : found[0],
          " is not finite; JSON cannot hold it");
  return json.dump(indent) + '\n';
}

}  // namespace

std::vector<std::string> null_non_finite(Json& json) {
  std::vector<std::string> found;
  visit_non_finite(json, Json::json_pointer(), found);
  return found;
}

std::string to_line(const Json& json) { return dump(json, -1); }

void write_json(const std::string& path, const Json& json, bool pretty) {
  const std::string text = dump(json, pretty ? 2 : -1);
  write_whole(path, [&](std::ostream& out) { out << text; });
}

}  // namespace mb
