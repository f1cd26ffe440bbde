// The table of a case's keys.
#include <algorithm>

#include "bench/cli/case.h"
#include "bench/cli/key_values.h"
#include "bench/cli/world_keys.h"
#include "parallel/schedule/user_schedule.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

// "all", "3" or "0-5", both ends included.
IntRange range(std::string_view key, std::string_view value) {
  if (value == "all") return {};
  const std::vector<std::string> ends = split_at(value, '-');
  require(ends.size() <= 2, key, "=", value, ": give all, one number or a range, e.g. 0-5");
  const IntRange range{static_cast<int>(whole(key, ends.front(), 0)),
                       static_cast<int>(whole(key, ends.back(), 0))};
  require(range.first <= range.last, key, "=", value, ": the range ends before it starts");
  return range;
}
std::string range_text(const IntRange& range) {
  if (range == IntRange{}) return "all";
  return range.first == range.last ? cat(range.first) : cat(range.first, '-', range.last);
}

// Switches of which any number may be named: "all", "none" or names with commas between.
struct Switch {
  std::string_view name;
  bool* on;
};
void set_switches(std::string_view key, std::string_view value, std::vector<Switch> switches) {
  for (const Switch& s : switches) *s.on = value == "all";
  if (value == "all" || value == "none") return;
  for (const std::string& name : split_at(value, ','))
    *find_named(switches, name, cat(key, "=", value, ", '", name, "'"), [](const Switch& s) {
       return s.name;
     }).on = true;
}
std::string switches_text(const std::vector<Switch>& switches) {
  std::string text;
  std::size_t on = 0;
  for (const Switch& s : switches) {
    if (!*s.on) continue;
    text += cat(text.empty() ? "" : ",", s.name);
    ++on;
  }
  return on == 0 ? "none" : on == switches.size() ? "all" : text;
}
std::vector<Switch> overlaps(Overlap& overlap) {
  return {{"reduce", &overlap.reduce}, {"gather", &overlap.gather}, {"sends", &overlap.sends}};
}
std::vector<Switch> offloads(StepOptions& options) {
  return {{"optimizer", &options.offload_optimizer}, {"activations", &options.offload_activations}};
}

}  // namespace

const std::vector<std::pair<std::string_view, Mode>>& modes() {
  static const std::vector<std::pair<std::string_view, Mode>> all = {
      {"threads", Mode::threads},
      {"mpi", Mode::mpi},
      {"cuda+threads", Mode::cuda_threads},
      {"cuda+mpi", Mode::cuda_mpi},
      {"nccl+threads", Mode::nccl_threads},
      {"nccl+mpi", Mode::nccl_mpi},
      {"sim", Mode::sim}};
  return all;
}

std::string_view name_of(Mode mode) {
  return std::find_if(modes().begin(), modes().end(),
                      [mode](const auto& named) { return named.second == mode; })
      ->first;
}

