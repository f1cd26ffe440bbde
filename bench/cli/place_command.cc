#include <fmt/core.h>

#include <algorithm>

#include "bench/cli/commands.h"
#include "bench/cli/explained_case.h"
#include "bench/cli/measure.h"
#include "bench/cli/place_text.h"
#include "bench/cli/ranks.h"
#include "parallel/exec/sim_executor.h"
#include "parallel/plan/validate.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

struct Flags {
  std::vector<std::string> words;
  std::string orders = "all", out;
  bool run = false, json = false;
};

// What virtual time runs on: the case's machine, or cores with the links that the case shapes.
Machine machine_of(const Case& c) {
  if (c.mode == Mode::sim) return c.machine;
  Machine machine = find_machine("cpu");
  if (c.link) machine.intra = c.link->intra, machine.inter = c.link->inter;
  return machine;
}

// Those of --orders, or all: each class once.
std::vector<OrderClass> chosen_orders(const Mesh& mesh, const std::string& text) {
  if (text == "all") return distinct_orders(mesh);
  std::vector<OrderClass> chosen;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    const std::string order = text.substr(begin, end - begin);
    begin = end + 1;
    require(!order.empty(), "--orders ", text,
            ": give all, or orders with ; between, e.g. 'tp,dp,pp;dp,tp,pp'");
    Mesh ordered = mesh;
    try {
      ordered.set_order(order);
    } catch (const Error& error) {
      throw Error(cat("--orders ", text, ": ", error.what()));
    }
    const std::string name = order_text(ordered);
    for (const OrderClass& c : chosen) {
      require(std::find(c.orders.begin(), c.orders.end(), name) == c.orders.end(), "--orders ",
              text, ": ", name, " is there twice");
    }
    chosen.push_back({ordered, {name}});
  }
  return chosen;
}

double seconds_of(const Timeline& timeline) {
  const Span window = timeline.window();
  return 1e-9 * static_cast<double>(window.end_ns - window.start_ns);
}

PlacedOrder place(const Case& c, const OrderClass& order, const Machine& machine) {
  PlacedOrder placed{.orders = order.orders, .c = c};
  placed.c.mesh = order.mesh;
  const Plan plan = plan_step(c.model, order.mesh, c.options);
  validate(plan);
  const auto cost = make_roofline_cost(plan, machine, c.stack);
  placed.axes = place_axes(plan, *cost);
  placed.simulated_s = seconds_of(simulate(plan, *cost, c.imbalance));
  return placed;
}

// Orders take turns, so that what else the machine does meets all of them.
void measure_all(std::vector<PlacedOrder>& placed) {
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    for (PlacedOrder& p : placed) {
      Case c = p.c;
      if (round > 0) c.verify = Verify::off;
      const Measured measured = measure(c, [](int, int) { return true; });
      if (measured.verification && !measured.verification->ok)
        throw Exit(kExitNoVerdict, cat("order=", p.orders.front(),
                                       ": the first step is not that of one rank; see 'meshbench "
                                       "run' with the case ",
                                       to_text(p.c)));
      for (const Timeline& timeline : measured.results.timelines)
        p.measured_s.push_back(seconds_of(timeline));
    }
  }
}

void show(const Flags& flags) {
  const Case c = parse_case(flags.words);
  require(c.mesh.world() > 1, "one rank has no order; give a mesh, such as mesh=dp2.tp4");
  require(!flags.run || c.mode == Mode::threads,
          "--run measures threads of this machine; give mode=threads, with ranks_per_node= and "
          "link=, or leave --run out");
  require(!flags.run || c.link,
          "--run: without link= all links of threads are alike; give for example "
          "link='intra:4GB/s,2us;inter:0.5GB/s,20us'");
  if (flags.run) check_launch(c.mode, c.mesh, cat("place ", to_text(c), " --run"));
  const Machine machine = machine_of(c);
  std::vector<PlacedOrder> placed;
  for (const OrderClass& order : chosen_orders(c.mesh, flags.orders))
    placed.push_back(place(c, order, machine));
  std::stable_sort(placed.begin(), placed.end(), [](const PlacedOrder& a, const PlacedOrder& b) {
    return a.simulated_s < b.simulated_s;
  });
  if (flags.run) measure_all(placed);
  if (flags.json || !flags.out.empty()) {
    const std::vector<Json> rows = place_rows(machine, placed);
    if (!flags.out.empty()) write_rows(flags.out, rows);
    for (const Json& row : rows) {
      if (flags.json) fmt::print("{}", to_line(row));
    }
  }
  if (!flags.json) fmt::print("{}", place_text(c, machine, placed));
}

}  // namespace

Verb place_verb() {
  auto flags = std::make_shared<Flags>();
  return {
      .name = "place",
      .help = "Which order of axes keeps what off the links between nodes, and what that is worth",
      .arguments =
          {case_words(flags->words),
           {"--orders", &flags->orders,
            "all, or some with ; between: 'tp,dp,pp;dp,tp,pp', fastest axis first; all joins "
            "those that put the same ranks on a node"},
           {"--run", &flags->run,
            "Measure steps on threads too, in turns; takes link= and ranks_per_node= or nodes="},
           {"-o,--out", &flags->out, "Write a result row for each order to this file, .jsonl"},
           {"--json", &flags->json, "Print the rows and nothing else on stdout, one a line"}},
      .footer =
          "Examples:\n  meshbench place model=gpt-100b mesh=dp2.pp4.tp8 mode=sim machine=h100x8 "
          "micro_batch=4 global_batch=128\n"
          "  meshbench place model=gpt-1m mesh=dp2.tp2 ranks_per_node=2 micro_batch=1 "
          "global_batch=4 steps=2 link='intra:4GB/s,2us;inter:0.05GB/s,200us' --run",
      .run = [flags] { show(*flags); }};
}

}  // namespace mb
