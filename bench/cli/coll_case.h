// The one-line case of `meshbench coll`, as case.h has it for a step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/cli/case.h"
#include "bench/cli/key.h"
#include "bench/coll/config.h"
#include "bench/coll/summary.h"
#include "parallel/exec/shaped_world.h"

namespace mb {

struct CollCase : CollConfig {
  Mode mode = Mode::threads;
  int ranks_per_node = 0;
  std::vector<int> nodes;
  std::optional<LinkShape> link;  // of mode=threads; none: as fast as they are
  std::string machine_name;       // empty: none, and in mode=sim h100x8
  Machine machine;
  std::string axes_text = "world";
};
using CollKey = Key<CollCase>;
const std::vector<CollKey>& coll_keys();

// Words in any order; machine= and mesh= are taken first. Derives what follows from the rest, and
// checks that all of it goes together.
CollCase parse_coll_case(const std::vector<std::string>& words);
// All that differs from the defaults, and always op, mesh and size.
std::string to_text(const CollCase& c);

// The machine, and in mode=threads what memory carries here, measured on the spot (0.2 s) where a
// point is so large that memory bounds it.
Surroundings surroundings_of(const CollCase& c, const std::vector<Point>& points);

}  // namespace mb
