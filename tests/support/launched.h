// The ranks that mpirun has started this test program as, if it has: every process runs the same
// tests.
#pragma once

#include <memory>

#include "parallel/comm/mpi_world.h"

namespace mb::test {

// nullptr where nothing has launched this program. Lives until the end of main.
MpiWorld* launched();

}  // namespace mb::test
