// Strict JSON: no NaN, no infinity, whole files or none.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mb {

using Json = nlohmann::ordered_json;

// Replaces every number that is not finite by null, since JSON has none; returns where they were,
// as JSON pointers.
std::vector<std::string> null_non_finite(Json& json);

// Pretty-printed or on one line, with a newline at the end. Writes a file beside `path` and renames
// it, so that no reader sees half of it. Throws Error naming the path if that fails. What is not
// finite is an Error too: null it with a reason before.
void write_json(const std::string& path, const Json& json, bool pretty = true);
// As a line of JSON Lines.
std::string to_line(const Json& json);

}  // namespace mb
