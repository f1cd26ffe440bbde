#include "bench/cli/key_values.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/cli/key.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

constexpr std::int64_t kMostCount = 1'000'000'000;

}  // namespace

std::string read_file(const std::string& path, std::string_view key) {
  constexpr std::uintmax_t kMost = 1 << 20;
  std::error_code error;
  const auto refuse = [&](const char* why) { throw InputError(cat(key, "=@", path, ": ", why)); };
  if (!std::filesystem::is_regular_file(path, error)) refuse("there is no such file");
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size == 0) refuse("the file is empty");
  if (size > kMost)
    refuse("the file is larger than a megabyte; give JSON as 'meshbench models NAME' prints it");
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in.good()) refuse("the file cannot be read");
  return text.str();
}

std::int64_t whole(std::string_view key, std::string_view value, std::int64_t least) {
  const std::int64_t number = parse_integer(value, key);
  require(number >= least && number <= kMostCount, key, "=", value,
          ": give a whole number of at least ", least, " and at most ", kMostCount);
  return number;
}

double not_negative(std::string_view key, std::string_view value) {
  const double number = parse_number(value, key);
  require(number >= 0, key, "=", value, ": give a number of at least 0");
  return number;
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes % (1 << 20) == 0) return cat(bytes >> 20, "MiB");
  if (bytes % (1 << 10) == 0) return cat(bytes >> 10, "KiB");
  return cat(bytes);
}

std::string number_text(double value) { return nlohmann::json(value).dump(); }

bool on_off(std::string_view key, std::string_view value) {
  return choice<bool>(key, value, {{"on", true}, {"off", false}});
}
std::string on_off_text(bool value) { return value ? "on" : "off"; }

std::vector<std::string> split_at(std::string_view text, char mark) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == mark) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string list_text(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += cat(text.empty() ? "" : ",", number);
  return text;
}

}  // namespace mb
