// What the command line takes, as plain data.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace mb {

// A flag, an option with a value, or words without a dash; `into` says which, and is set as the
// command line is read.
struct Argument {
  std::string name;  // "-q,--quiet"; of words, what an error calls them
  std::variant<bool*, std::string*, std::optional<int>*, std::vector<std::string>*> into;
  std::string help;
  std::string type = {};  // in the help; else TEXT or INT
  bool required = false;
  bool shows_default = false;
};

// What stands in `arguments` has to live as long as `run`, which is to hold it.
struct Verb {
  std::string name, help;
  std::vector<Argument> arguments;
  std::string footer;
  std::function<void()> run;
};

struct Command {
  std::string name, help, version;
  std::vector<Verb> verbs;
};

std::string help_of(const Command& command);
// Runs the verb that the command line names, or prints the help or the version that it asks for.
// Throws Exit with kExitUsage, and whatever the verb throws.
void run(const Command& command, int argc, char** argv);

}  // namespace mb
