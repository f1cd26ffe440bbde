// The ranks that mpirun has started this test program as, if it has: every process runs the same
// tests.
#pragma once

#include <memory>

#include "parallel/comm/mpi_world.h"

namespace mb::test {

// nullptr where nothing has launched this program, and outside of the two calls below.
MpiWorld* launched();

// For main: before the first test, and after the last.
void start_ranks();
void end_ranks();

}  // namespace mb::test
