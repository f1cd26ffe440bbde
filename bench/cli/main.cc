#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <new>

#include "bench/cli/commands.h"
#include "bench/cli/ranks.h"
#include "bench/report/build.h"
#include "workloads/base/error.h"

namespace {

mb::Command meshbench() {
  return {
      .name = "meshbench",
      .help =
          "Meshbench runs real training steps of a transformer on a mesh of ranks and tells where "
          "the time and the memory went.\n"
          "\nExamples:\n"
          "  meshbench run case=first\n"
          "  meshbench run model=gpt-1m mesh=dp2.pp2.tp2 micro_batch=1 global_batch=16 -o row.json "
          "--trace trace.json\n"
          "  meshbench sim case=textbook-100b\n"
          "  meshbench plan model=gpt-1m mesh=pp4 global_batch=8\n"
          "  meshbench coll op=all_reduce mesh=dp2.tp2 axis=tp\n"
          "\nExit codes: 0 done; 1 doctor found what would fail; 2 the command or the case is "
          "wrong; 3 the run failed or its numbers are not those of one rank;\n"
          "4 an input cannot be read; 66 out of memory; 70 a fault of this program; 130 "
          "interrupted.",
      .version = mb::build_text(),
      .verbs = {mb::run_verb(),      mb::sim_verb(),    mb::predict_verb(),   mb::compare_verb(),
                mb::scaling_verb(),  mb::check_verb(),  mb::plan_verb(),      mb::theory_verb(),
                mb::place_verb(),    mb::choose_verb(), mb::traffic_verb(),   mb::memory_verb(),
                mb::coll_verb(),     mb::fit_verb(),    mb::doctor_verb(),    mb::models_verb(),
                mb::machines_verb(), mb::stacks_verb(), mb::schedules_verb(), mb::cases_verb()}};
}

int guarded(int argc, char** argv) {
  try {
    mb::silence_unless_reporting();
    if (argc == 1 && mb::reports()) {
      fmt::print(stderr, "{}", mb::help_of(meshbench()));
      return mb::kExitUsage;
    }
    mb::run(meshbench(), argc, argv);
    mb::finish_ranks();
    return mb::kExitOk;
  } catch (const mb::Exit& exit) {
    return mb::fail("meshbench", exit.what(), exit.code);
  } catch (const mb::InputError& error) {
    return mb::fail("meshbench", error.what(), mb::kExitNoData);
  } catch (const mb::OutOfMemory& error) {
    return mb::fail("meshbench", error.what(), mb::kExitOutOfMemory);
  } catch (const mb::Error& error) {
    return mb::fail("meshbench", error.what(), mb::kExitUsage);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = guarded(argc, argv);
    if (std::fflush(stdout) == 0) return code;
    std::fprintf(
        stderr,
        "meshbench: cannot write all of the output; is the disk full, or the pipe closed?\n");
    return mb::kExitNoData;
  } catch (const std::bad_alloc&) {
    return mb::fail("meshbench",
                    "out of memory; give a smaller model or micro_batch, more ranks, or mode=sim",
                    mb::kExitOutOfMemory);
  } catch (const std::exception& error) {
    return mb::fail("meshbench", mb::cat("internal error: ", error.what()), mb::kExitInternal);
  }
}
