#include "bench/cli/case.h"

#include <algorithm>
#include <set>

#include "bench/cli/world_keys.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"
#include "workloads/base/suggest.h"
#include "workloads/base/units.h"

namespace mb {

const std::vector<NamedCase>& named_cases() {
  static const std::vector<NamedCase> table = {
      {"first", "model=gpt-1m mesh=dp2.tp2 micro_batch=2 global_batch=8 bucket=256KiB",
       "four ranks on a laptop"},
      {"dp2-tp2", "model=gpt-1m mesh=dp2.tp2 micro_batch=2 global_batch=16 bucket=256KiB",
       "data and tensor parallelism on 4 ranks"},
      {"pp2-dp2", "model=gpt-1m mesh=pp2.dp2 micro_batch=2 global_batch=16 bucket=256KiB",
       "pipeline and data parallelism on 4 ranks"},
      {"dp2-tp4-pp2", "model=gpt-1m mesh=dp2.tp4.pp2 micro_batch=1 global_batch=16 bucket=256KiB",
       "16 ranks, 8 micro-batches"},
      {"a100-64",
       "model=gpt-24l mesh=dp2.pp4.tp8 mode=sim machine=a100x8 micro_batch=4 global_batch=128",
       "24 layers on 64 A100: tp8, pp4, dp2"},
      {"textbook-100b",
       "model=gpt-100b mesh=dp2.pp4.tp8 mode=sim machine=h100x8 micro_batch=4 global_batch=1024",
       "100B parameters, 64 layers, on 64 GPUs of 8 nodes: tp8, pp4, dp2; in fp32 and without "
       "recomputation it needs more memory than they have"},
  };
  return table;
}

namespace {

constexpr double kFirstDynamicScale = 1024;

std::vector<Word> words_of_named(const std::string& name) {
  const NamedCase& named = find_named(named_cases(), name, cat("case=", name),
                                      [](const NamedCase& c) { return c.name; });
  std::vector<Word> words;
  for (const std::string& word : split_words(named.words)) words.push_back(split_word(word));
  return words;
}

// model=, machine= and stack= before their fields, mesh before its order, so that what is more
// particular comes last.
int turn(const Word& word) {
  if (word.key == "model" || word.key == "machine" || word.key == "stack" || word.key == "mesh")
    return 0;
  return 1;
}

void apply(Case& c, std::vector<Word> words) {
  std::stable_sort(words.begin(), words.end(),
                   [](const Word& a, const Word& b) { return turn(a) < turn(b); });
  for (const Word& word : words) {
    if (word.key.starts_with("model.")) {
      set_field(c.model, word.key, word.value);
    } else if (word.key.starts_with("machine.")) {
      set_field(c.machine, word.key, word.value);
    } else if (word.key.starts_with("stack.")) {
      set_field(c.stack, word.key, word.value);
    } else {
      find_key(case_keys(), word).set(c, word.value);
    }
  }
}

}  // namespace

Case read_case(const std::vector<std::string>& words) {
  Case c;
  c.model = find_model(c.model_name);
  c.machine = find_machine(c.machine_name);
  c.stack = find_stack(c.stack_name);
  std::set<std::string> seen;
  std::vector<Word> own, all;
  for (const Word& word : distinct_words(words)) {
    seen.insert(word.key);
    if (word.key == "case") {
      all = words_of_named(word.value);
    } else {
      own.push_back(word);
    }
  }
  // Words of the command line replace those of the named case.
  std::erase_if(all, [&](const Word& named) { return seen.contains(named.key); });
  all.insert(all.end(), own.begin(), own.end());
  apply(c, std::move(all));
  return c;
}

Case parse_case(const std::vector<std::string>& words) {
  Case c = read_case(words);
  place_ranks(c);
  const std::int64_t data_size = c.mesh.data_size();
  if (c.global_batch == 0)
    c.global_batch = c.options.micro_batch * data_size * std::max(4, 2 * c.mesh.size(Axis::pp));
  const std::int64_t unit = c.options.micro_batch * data_size;
  const std::int64_t below = c.global_batch / unit * unit;
  require(c.global_batch % unit == 0, "global_batch=", c.global_batch,
          " does not divide into micro-batches of ", c.options.micro_batch, " on dp=", data_size,
          "; nearest: ", below > 0 ? cat(below, " or ") : "", below + unit);
  c.options.micro_batches = static_cast<int>(c.global_batch / unit);
  c.options.dynamic_loss_scale =
      c.loss_scale == "dynamic" || (c.loss_scale == "auto" && c.options.dtype == DType::fp16);
  if (c.options.dynamic_loss_scale) {
    c.options.loss_scale = kFirstDynamicScale;
  } else if (c.loss_scale != "auto") {
    c.options.loss_scale = parse_number(c.loss_scale, "loss_scale");
  }
  check_case(c);
  for (const auto& [key, value] : distinct_words(words)) {
    require(c.mode == Mode::sim || !(key.starts_with("machine") || key.starts_with("stack")), key,
            "=", value, " has no effect in mode=", name_of(c.mode),
            ", which runs on this machine; give mode=sim with it");
  }
  return c;
}

std::string to_text(const Case& c) {
  Case defaults;
  defaults.machine = find_machine(defaults.machine_name);
  defaults.stack = find_stack(defaults.stack_name);
  std::string text;
  for (const CaseKey& key : case_keys()) {
    const std::string value = key.get(c);
    const bool always = key.name == "model" || key.name == "mesh" || key.name == "global_batch" ||
                        (key.name == "machine" && c.mode == Mode::sim);
    if (key.name == "machine" && c.mode != Mode::sim) continue;
    if (always || value != key.get(defaults))
      text += cat(text.empty() ? "" : " ", quoted(key.name, value));
    Case base;
    if (key.name == "model") {
      key.set(base, c.model_name);
      text += overrides("model.", to_json(base.model), to_json(c.model));
    } else if (key.name == "machine") {
      key.set(base, c.machine_name);
      text += overrides("machine.", to_json(base.machine), to_json(c.machine));
    } else if (key.name == "stack" && c.mode == Mode::sim) {
      key.set(base, c.stack_name);
      text += overrides("stack.", to_json(base.stack), to_json(c.stack));
    }
  }
  return text;
}

// What a step does between its first launch and its last must not want the host.
void check_graph(const Case& c) {
  if (!c.graph) return;
  require(on_cuda(c.mode), "graph=on: mode=", name_of(c.mode),
          " has no GPUs; give mode=nccl+threads, nccl+mpi or cuda+threads, or graph=off");
  require(on_nccl(c.mode) || c.mesh.world() == 1, "graph=on: the ranks of mode=", name_of(c.mode),
          " mesh=", c.mesh.to_text(),
          " communicate by the host, which no graph waits for; give mode=nccl+",
          on_mpi(c.mode) ? "mpi" : "threads", ", or graph=off");
  require(c.model.experts == 1 || c.model.capacity_factor > 0, "graph=on: model=", c.model_name,
          " has experts without a capacity, and the host reads how many rows each gets; give "
          "model.capacity_factor=1.25, or graph=off");
  require(c.profile != Profile::cupti,
          "graph=on profile=cupti: CUPTI leads all of a graph back to its one launch, and no "
          "instruction gets its kernels; give profile=off, or graph=off");
}

void check_gpu_options(const Case& c) {
  require(!c.tf32 || on_cuda(c.mode), "tf32=on: mode=", name_of(c.mode),
          " has no GPUs; give mode=nccl+threads, nccl+mpi or cuda+threads, or tf32=off");
  require(!c.tf32 || c.options.dtype == DType::fp32, "tf32=on rounds operands of dtype=fp32, not ",
          name_of(c.options.dtype), "; give dtype=fp32, or tf32=off");
  require(c.fused_attention || on_cuda(c.mode), "attention=tiled: mode=", name_of(c.mode),
          " has no GPUs; give mode=nccl+threads, nccl+mpi or cuda+threads, or attention=auto");
}

void check_case(const Case& c) {
  check_step(c.model, c.mesh, c.options);
  check_machine(c.machine);
  check_graph(c);
  check_gpu_options(c);
  require(on_mpi(c.mode) || c.mode == Mode::sim || c.mesh.world() <= 256, "mesh=", c.mesh.to_text(),
          " has ", c.mesh.world(), " ranks; mode=", name_of(c.mode),
          " takes at most 256 of them in one process, mode=sim any number");
  require(!on_cuda(c.mode) || c.offload_gb_per_s == 0, "offload_gb_per_s=", c.offload_gb_per_s,
          " slows copies of mode=threads down; those of mode=", name_of(c.mode),
          " go over the device's own link");
  require(on_cuda(c.mode) || c.profile != Profile::cupti,
          "profile=cupti traces GPUs, and mode=", name_of(c.mode),
          " has none; give mode=cuda+threads, cuda+mpi, nccl+threads or nccl+mpi, or leave "
          "profile= out");
  check_stack(c.stack);
  require(c.mode != Mode::sim || !c.stack.fp8_matmul || c.machine.fp8_tflops > 0,
          "stack=", c.stack.name, " multiplies in fp8, and machine=", c.machine.name,
          " has none; give another stack, or machine.fp8_tflops=");
  require(c.mode != Mode::sim || c.machine.peak_tflops(c.options.dtype) > 0,
          "dtype=", name_of(c.options.dtype), ": machine=", c.machine.name, " has no peak for it");
  require(c.mode != Mode::sim || c.machine.nodes == 0 || c.mesh.node_count() <= c.machine.nodes,
          "mesh=", c.mesh.to_text(), " takes ", c.mesh.node_count(),
          " nodes, and machine=", c.machine.name, " has ", c.machine.nodes, " of ",
          c.machine.ranks_per_node,
          " ranks; give a smaller mesh, or machine.nodes=", c.mesh.node_count());
  require(c.mode == Mode::threads || !c.link, "link=", c.link ? to_text(*c.link) : "",
          " slows the links of mode=threads down; mode=sim takes the machine's: "
          "machine.link_gb_per_s, link_latency_us, nic_gb_per_s and nic_latency_us");
  require(c.mode != Mode::sim || c.data.empty(), "data=", c.data, ": mode=sim reads no data");
}

}  // namespace mb
