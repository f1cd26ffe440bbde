#include <fmt/core.h>

#include <ostream>
#include <thread>

#include "bench/choose/closed_form.h"
#include "bench/cli/choose_text.h"
#include "bench/cli/commands.h"
#include "bench/cli/outputs.h"
#include "bench/report/output.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

struct Flags {
  std::vector<std::string> words;
  std::string out, rejected, rank_file;
  bool json = false;
};

void write(const std::string& path, const std::function<void(std::ostream&)>& lines) {
  if (path.empty()) return;
  try {
    write_whole(path, lines);
  } catch (const Error& error) {
    throw Exit(kExitNoData, error.what());
  }
}

// Every case that was searched and is not among those that were simulated and fit, with why.
void write_rejected(const Chosen& chosen, std::ostream& out) {
  const Space& space = chosen.space;
  const double limit = space.question().memory_bytes;
  ClosedForm form(space.question().model, space.question().machine, space.question().stack);
  const auto line = [&](const Case& c, const std::string& rule, const std::string& reason) {
    out << to_line({{"case", to_text(c)}, {"rule", rule}, {"reason", reason}});
  };
  for (int mesh = 0; mesh < static_cast<int>(space.meshes().size()); ++mesh) {
    space.visit(
        mesh,
        [&](const Candidate& candidate, const StepOptions& options) {
          const auto known = [&](const Simulated& s) { return s.candidate == candidate; };
          if (std::any_of(chosen.result.all.begin(), chosen.result.all.end(), known)) return;
          const Estimate e = form.estimate(space.meshes()[mesh], options);
          const EstimateError error =
              error_of(space.meshes()[mesh], options, space.question().stack);
          const bool large = e.memory_bytes > limit * (1 + error.memory);
          line(case_of(chosen.asked, space, candidate), large ? "memory" : "slower",
               large ? fmt::format("needs about {:.1f} GB of {:.1f} GB", 1e-9 * e.memory_bytes,
                                   1e-9 * limit)
                     : fmt::format("takes about {:.4g} s by closed form", e.step_s));
        },
        [&](const Refusal& refusal) {
          line(case_of(chosen.asked, refusal.shape.mesh, refusal.shape.options), refusal.rule,
               refusal.cases > 1 ? cat(refusal.reason, " (and ", refusal.cases - 1,
                                       " other choices that go with it)")
                                 : refusal.reason);
        });
  }
}

void show(const Flags& flags) {
  const ChooseCase asked = parse_choose(flags.words);
  check_outputs(
      {{"--out", flags.out}, {"--rejected", flags.rejected}, {"--rank-file", flags.rank_file}},
      "--out");
  const Space space(asked.question);
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const SearchResult result = search(space, {.threads = threads});
  if (result.fastest.empty()) {
    throw Exit(result.smallest ? kExitOutOfMemory : kExitUsage,
               nothing_fits_text(asked, space, result));
  }
  const Simulated& best = result.fastest.front();
  const Mesh& mesh = space.meshes()[best.candidate.mesh];
  const StepOptions options = space.options_of(best.candidate);
  const Chosen chosen{asked,
                      space,
                      result,
                      anatomy_of(space.question(), mesh, options),
                      changes_of(space.question(), mesh, options, best.prediction.step_s),
                      follow_rules(space, result)};
  write(flags.rank_file, [&](std::ostream& out) { out << rank_file(mesh); });
  write(flags.rejected, [&](std::ostream& out) { write_rejected(chosen, out); });
  if (flags.json || !flags.out.empty()) {
    const std::vector<Json> rows = choose_rows(chosen);
    write(flags.out, [&](std::ostream& out) {
      for (const Json& row : rows) out << to_line(row);
    });
    for (const Json& row : rows) {
      if (flags.json) fmt::print("{}", to_line(row));
    }
  }
  if (!flags.json) fmt::print("{}", choose_text(chosen));
}

}  // namespace

Verb choose_verb() {
  auto flags = std::make_shared<Flags>();
  return {
      .name = "choose",
      .help = "The fastest mesh, order of axes, schedule and options for a model on so many GPUs",
      .arguments =
          {{.name = "words",
            .into = &flags->words,
            .help = "gpus=N and key=value words, see below",
            .required = true},
           {"-o,--out", &flags->out,
            "Write a result row for each of the fastest and of the front, .jsonl"},
           {"--rejected", &flags->rejected,
            "Write every case that is not among them to this file, with its rule, .jsonl"},
           {"--rank-file", &flags->rank_file,
            "Write where a program whose axes have their usual order puts its ranks to lie "
            "as the best does, as Open MPI reads it"},
           {"--json", &flags->json, "Print the rows and nothing else on stdout, one a line"}},
      .footer =
          choose_words_help() +
          "  model=, machine=, global_batch=: as in a case ('meshbench run --help'); dtype= is "
          "bf16 where it is not given\n"
          "  Searched unless they are given: mesh (its axes), order, schedule, chunks, "
          "micro_batch, zero, recompute, sequence_parallel, tensor_chunks, context, offload.\n"
          "  Every other key of a case holds for all of them; machine.memory_gb= is what has to "
          "suffice.\n\nExamples:\n"
          "  meshbench choose model=gpt3-1.3b machine=a100x8 stack=megatron-2021 gpus=16 "
          "global_batch=64\n"
          "  meshbench choose model=llama2-70b machine=h100x8 gpus=64 global_batch=128 tp=8 cp=1 "
          "zero=1 schedule=1f1b offload=none -o best.jsonl --rejected rejected.jsonl --rank-file "
          "ranks.txt",
      .run = [flags] { show(*flags); }};
}

}  // namespace mb
