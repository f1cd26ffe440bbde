// The words of `meshbench choose`: gpus=, sizes of axes and the keys of a case, and the cases that
// come out.
#pragma once

#include <string>
#include <vector>

#include "bench/choose/space.h"
#include "bench/cli/case.h"

namespace mb {

struct ChooseCase {
  Case base;  // what every case of the search has
  Question question;
};
// Throws Error for a word that no search has, naming what would do.
ChooseCase parse_choose(const std::vector<std::string>& words);
// The words for --help that are not those of a case.
std::string choose_words_help();

// The case of one candidate, as `meshbench run` and `sim` take it.
Case case_of(const ChooseCase& chosen, const Space& space, const Candidate& candidate);
Case case_of(const ChooseCase& chosen, const Mesh& mesh, const StepOptions& options);

}  // namespace mb
