// The verbs of `meshbench`, one file each. Data goes to stdout, everything else to stderr.
#pragma once

#include <CLI/CLI.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/cli/case.h"

namespace mb {

// Exit codes, the same for every verb; 1 is an answer of no: a node that is not fit, a gate's
// regression.
inline constexpr int kExitOk = 0, kExitWouldFail = 1, kExitUsage = 2, kExitNoVerdict = 3,
                     kExitNoData = 4, kExitOutOfMemory = 66, kExitInternal = 70,
                     kExitInterrupted = 130;

// A message for stderr with the exit code that goes with it. An Error that leaves a verb is a usage
// error.
class Exit : public std::runtime_error {
 public:
  Exit(int code, const std::string& message) : std::runtime_error(message), code(code) {}
  int code;
};

// Each adds its verb to `app`; the verb runs as the app's callback.
void add_run(CLI::App& app);
void add_sim(CLI::App& app);
void add_predict(CLI::App& app);
void add_check(CLI::App& app);
void add_plan(CLI::App& app);
void add_theory(CLI::App& app);
void add_place(CLI::App& app);
void add_traffic(CLI::App& app);
void add_memory(CLI::App& app);
void add_coll(CLI::App& app);
void add_fit(CLI::App& app);
void add_doctor(CLI::App& app);
void add_models(CLI::App& app);
void add_machines(CLI::App& app);
void add_stacks(CLI::App& app);
void add_schedules(CLI::App& app);
void add_cases(CLI::App& app);

// The positional key=value words that most verbs take, with a help text that lists the keys.
void add_case_words(CLI::App& verb, std::vector<std::string>& words);

}  // namespace mb
