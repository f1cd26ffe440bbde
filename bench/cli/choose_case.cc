#include "bench/cli/choose_case.h"

#include <algorithm>
#include <map>
#include <set>

#include "bench/cli/key_values.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

constexpr std::string_view kAxesGiven[] = {"tp", "cp", "ep", "pp", "rdp", "dp"};
// Keys whose values a search tries; given, they are fixed.
constexpr std::string_view kSearched[] = {
    "mesh",          "order",   "schedule",  "chunks",
    "micro_batch",   "zero",    "recompute", "sequence_parallel",
    "tensor_chunks", "context", "offload"};
// Keys that say something of one mesh or one run alone.
constexpr std::string_view kRefused[] = {"case",
                                         "nodes",
                                         "ranks_per_node",
                                         "link",
                                         "layout",
                                         "recompute_layers",
                                         "recompute_micro_batches",
                                         "data",
                                         "graph",
                                         "profile"};

template <class Names>
bool is_one_of(const Names& names, std::string_view key) {
  return std::find(std::begin(names), std::end(names), key) != std::end(names);
}

}  // namespace

std::string choose_words_help() {
  return "  gpus=N: ranks of the mesh\n"
         "  tp=N, cp=N, ep=N, pp=N, rdp=N, dp=N: fix the size of an axis\n";
}

ChooseCase parse_choose(const std::vector<std::string>& words) {
  Question q;
  std::set<std::string> given;
  std::vector<std::string> all, fixed;  // of a case; of them those that are no choice
  std::map<std::string, int> sizes;
  for (const Word& word : distinct_words(words)) {
    given.insert(word.key);
    const std::string text = word.key + "=" + word.value;
    require(!is_one_of(kRefused, word.key), text, ": choose searches cases that have no ", word.key,
            "=; leave it out");
    require(word.key != "mode" || word.value == "sim", text,
            ": choose predicts steps in virtual time; leave it out");
    require(word.key != "schedule" || !word.value.starts_with('@'), text,
            ": choose searches the schedules that 'meshbench schedules' lists; give a name");
    if (word.key == "gpus" || is_one_of(kAxesGiven, word.key)) {
      sizes[word.key] = static_cast<int>(whole(word.key, word.value, 1));
      continue;
    }
    all.push_back(text);
    if (!is_one_of(kSearched, word.key) && word.key != "global_batch" && word.key != "group")
      fixed.push_back(text);
  }
  require(given.contains("model"), "choose wants model=NAME ('meshbench models' lists them)");
  require(given.contains("machine"), "choose wants machine=NAME ('meshbench machines' lists them)");
  require(given.contains("global_batch"),
          "choose wants global_batch=N, the sequences of a step, such as global_batch=512");
  if (!given.contains("dtype")) {
    all.emplace_back("dtype=bf16");
    fixed.emplace_back("dtype=bf16");
  }
  if (!given.contains("mode")) fixed.emplace_back("mode=sim");
  const Case read = read_case(all);
  fixed.emplace_back("mesh=1");
  fixed.emplace_back("global_batch=1");
  ChooseCase chosen{.base = parse_case(fixed), .question = {}};
  Case& base = chosen.base;
  base.global_batch = read.global_batch;

  q.model = base.model;
  q.machine = base.machine;
  q.stack = base.stack;
  q.options = base.options;
  q.options.group = read.options.group;
  q.global_batch = read.global_batch;
  q.memory_bytes = 1e9 * base.machine.memory_gb;
  q.gpus = sizes.contains("gpus") ? sizes["gpus"] : 0;
  if (given.contains("mesh")) {
    q.mesh = read.mesh;
    if (q.gpus == 0) q.gpus = read.mesh.world();
    for (const std::string_view axis : kAxesGiven)
      require(!sizes.contains(std::string(axis)), axis,
              "= and mesh= both fix sizes; give one of them");
  }
  require(q.gpus > 0, "choose wants gpus=N, such as gpus=64");
  const auto size = [&](const char* axis) {
    return sizes.contains(axis) ? std::optional(sizes[axis]) : std::nullopt;
  };
  q.tp = size("tp"), q.cp = size("cp"), q.ep = size("ep"), q.pp = size("pp");
  q.rdp = size("rdp"), q.dp = size("dp");
  const StepOptions& o = read.options;
  if (given.contains("order")) q.order = read.mesh.order();
  if (given.contains("schedule")) q.schedule = o.schedule;
  if (given.contains("chunks")) q.chunks = o.chunks;
  if (given.contains("micro_batch")) q.micro_batch = o.micro_batch;
  if (given.contains("zero")) q.zero = o.zero;
  if (given.contains("recompute")) q.recompute = o.recompute;
  if (given.contains("sequence_parallel")) q.sequence_parallel = o.sequence_parallel;
  if (given.contains("tensor_chunks")) q.tensor_chunks = o.tensor_chunks;
  if (given.contains("context")) q.context = o.context;
  if (given.contains("offload")) q.offload = std::pair(o.offload_optimizer, o.offload_activations);
  chosen.question = std::move(q);
  return chosen;
}

Case case_of(const ChooseCase& chosen, const Mesh& mesh, const StepOptions& options) {
  Case c = chosen.base;
  c.mesh = mesh;
  c.options = options;
  return c;
}

Case case_of(const ChooseCase& chosen, const Space& space, const Candidate& candidate) {
  return case_of(chosen, space.meshes()[candidate.mesh], space.options_of(candidate));
}

}  // namespace mb
