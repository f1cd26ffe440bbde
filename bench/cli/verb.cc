// By CLI11, here alone: its templates take longer to compile than any verb.
#include "bench/cli/verb.h"

#include <CLI/CLI.hpp>
#include <type_traits>

#include "bench/cli/exit.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

void add(CLI::App& verb, const Argument& argument) {
  CLI::Option* option = std::visit(
      [&](auto* into) {
        if constexpr (std::is_same_v<decltype(into), bool*>)
          return verb.add_flag(argument.name, *into, argument.help);
        else
          return verb.add_option(argument.name, *into, argument.help);
      },
      argument.into);
  option->required(argument.required);
  if (!argument.type.empty()) option->type_name(argument.type);
  if (argument.shows_default) option->capture_default_str();
}

std::unique_ptr<CLI::App> app_of(const Command& command) {
  auto app = std::make_unique<CLI::App>(command.help, command.name);
  app->set_version_flag("--version", command.version);
  app->require_subcommand(1);
  app->fallthrough(false);
  for (const Verb& verb : command.verbs) {
    CLI::App* sub = app->add_subcommand(verb.name, verb.help);
    for (const Argument& argument : verb.arguments) add(*sub, argument);
    sub->footer(verb.footer);
    sub->callback(verb.run);
  }
  return app;
}

}  // namespace

std::string help_of(const Command& command) { return app_of(command)->help(); }

void run(const Command& command, int argc, char** argv) {
  const auto app = app_of(command);
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0)
      throw Exit(kExitUsage, cat(error.what(), "\nRun with --help for usage."));
    app->exit(error);  // prints help or version
  }
}

}  // namespace mb
