// The verbs of `meshbench`, one file each. Data goes to stdout, everything else to stderr.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/case.h"
#include "bench/cli/exit.h"
#include "bench/cli/verb.h"

namespace mb {

Verb run_verb();
Verb sim_verb();
Verb predict_verb();
Verb compare_verb();
Verb scaling_verb();
Verb check_verb();
Verb plan_verb();
Verb theory_verb();
Verb place_verb();
Verb choose_verb();
Verb traffic_verb();
Verb memory_verb();
Verb coll_verb();
Verb fit_verb();
Verb doctor_verb();
Verb models_verb();
Verb machines_verb();
Verb stacks_verb();
Verb schedules_verb();
Verb cases_verb();

// The key=value words that most verbs take, with a help text that lists the keys.
Argument case_words(std::vector<std::string>& words);

}  // namespace mb
