#include "bench/cli/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace mb {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};
volatile std::sig_atomic_t came = 0;
std::string_view told;

void note(int signal) {
  came = 1;
  std::signal(signal, SIG_DFL);
  [[maybe_unused]] const auto written = write(STDERR_FILENO, told.data(), told.size());
}

}  // namespace

Interrupts::Interrupts(std::string_view hint) {
  came = 0;
  told = hint;
  for (const int signal : kSignals) std::signal(signal, note);
}

Interrupts::~Interrupts() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

bool Interrupts::interrupted() { return came != 0; }

}  // namespace mb
