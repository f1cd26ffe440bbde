#include <fmt/core.h>

#include <fstream>
#include <iostream>

#include "bench/cli/commands.h"
#include "bench/cli/explained_case.h"
#include "bench/cli/variation.h"
#include "bench/report/json.h"
#include "parallel/exec/predict.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

Json row_of(const Case& c, const Prediction& p) {
  Json row = {{"case", to_text(c)},
              {"step_s", p.step_s},
              {"step_low_s", p.interval.low_s},
              {"step_high_s", p.interval.high_s},
              {"busiest_compute_s", p.busiest_compute_s},
              {"planned_bytes", p.memory.planned},
              {"rounding_bytes", p.memory.rounding},
              {"fragmentation_bytes", p.memory.fragmentation},
              {"library_bytes", p.memory.library},
              {"context_bytes", p.memory.context},
              {"fits", static_cast<double>(p.memory.total()) <= 1e9 * c.machine.memory_gb},
              {"simulated_micro_batches", p.simulated_micro_batches},
              {"measured_ops", p.ops.measured},
              {"modelled_ops", p.ops.modelled},
              {"calibrated_on", c.stack.source},
              {"extrapolated", p.interval.extrapolated},
              {"not_modelled", p.not_modelled}};
  add_variation(row, c, {p.step_s, p.even_step_s, p.spread});
  return row;
}

Json predict_line(const std::string& line) {
  try {
    const Case c = parse_case(in_virtual_time(split_words(line)));
    return row_of(c, predict(c.model, c.mesh, c.options, c.machine, c.stack, variation_of(c)));
  } catch (const Error& error) {
    return {{"case", line}, {"error", error.what()}};
  }
}

void predict_file(const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(path);
  if (path != "-" && !file) throw Exit(kExitNoData, cat(path, " cannot be read"));
  std::istream& in = path == "-" ? std::cin : file;
  bool any = false;
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    any = true;
    fmt::print("{}", to_line(predict_line(line)));
    std::fflush(stdout);
  }
  if (!any)
    throw Exit(kExitNoData, cat(path == "-" ? "stdin" : path, " has no case; give one a line"));
}

}  // namespace

Verb predict_verb() {
  auto path = std::make_shared<std::string>();
  return {
      .name = "predict",
      .help = "Time and memory of many cases in virtual time, one JSON object a line",
      .arguments = {{.name = "file",
                     .into = path.get(),
                     .help = "Cases, one a line, or - for stdin",
                     .required = true}},
      .footer =
          "A case that is refused gives a line with \"error\".\n\nExamples:\n  meshbench predict "
          "cases.txt\n  echo 'model=gpt3-13b "
          "mesh=dp2.pp4.tp8 machine=a100x8 stack=megatron-2021 dtype=bf16 global_batch=64' | "
          "meshbench predict -",
      .run = [path] { predict_file(*path); }};
}

}  // namespace mb
