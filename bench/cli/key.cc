#include "bench/cli/key.h"

#include <nlohmann/json.hpp>
#include <set>

namespace mb {

Word split_word(const std::string& word) {
  const std::size_t equals = word.find('=');
  require(equals != std::string::npos && equals > 0, "'", word,
          "' is not key=value; for example mesh=dp2.tp2");
  return {word.substr(0, equals), word.substr(equals + 1)};
}

std::vector<Word> distinct_words(const std::vector<std::string>& words) {
  std::map<std::string, std::string> seen;
  std::vector<Word> distinct;
  for (const std::string& text : words) {
    distinct.push_back(split_word(text));
    const auto [before, is_new] = seen.try_emplace(distinct.back().key, distinct.back().value);
    require(is_new, "key '", before->first, "' is given twice: ", before->first, "=",
            before->second, " and ", text);
  }
  return distinct;
}

std::vector<std::string> split_words(std::string_view line) {
  std::vector<std::string> words;
  bool inside = false, in_word = false;
  for (const char c : line) {
    if (c == '\'') {
      inside = !inside;
      continue;
    }
    const bool blank = !inside && (c == ' ' || c == '\t' || c == '\n');
    if (!blank && !in_word) words.emplace_back();
    if (!blank) words.back() += c;
    in_word = !blank;
  }
  require(!inside, "a quote is not closed in: ", line);
  return words;
}

std::string quoted(std::string_view key, const std::string& value) {
  const bool plain = value.find_first_of(" \t\n\"\\$`&;|<>()*?#~!'") == std::string::npos;
  return plain ? cat(key, '=', value) : cat(key, "='", value, "'");
}

std::string overrides(std::string_view prefix, const std::string& base, const std::string& json) {
  const auto before = nlohmann::ordered_json::parse(base),
             after = nlohmann::ordered_json::parse(json);
  std::string text;
  for (const auto& [key, value] : after.items()) {
    if (key == "name" || before.at(key) == value) continue;
    text += cat(' ', prefix, key, '=', value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

}  // namespace mb
