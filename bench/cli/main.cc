#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <new>

#include "bench/cli/commands.h"
#include "bench/cli/ranks.h"
#include "bench/report/build.h"
#include "workloads/base/error.h"

namespace {

int guarded(int argc, char** argv) {
  CLI::App app(
      "Meshbench runs real training steps of a transformer on a mesh of ranks and tells where the "
      "time and the memory went.\n"
      "\nExamples:\n"
      "  meshbench run case=first\n"
      "  meshbench run model=gpt-1m mesh=dp2.pp2.tp2 micro_batch=1 global_batch=16 -o row.json "
      "--trace trace.json\n"
      "  meshbench sim case=textbook-100b\n"
      "  meshbench plan model=gpt-1m mesh=pp4 global_batch=8\n"
      "  meshbench coll op=all_reduce mesh=dp2.tp2 axis=tp\n"
      "\nExit codes: 0 done; 1 doctor found what would fail; 2 the command or the case is wrong; 3 "
      "the run failed or its numbers "
      "are not those of one rank;\n"
      "4 an input cannot be read; 66 out of memory; 70 a fault of this program; 130 interrupted.",
      "meshbench");
  app.set_version_flag("--version", mb::build_text());
  app.require_subcommand(1);
  app.fallthrough(false);
  mb::add_run(app);
  mb::add_sim(app);
  mb::add_predict(app);
  mb::add_compare(app);
  mb::add_scaling(app);
  mb::add_check(app);
  mb::add_plan(app);
  mb::add_theory(app);
  mb::add_place(app);
  mb::add_choose(app);
  mb::add_traffic(app);
  mb::add_memory(app);
  mb::add_coll(app);
  mb::add_fit(app);
  mb::add_doctor(app);
  mb::add_models(app);
  mb::add_machines(app);
  mb::add_stacks(app);
  mb::add_schedules(app);
  mb::add_cases(app);
  try {
    mb::silence_unless_reporting();
    app.parse(argc, argv);
    mb::finish_ranks();
    return mb::kExitOk;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help and version
    if (argc == 1 && mb::reports()) {
      fmt::print(stderr, "{}", app.help());
      return mb::kExitUsage;
    }
    return mb::fail("meshbench", mb::cat(error.what(), "\nRun with --help for usage."),
                    mb::kExitUsage);
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
