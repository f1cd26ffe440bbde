#include <fmt/core.h>

#include "bench/cli/commands.h"
namespace mb {
void add_run(CLI::App&) {}
void add_sim(CLI::App&) {}
}  // namespace mb
