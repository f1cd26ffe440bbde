// Tables of keys: how key=value words become a struct and print back the same.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/base/error.h"
#include "workloads/base/suggest.h"

namespace mb {

// A file that a case names and that cannot be read.
class InputError : public Error {
 public:
  using Error::Error;
};

// One key of a case C: how it is spelled, what it means, what it holds.
template <class C>
struct Key {
  std::string_view name, values, help;
  void (*set)(C&, std::string_view value);  // throws Error naming key, value and what would do
  std::string (*get)(const C&);
};

struct Word {
  std::string key, value;
};
Word split_word(const std::string& word);  // at the first =; throws Error
// Each word split. Throws Error for a key that is there twice.
std::vector<Word> distinct_words(const std::vector<std::string>& words);
// Words of a line: blanks part them, but for those in single quotes.
std::vector<std::string> split_words(std::string_view line);
// A word as a shell and split_words read it back.
std::string quoted(std::string_view key, const std::string& value);
// " prefix.field=value" for every field in which two JSON objects differ, their names aside.
std::string overrides(std::string_view prefix, const std::string& base, const std::string& json);

template <class C>
const Key<C>& find_key(const std::vector<Key<C>>& keys, const Word& word) {
  return find_named(keys, word.key, cat("key '", word.key, "' (", word.key, "=", word.value, ")"),
                    [](const Key<C>& key) { return key.name; });
}

// For --help: a line for each key, with its default unless that is derived from the rest.
template <class C>
std::string help_of(const std::vector<Key<C>>& keys, const C& defaults,
                    std::string_view derived = "") {
  std::string help;
  for (const Key<C>& key : keys) {
    const std::string value = key.get(defaults);
    help += cat("  ", key.name, "=", key.values, ": ", key.help);
    help += value.empty() || key.name == derived ? "\n" : cat(" [", value, "]\n");
  }
  return help;
}

}  // namespace mb
