// Interrupts that are honoured between steps or operations.
#pragma once

#include <string_view>

namespace mb {

// From its making to its end: the first SIGINT, or SIGTERM, as which mpirun passes one on, is kept
// for interrupted(); a second one ends the program at once. One at a time.
class Interrupts {
 public:
  // `hint` is written to stderr at the first one; it has to outlive this object.
  explicit Interrupts(std::string_view hint = {});
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  static bool interrupted();
};

}  // namespace mb
