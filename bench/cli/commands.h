// The verbs of `meshbench`, one file each. Data goes to stdout, everything else to stderr.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "bench/cli/case.h"
#include "bench/cli/exit.h"

namespace mb {

// Each adds its verb to `app`; the verb runs as the app's callback.
void add_run(CLI::App& app);
void add_sim(CLI::App& app);
void add_predict(CLI::App& app);
void add_compare(CLI::App& app);
void add_scaling(CLI::App& app);
void add_check(CLI::App& app);
void add_plan(CLI::App& app);
void add_theory(CLI::App& app);
void add_place(CLI::App& app);
void add_choose(CLI::App& app);
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
