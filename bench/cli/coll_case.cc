#include "bench/cli/coll_case.h"

#include <algorithm>

#include "bench/cli/key_values.h"
#include "bench/cli/peak.h"
#include "bench/cli/world_keys.h"
#include "bench/coll/sizes.h"
#include "workloads/base/units.h"
#include "workloads/ops/cuda_peak.h"
#include "workloads/ops/peak.h"

namespace mb {
namespace {

using V = std::string_view;

constexpr int kMostThreads = 256;

template <class Enum, std::size_t n>
const std::vector<Enum>& all_of() {
  static const std::vector<Enum> all = [] {
    std::vector<Enum> values;
    for (std::size_t i = 0; i < n; ++i) values.push_back(static_cast<Enum>(i));
    return values;
  }();
  return all;
}
constexpr std::size_t kReduceOps = 5;

// "all", or names with commas between.
template <class Enum, std::size_t n>
std::vector<Enum> names_of(V key, V text) {
  const std::vector<Enum>& all = all_of<Enum, n>();
  if (text == "all") return all;
  std::vector<Enum> chosen;
  for (const std::string& name : split_at(text, ',')) {
    require(name != "all", key, "=", text, ": all stands alone; leave the other names out");
    const Enum found = find_named(all, name, cat(key, "=", text, ", '", name, "'"),
                                  [](Enum known) { return name_of(known); });
    require(std::find(chosen.begin(), chosen.end(), found) == chosen.end(), key, "=", text, ": ",
            name, " is there twice");
    chosen.push_back(found);
  }
  return chosen;
}

template <class Enum, std::size_t n>
std::string names_text(const std::vector<Enum>& chosen) {
  if (chosen == all_of<Enum, n>()) return "all";
  std::string text;
  for (const Enum value : chosen) text += cat(text.empty() ? "" : ",", name_of(value));
  return text;
}

std::string size_text(std::int64_t bytes) { return bytes == 0 ? "0" : bytes_text(bytes); }

std::optional<Beside> beside_of(V text) {
  if (text == "none") return std::nullopt;
  const std::vector<std::string> parts = split_at(text, ':');
  require(parts.size() == 3, "beside=", text,
          ": give OPERATION:AXIS:SIZE, for example beside=all_reduce:dp:1M");
  return Beside{operation_named(parts[0], cat("beside=", text, ", '", parts[0], "'")),
                group_named(parts[1], "beside"), parse_size(parts[2], text, "beside")};
}

std::string beside_text(const std::optional<Beside>& beside) {
  if (!beside) return "none";
  return cat(name_of(beside->operation), ':', name_of(beside->group), ':',
             size_text(beside->bytes));
}

std::optional<Injection> injection_of(V text) {
  if (text == "none") return std::nullopt;
  const std::vector<std::string> parts = split_at(text, ':');
  require(parts.size() == 3 && parts[0] == "rank", "inject=", text,
          ": give rank:RANK:DELAY, for example inject=rank:3:2ms");
  return Injection{static_cast<int>(whole("inject=rank:", parts[1], 0)),
                   static_cast<std::int64_t>(parse_duration_ns(parts[2], "inject"))};
}

double interval_of(V text) {
  const bool percent = text.ends_with('%');
  const double number = parse_number(percent ? text.substr(0, text.size() - 1) : text, "interval") /
                        (percent ? 100 : 1);
  require(number > 0 && number < 1, "interval=", text,
          ": give a share above 0 and below 1, as in 2% or 0.02");
  return number;
}

void set_iterations(CollCase& c, V text) {
  const std::vector<std::string> ends = split_at(text, ',');
  require(ends.size() == 2, "iterations=", text, ": give the least and the most, as in 10,20000");
  c.least = whole("iterations", ends[0], 1);
  c.most = whole("iterations", ends[1], 1);
  require(c.least <= c.most, "iterations=", text,
          ": the least is above the most; give the smaller number first");
}

std::vector<CollKey> what_keys() {
  return {
      {"op", "all | NAME,...",
       "all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, all_to_all_v "
       "(uneven "
       "parts), gather, scatter, shift (to the next rank of a ring), ping_pong (pairs, one way), "
       "both_ways (pairs, at once), barrier",
       [](CollCase& c, V v) { c.operations = names_of<Operation, kOperations>("op", v); },
       [](const CollCase& c) { return names_text<Operation, kOperations>(c.operations); }},
      mesh_key<CollCase>(),
      order_key<CollCase>(),
      ranks_per_node_key<CollCase>(),
      nodes_key<CollCase>(),
      link_key<CollCase>(),
      {"axis", "world | all | tp,dp.cp,...",
       "whose groups: of an axis, of a product of axes, of every axis with more than one rank, or "
       "all ranks",
       [](CollCase& c, V v) { c.axes_text = v; }, [](const CollCase& c) { return c.axes_text; }},
      {"groups", "all | one", "all groups of the axis at once, or the first alone",
       [](CollCase& c, V v) {
         c.all_groups = choice<bool>("groups", v, {{"all", true}, {"one", false}});
       },
       [](const CollCase& c) { return std::string(c.all_groups ? "all" : "one"); }},
      {"beside", "none | OP:AXIS:SIZE",
       "another collective that runs over and over meanwhile; also timed without it, in turn",
       [](CollCase& c, V v) { c.beside = beside_of(v); },
       [](const CollCase& c) { return beside_text(c.beside); }},
      {"size", "SIZE | MIN:MAX:xF | MIN:MAX:+SIZE | MIN:MAX/N, ...",
       "S as nccl-tests means it: 1K, 1.5MiB (1024), 64KB (1000); ranges by a factor, a step, or N "
       "to a decade",
       [](CollCase& c, V v) {
         c.sizes_text = v;
         c.sizes = parse_sizes(v, "size");
       },
       [](const CollCase& c) { return c.sizes_text; }},
      {"dtype", "all | fp32,...",
       "fp32, fp64, bf16, fp16, int32, int8, uint8, uint32, int64, uint64",
       [](CollCase& c, V v) { c.dtypes = names_of<DType, kDTypes>("dtype", v); },
       [](const CollCase& c) { return names_text<DType, kDTypes>(c.dtypes); }},
      {"redop", "all | sum,...", "sum, prod, min, max, avg",
       [](CollCase& c, V v) { c.redops = names_of<ReduceOp, kReduceOps>("redop", v); },
       [](const CollCase& c) { return names_text<ReduceOp, kReduceOps>(c.redops); }},
      {"root", "N", "place in the group of the root of broadcast, reduce, gather and scatter",
       [](CollCase& c, V v) { c.root = static_cast<int>(whole("root", v, 0)); },
       [](const CollCase& c) { return cat(c.root); }},
      {"in_place", "both | in | out", "whether input and output are one buffer",
       [](CollCase& c, V v) {
         c.places = choice<Places>(
             "in_place", v, {{"both", Places::both}, {"in", Places::in}, {"out", Places::out}});
       },
       [](const CollCase& c) {
         return std::string(c.places == Places::both ? "both"
                            : c.places == Places::in ? "in"
                                                     : "out");
       }},
      {"algorithm", "all | NAME,... | @FILE",
       "own (one pass over shared memory), native (the library's), direct, ring, halving_doubling, "
       "tree, two_level; several in turn at each size; or for each size the one that a file of "
       "--tune "
       "has",
       [](CollCase& c, V v) {
         c.tuning.reset();
         if (v.starts_with('@')) {
           c.tuning =
               tuning_from_json(read_file(std::string(v.substr(1)), "algorithm"), v.substr(1));
         } else {
           c.algorithms = names_of<Algorithm, kAlgorithms>("algorithm", v);
         }
       },
       [](const CollCase& c) {
         return c.tuning ? cat('@', c.tuning->origin)
                         : names_text<Algorithm, kAlgorithms>(c.algorithms);
       }},
  };
}

std::vector<CollKey> how_keys() {
  return {
      {"cache", "warm | cold",
       "the same buffers every time, or in turn through a pool larger than the last-level cache",
       [](CollCase& c, V v) {
         c.cache = choice<Cache>("cache", v, {{"warm", Cache::warm}, {"cold", Cache::cold}});
       },
       [](const CollCase& c) { return std::string(name_of(c.cache)); }},
      {"call", "blocking | stream",
       "made by the rank itself, or submitted to a stream of its own, a thread that waits for "
       "work: "
       "then also how long until the submission returns",
       [](CollCase& c, V v) {
         c.call = choice<CallKind>(
             "call", v, {{"blocking", CallKind::blocking}, {"stream", CallKind::stream}});
       },
       [](const CollCase& c) { return std::string(name_of(c.call)); }},
      {"overlap", "none | matmul | memory",
       "computation on a second thread of each rank, for as long as the operation takes: how much "
       "of one hides behind the other",
       [](CollCase& c, V v) {
         c.overlap = choice<ComputeKind>("overlap", v,
                                         {{"none", ComputeKind::none},
                                          {"matmul", ComputeKind::matmul},
                                          {"memory", ComputeKind::memory}});
       },
       [](const CollCase& c) { return std::string(name_of(c.overlap)); }},
      {"warm_up", "N", "operations before the timed ones, until their times stay; 0: none",
       [](CollCase& c, V v) { c.warm_up = static_cast<int>(whole("warm_up", v, 0)); },
       [](const CollCase& c) { return cat(c.warm_up); }},
      {"interval", "X%",
       "wanted half width of the 95 % interval of the median, relative to it; then a point ends",
       [](CollCase& c, V v) { c.interval = interval_of(v); },
       [](const CollCase& c) { return number_text(c.interval); }},
      {"time_cap", "DURATION", "or it ends when its timed operations have taken so long",
       [](CollCase& c, V v) {
         c.time_cap_s = parse_duration_ns(v, "time_cap") / 1e9;
         require(c.time_cap_s > 0, "time_cap=", v, ": give more than 0, as in 500ms");
       },
       [](const CollCase& c) { return cat(number_text(c.time_cap_s), "s"); }},
      {"iterations", "LEAST,MOST", "timed operations of a point",
       [](CollCase& c, V v) { set_iterations(c, v); },
       [](const CollCase& c) { return cat(c.least, ',', c.most); }},
      {"check", "on | off", "look at what was moved and summed, outside the clock",
       [](CollCase& c, V v) { c.check = on_off("check", v); },
       [](const CollCase& c) { return on_off_text(c.check); }},
      {"pages", "huge | small", "of the buffers: 2 MiB or 4 KiB",
       [](CollCase& c, V v) {
         c.pages =
             choice<PageSize>("pages", v, {{"huge", PageSize::huge}, {"small", PageSize::small}});
       },
       [](const CollCase& c) { return std::string(name_of(c.pages)); }},
      {"seed", "N", "of what is sent", [](CollCase& c, V v) { c.seed = whole("seed", v, 0); },
       [](const CollCase& c) { return cat(c.seed); }},
      {"timeout_s", "X",
       "a run in which nothing moves for so long ends, and each rank's place is told",
       [](CollCase& c, V v) {
         c.timeout_s = parse_number(v, "timeout_s");
         require(c.timeout_s > 0, "timeout_s=", v, ": give a number above 0");
       },
       [](const CollCase& c) { return number_text(c.timeout_s); }},
      {"inject", "none | rank:R:DELAY",
       "keeps a rank back before every operation, to see that the report names it",
       [](CollCase& c, V v) { c.injection = injection_of(v); },
       [](const CollCase& c) {
         return c.injection ? cat("rank:", c.injection->rank, ':', c.injection->delay_ns, "ns")
                            : std::string("none");
       }},
      mode_key<CollCase>(),
      machine_key<CollCase>(
          "of mode=sim; elsewhere what to compare with ('meshbench machines' lists them); "
          "machine.FIELD=VALUE overrides a field"),
  };
}

bool comes_first(const Word& word) { return word.key == "machine" || word.key == "mesh"; }

void set_axes(CollCase& c) {
  c.axes.clear();
  if (c.axes_text != "all") {
    for (const std::string& name : split_at(c.axes_text, ','))
      c.axes.push_back(group_named(name, "axis"));
    return;
  }
  for (int axis = 0; axis < kAxes; ++axis) {
    if (c.mesh.size(static_cast<Axis>(axis)) > 1)
      c.axes.push_back(group_of(static_cast<Axis>(axis)));
  }
  require(!c.axes.empty(), "axis=all: mesh=", c.mesh.to_text(),
          " has no axis with more than one rank; give one such as mesh=dp2.tp2");
}

}  // namespace

const std::vector<CollKey>& coll_keys() {
  static const std::vector<CollKey> table = [] {
    std::vector<CollKey> keys = what_keys();
    for (const CollKey& key : how_keys()) keys.push_back(key);
    return keys;
  }();
  return table;
}

CollCase parse_coll_case(const std::vector<std::string>& given) {
  CollCase c;
  std::vector<Word> words = distinct_words(given);
  std::stable_partition(words.begin(), words.end(), comes_first);
  const bool sim = std::any_of(words.begin(), words.end(), [](const Word& word) {
    return word.key == "mode" && word.value == "sim";
  });
  const auto names_machine = [](const Word& word) { return word.key == "machine"; };
  if (sim && std::none_of(words.begin(), words.end(), names_machine))
    find_key(coll_keys(), {"machine", ""}).set(c, "h100x8");
  for (const Word& word : words) {
    if (!word.key.starts_with("machine.")) {
      find_key(coll_keys(), word).set(c, word.value);
      continue;
    }
    require(!c.machine_name.empty(), word.key, "=", word.value,
            " overrides a field of no machine; give machine= too");
    set_field(c.machine, word.key, word.value);
  }
  place_ranks(c);
  if (c.sizes.empty()) c.sizes = parse_sizes(c.sizes_text, "size");
  set_axes(c);
  require(c.mode == Mode::sim || on_mpi(c.mode) || c.mesh.world() <= kMostThreads,
          "mesh=", c.mesh.to_text(), " has ", c.mesh.world(), " ranks; mode=", name_of(c.mode),
          " takes at most ", kMostThreads, " of them in one process, mode=sim any number");
  require(c.mode == Mode::threads || !c.link, "link=", c.link ? to_text(*c.link) : "",
          " slows threads down; leave it out of mode=", name_of(c.mode));
  require(c.mode != Mode::sim || (!c.beside && c.overlap == ComputeKind::none && !c.injection &&
                                  c.call == CallKind::blocking),
          "mode=sim has no beside=, overlap=, inject= or call=stream; give mode=threads, or leave "
          "them out");
  require(!on_cuda(c.mode) || (!c.beside && c.overlap == ComputeKind::none &&
                               c.cache == Cache::warm && c.pages == PageSize::huge),
          "mode=", name_of(c.mode),
          " has no beside=, overlap=, cache=cold or pages=small; give mode=threads, or leave them "
          "out");
  require(!on_nccl(c.mode) || (!c.tuning && c.algorithms == std::vector{Algorithm::own}),
          "mode=", name_of(c.mode),
          ": NCCL chooses its algorithms itself (NCCL_ALGO limits it); leave algorithm= out");
  check_config(c);
  return c;
}

std::string to_text(const CollCase& c) {
  const CollCase defaults;
  std::string text;
  for (const CollKey& key : coll_keys()) {
    const std::string value = key.get(c);
    const bool always = key.name == "op" || key.name == "mesh" || key.name == "size";
    if (always || value != key.get(defaults))
      text += cat(text.empty() ? "" : " ", quoted(key.name, value));
    if (key.name == "machine" && !c.machine_name.empty()) {
      CollCase base;
      key.set(base, c.machine_name);
      text += overrides("machine.", to_json(base.machine), to_json(c.machine));
    }
  }
  return text;
}

Surroundings surroundings_of(const CollCase& c, const std::vector<Point>& points) {
  constexpr std::int64_t kLarge = 16 << 20, kArray = 64 << 20;
  Surroundings around{.mode = std::string(name_of(c.mode))};
  if (!c.machine_name.empty()) around.machine = c.machine;
  if (on_cuda(c.mode) && why_no_speed()) around.no_speed = why_no_speed();
  const bool large = std::any_of(points.begin(), points.end(),
                                 [](const Point& point) { return point.bytes >= kLarge; });
  if (c.mode == Mode::threads && !c.link && large && c.mesh.world() > 1) {
    const Bandwidth memory(std::min(c.mesh.world(), usable_cores()), kArray);
    around.memory_bytes_per_s = 1e9 * memory.gb_per_s(Bandwidth::Pattern::triad);
  }
  return around;
}

}  // namespace mb