const std::vector<CaseKey>& case_keys() {
  using V = std::string_view;
  static const std::vector<CaseKey> table = {
      {"model", "NAME | @FILE.json",
       "a published model ('meshbench models' lists them); model.FIELD=VALUE overrides a field",
       [](Case& c, V v) {
         c.model_name = v;
         c.model = v.starts_with('@')
                       ? model_from_json(read_file(std::string(v.substr(1)), "model"), v.substr(1))
                       : find_model(v);
       },
       [](const Case& c) { return c.model_name; }},
      mesh_key<Case>(),
      order_key<Case>(),
      ranks_per_node_key<Case>(),
      nodes_key<Case>(),
      link_key<Case>(),
      mode_key<Case>(),
      machine_key<Case>(
          "of mode=sim ('meshbench machines' lists them); machine.FIELD=VALUE overrides a field"),
      {"stack", "NAME | @FILE.json",
       "of mode=sim: the program whose kernels and launches take time ('meshbench stacks' lists "
       "them); stack.FIELD=VALUE overrides a field",
       [](Case& c, V v) {
         c.stack_name = v;
         c.stack = v.starts_with('@')
                       ? stack_from_json(read_file(std::string(v.substr(1)), "stack"), v.substr(1))
                       : find_stack(v);
       },
       [](const Case& c) { return c.stack_name; }},
      {"schedule", "NAME | @FILE",
       "order of forwards and backwards in the pipeline ('meshbench schedules' lists them), or a "
       "file in the form that 'meshbench plan' prints",
       [](Case& c, V v) {
         c.options.schedule = v;
         c.options.user_schedule = {};
         if (v.starts_with('@')) {
           c.options.user_schedule =
               parse_schedule(read_file(std::string(v.substr(1)), "schedule"), v.substr(1));
         } else {
           find_schedule(v);
         }
       },
       [](const Case& c) { return c.options.schedule; }},
      {"chunks", "N",
       "stages that a pipeline rank has; default: as few as the schedule takes, 1 or 2",
       [](Case& c, V v) { c.options.chunks = static_cast<int>(whole("chunks", v, 1)); },
       [](const Case& c) { return cat(c.options.chunks); }},
      {"group", "N", "micro-batches of a round of schedule=interleaved; default: pp",
       [](Case& c, V v) { c.options.group = static_cast<int>(whole("group", v, 1)); },
       [](const Case& c) { return cat(c.options.group); }},
      {"layout", "3,4,4,3",
       "layers of each stage, in order; default: the same for all where that goes, else as even as "
       "it goes with the head counting as many layers as its FLOPs",
       [](Case& c, V v) {
         c.options.layout.clear();
         for (const std::string& part : split_at(v, ','))
           c.options.layout.push_back(static_cast<int>(whole("layout", part, 0)));
       },
       [](const Case& c) { return list_text(c.options.layout); }},
      {"micro_batch", "N", "sequences in a micro-batch",
       [](Case& c, V v) { c.options.micro_batch = whole("micro_batch", v, 1); },
       [](const Case& c) { return cat(c.options.micro_batch); }},
      {"global_batch", "N",
       "sequences in a step, over all data ranks; default: 2 micro-batches a stage, at least 4, "
       "for each data rank",
       [](Case& c, V v) { c.global_batch = whole("global_batch", v, 1); },
       [](const Case& c) { return cat(c.global_batch); }},
      {"dtype", "fp32 | bf16 | fp16 | fp64",
       "of parameters and activations; with 16 bits, gradients, main parameters and moments are "
       "fp32",
       [](Case& c, V v) {
         c.options.dtype = choice<DType>("dtype", v,
                                         {{"fp32", DType::fp32},
                                          {"bf16", DType::bf16},
                                          {"fp16", DType::fp16},
                                          {"fp64", DType::fp64}});
       },
       [](const Case& c) { return std::string(name_of(c.options.dtype)); }},
      {"reduce_dtype", "main | dtype",
       "what gradients are summed over data ranks in: as they are kept, or as dtype= says",
       [](Case& c, V v) {
         c.options.reduce_in_dtype =
             choice<bool>("reduce_dtype", v, {{"main", false}, {"dtype", true}});
       },
       [](const Case& c) { return std::string(c.options.reduce_in_dtype ? "dtype" : "main"); }},
      {"loss_scale", "auto | dynamic | X",
       "what the loss is multiplied with; auto: dynamic with fp16, else 1",
       [](Case& c, V v) {
         c.loss_scale = v;
         require(v == "auto" || v == "dynamic" || parse_number(v, "loss_scale") > 0,
                 "loss_scale=", v, ": give auto, dynamic or a number above 0");
       },
       [](const Case& c) { return c.loss_scale; }},
      {"dropout", "X", "of embeddings, attention and what is added to the residual",
       [](Case& c, V v) { c.options.dropout = not_negative("dropout", v); },
       [](const Case& c) { return number_text(c.options.dropout); }},
      {"zero", "0 | 1 | 2 | 3",
       "what data ranks divide: optimizer state, also reduced gradients, also parameters",
       [](Case& c, V v) { c.options.zero = static_cast<int>(whole("zero", v, 0)); },
       [](const Case& c) { return cat(c.options.zero); }},
      {"reshard", "on | off",
       "zero=3: release gathered parameters after each pass, or keep them for the step",
       [](Case& c, V v) { c.options.reshard = on_off("reshard", v); },
       [](const Case& c) { return on_off_text(c.options.reshard); }},
      {"sequence_parallel", "on | off",
       "tensor ranks divide tokens too where they divide nothing else",
       [](Case& c, V v) { c.options.sequence_parallel = on_off("sequence_parallel", v); },
       [](const Case& c) { return on_off_text(c.options.sequence_parallel); }},
      {"tensor_chunks", "N",
       "runs of rows into which the matmuls of attention and MLP next to an exchange are cut, so "
       "that "
       "a tensor rank exchanges one while it computes the next; 1: no such overlap",
       [](Case& c, V v) {
         c.options.tensor_chunks = static_cast<int>(whole("tensor_chunks", v, 1));
       },
       [](const Case& c) { return cat(c.options.tensor_chunks); }},
      {"context", "ring | ulysses",
       "how context ranks attend: keys and values go round, or heads are exchanged for tokens",
       [](Case& c, V v) {
         c.options.context = choice<ContextKind>(
             "context", v, {{"ring", ContextKind::ring}, {"ulysses", ContextKind::ulysses}});
       },
       [](const Case& c) {
         return std::string(c.options.context == ContextKind::ring ? "ring" : "ulysses");
       }},
      {"recompute", "none | attention | full",
       "activations that the backward computes anew: the attention core's, or a layer's",
       [](Case& c, V v) {
         c.options.recompute = choice<Recompute>("recompute", v,
                                                 {{"none", Recompute::none},
                                                  {"attention", Recompute::attention},
                                                  {"full", Recompute::full}});
       },
       [](const Case& c) {
         return std::string(c.options.recompute == Recompute::none        ? "none"
                            : c.options.recompute == Recompute::attention ? "attention"
                                                                          : "full");
       }},
      {"recompute_layers", "all | A-B", "layers that recompute= is about",
       [](Case& c, V v) { c.options.recompute_layers = range("recompute_layers", v); },
       [](const Case& c) { return range_text(c.options.recompute_layers); }},
      {"recompute_micro_batches", "all | A-B", "micro-batches that recompute= is about",
       [](Case& c, V v) {
         c.options.recompute_micro_batches = range("recompute_micro_batches", v);
       },
       [](const Case& c) { return range_text(c.options.recompute_micro_batches); }},
      {"offload", "none | optimizer,activations | all",
       "what is kept in the second memory space between uses",
       [](Case& c, V v) { set_switches("offload", v, offloads(c.options)); },
       [](const Case& c) {
         StepOptions options = c.options;
         return switches_text(offloads(options));
       }},
      {"offload_gb_per_s", "X",
       "mode=threads: what a rank's link to its second memory space carries; 0: as much as memory "
       "does (mode=sim: machine.host_gb_per_s)",
       [](Case& c, V v) { c.offload_gb_per_s = not_negative("offload_gb_per_s", v); },
       [](const Case& c) { return number_text(c.offload_gb_per_s); }},
      {"overlap", "all | none | reduce,gather,sends",
       "what runs beside computation: sums of gradients, gathers of parameters, sends between "
       "stages",
       [](Case& c, V v) { set_switches("overlap", v, overlaps(c.options.overlap)); },
       [](const Case& c) {
         Overlap overlap = c.options.overlap;
         return switches_text(overlaps(overlap));
       }},
      {"data", "FILE | FILE.bin",
       "a text file as bytes, or uint16/uint32 token ids; default: a Markov source of known "
       "entropy",
       [](Case& c, V v) { c.data = v; }, [](const Case& c) { return c.data; }},
      {"optimizer", "adamw | sgd", "SGD keeps no moments",
       [](Case& c, V v) {
         c.options.optimizer.kind = choice<Optimizer>(
             "optimizer", v, {{"adamw", Optimizer::adamw}, {"sgd", Optimizer::sgd}});
       },
       [](const Case& c) {
         return std::string(c.options.optimizer.kind == Optimizer::adamw ? "adamw" : "sgd");
       }},
      {"learning_rate", "X", "of every step; there is no decay",
       [](Case& c, V v) { c.options.optimizer.learning_rate = not_negative("learning_rate", v); },
       [](const Case& c) { return number_text(c.options.optimizer.learning_rate); }},
      {"weight_decay", "X", "of matrices, in AdamW",
       [](Case& c, V v) { c.options.optimizer.weight_decay = not_negative("weight_decay", v); },
       [](const Case& c) { return number_text(c.options.optimizer.weight_decay); }},
      {"clip", "X", "limit of the global gradient norm; 0 is off",
       [](Case& c, V v) { c.options.optimizer.clip = not_negative("clip", v); },
       [](const Case& c) { return number_text(c.options.optimizer.clip); }},
      {"bucket", "BYTES", "gradients that are reduced in one call, e.g. 25MiB",
       [](Case& c, V v) {
         c.options.bucket_bytes = parse_bytes(v, "bucket");
         require(c.options.bucket_bytes > 0, "bucket=", v, ": give at least 1 byte, e.g. 25MiB");
       },
       [](const Case& c) { return bytes_text(c.options.bucket_bytes); }},
      {"seed", "N", "of initial weights and synthetic data",
       [](Case& c, V v) { c.seed = whole("seed", v, 0); },
       [](const Case& c) { return cat(c.seed); }},
      {"warm_up", "N", "steps before the recorded ones",
       [](Case& c, V v) { c.warm_up = static_cast<int>(whole("warm_up", v, 0)); },
       [](const Case& c) { return cat(c.warm_up); }},
      {"steps", "N", "recorded steps",
       [](Case& c, V v) { c.steps = static_cast<int>(whole("steps", v, 1)); },
       [](const Case& c) { return cat(c.steps); }},
      {"verify", "auto | on | off",
       "hold the first step's gradients to one rank in fp64; auto: if that takes seconds",
       [](Case& c, V v) {
         c.verify = choice<Verify>(
             "verify", v, {{"auto", Verify::automatic}, {"on", Verify::on}, {"off", Verify::off}});
       },
       [](const Case& c) {
         return std::string(c.verify == Verify::on    ? "on"
                            : c.verify == Verify::off ? "off"
                                                      : "auto");
       }},
      {"graph", "on | off",
       "on GPUs: every step but the first is captured and runs as one CUDA graph",
       [](Case& c, V v) { c.graph = on_off("graph", v); },
       [](const Case& c) { return on_off_text(c.graph); }},
      {"tf32", "on | off",
       "on GPUs, with dtype=fp32: products may round their operands to ten bits of mantissa, which "
       "tensor cores multiply",
       [](Case& c, V v) { c.tf32 = on_off("tf32", v); },
       [](const Case& c) { return on_off_text(c.tf32); }},
      {"attention", "auto | tiled",
       "on GPUs: by cuDNN's fused kernels where it is there and has them, or always as products of "
       "tiles",
       [](Case& c, V v) {
         c.fused_attention = choice<bool>("attention", v, {{"auto", true}, {"tiled", false}});
       },
       [](const Case& c) { return std::string(c.fused_attention ? "auto" : "tiled"); }},
      {"profile", "auto | cupti | off",
       "modes with GPUs: trace as many steps again by CUPTI, which tells each instruction's "
       "kernels; "
       "auto: where this build and node let it",
       [](Case& c, V v) {
         c.profile = choice<Profile>(
             "profile", v,
             {{"auto", Profile::automatic}, {"cupti", Profile::cupti}, {"off", Profile::off}});
       },
       [](const Case& c) {
         return std::string(c.profile == Profile::cupti ? "cupti"
                            : c.profile == Profile::off ? "off"
                                                        : "auto");
       }},
      {"timeout_s", "X",
       "a run in which no rank ends an instruction for so long is aborted, and each rank's place "
       "named",
       [](Case& c, V v) {
         c.timeout_s = parse_number(v, "timeout_s");
         require(c.timeout_s > 0, "timeout_s=", v, ": give a number above 0");
       },
       [](const Case& c) { return number_text(c.timeout_s); }},
  };
  return table;
}

}  // namespace mb
