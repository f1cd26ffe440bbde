#include "bench/choose/space.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "bench/choose/mesh_links.h"
#include "parallel/strategy/layout.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"
#include "workloads/model/counts.h"

namespace mb {
namespace {

// Larger micro-batches than this and more chunks are not searched.
constexpr int kMostMicroBatch = 64, kMostChunks = 8;
// Over fewer, a ring of attention is launches and latencies: each hop's product is a few
// microseconds.
constexpr std::int64_t kLeastTokens = 1024;

std::vector<int> divisors(int n) {
  std::vector<int> all;
  for (int d = 1; d <= n; ++d) {
    if (n % d == 0) all.push_back(d);
  }
  return all;
}

template <class T>
std::vector<T> fixed_or(const std::optional<T>& fixed, std::vector<T> all) {
  return fixed ? std::vector<T>{*fixed} : all;
}

// Seconds of what each axis does, at three sizes: a way of saying which links it has.
std::vector<double> links_of(const Mesh& mesh, const Machine& machine) {
  const MeshLinks links(mesh, machine);
  std::vector<double> seconds;
  for (const std::int64_t bytes : {64 << 10, 4 << 20, 256 << 20}) {
    const auto add = [&](CollectiveKind kind, Group group) {
      seconds.push_back(links.seconds(kind, mesh.spanned(group), bytes));
    };
    add(CollectiveKind::all_reduce, group_of(Axis::tp));
    add(CollectiveKind::shift, group_of(Axis::cp));
    add(CollectiveKind::all_to_all, group_of(Axis::ep));
    add(CollectiveKind::all_reduce, kReplicas);
    for (const Group owners : {kDataOwners, kExpertOwners}) {
      add(CollectiveKind::all_reduce, owners);
      add(CollectiveKind::all_gather, owners);
    }
    if (mesh.size(Axis::pp) == 1) continue;
    const MeshLinks::Hops hops = links.hops(bytes, 1);
    seconds.insert(seconds.end(), hops.next.begin(), hops.next.end());
    seconds.insert(seconds.end(), hops.before.begin(), hops.before.end());
  }
  return seconds;
}

bool no_better(const std::vector<double>& one, const std::vector<double>& other) {
  for (std::size_t i = 0; i < one.size(); ++i) {
    if (one[i] < other[i]) return false;
  }
  return true;
}

}  // namespace

std::string rule_of(const std::string& message) {
  std::string rule;
  for (std::size_t i = 0; i < message.size() && message[i] != ';'; ++i) {
    const bool word = i > 0 && (std::isalnum(static_cast<unsigned char>(message[i - 1])) != 0);
    if (std::isdigit(static_cast<unsigned char>(message[i])) == 0 || word) {
      rule += message[i];
      continue;
    }
    rule += 'N';
    while (i + 1 < message.size() &&
           (std::isdigit(static_cast<unsigned char>(message[i + 1])) != 0))
      ++i;
  }
  if (rule.starts_with("mesh=")) rule.erase(0, rule.find(": ") + 2);
  return rule;
}

Space::Space(Question question) : question_(std::move(question)) {
  const Question& q = question_;
  require(q.gpus >= 1, "gpus=", q.gpus, ": give the number of GPUs, such as gpus=64");
  require(q.global_batch >= 1, "global_batch=", q.global_batch,
          ": give the sequences of a step, such as global_batch=512");
  check_model(q.model);
  const int per_node = q.machine.ranks_per_node;
  require(q.machine.nodes == 0 || q.gpus <= q.machine.nodes * per_node, "gpus=", q.gpus,
          ": machine=", q.machine.name, " has ", q.machine.nodes, " nodes of ", per_node,
          ", which is ", q.machine.nodes * per_node,
          "; give fewer, or machine.nodes=", (q.gpus + per_node - 1) / per_node);
  require(q.gpus <= per_node || q.gpus % per_node == 0, "gpus=", q.gpus, " does not fill nodes of ",
          per_node, "; nearest: ", q.gpus / per_node * per_node, " or ",
          (q.gpus / per_node + 1) * per_node);
  for (const auto& [name, size] :
       {std::pair{"tp", q.tp}, {"cp", q.cp}, {"ep", q.ep}, {"pp", q.pp}, {"dp", q.dp}}) {
    require(!size || (*size >= 1 && q.gpus % *size == 0), name, "=", size.value_or(0),
            " does not divide gpus=", q.gpus);
  }
  require(!q.ep || *q.ep == 1 || q.model.experts > 1, "ep=", q.ep.value_or(1),
          ": model=", q.model.name, " has no experts; use dp=");
  require(!q.mesh || q.mesh->world() == q.gpus, "mesh=", q.mesh ? q.mesh->to_text() : "", " has ",
          q.mesh ? q.mesh->world() : 0, " ranks, and gpus=", q.gpus);
  add_meshes();
  add_orders();
}

void Space::add_meshes() {
  const Question& q = question_;
  if (q.mesh) return add_orders_of_axes(*q.mesh);
  const std::vector<int> all = divisors(q.gpus);
  const std::vector<int> experts = q.model.experts > 1 ? all : std::vector<int>{1};
  for (const int tp : fixed_or(q.tp, all)) {
    for (const int cp : fixed_or(q.cp, all)) {
      for (const int ep : fixed_or(q.ep, experts)) {
        for (const int pp : fixed_or(q.pp, all)) {
          const std::int64_t inner = std::int64_t{1} * tp * cp * ep * pp;
          if (inner > q.gpus || q.gpus % inner != 0) continue;
          const auto dp = static_cast<int>(q.gpus / inner);
          if (q.dp && dp != *q.dp) continue;
          add_orders_of_axes(
              Mesh::parse(cat("dp", dp, ".pp", pp, ".cp", cp, ".ep", ep, ".tp", tp)));
        }
      }
    }
  }
  require(!meshes_.empty(), "no mesh of gpus=", q.gpus,
          " has the sizes that are given; leave one of tp=, cp=, ep=, pp=, dp= out");
}

// Those whose every axis is on links as good as in another are left out: no operation of theirs is
// faster, and a step is never faster for a slower operation.
void Space::add_orders_of_axes(const Mesh& plain) {
  Mesh mesh = plain;
  mesh.set_ranks_per_node(question_.machine.ranks_per_node);
  if (question_.order) {
    mesh.set_order(*question_.order);
    meshes_.push_back(mesh);
    return;
  }
  std::vector<std::string> axes;  // in the usual order
  for (const char* name : {"tp", "cp", "ep", "dp", "rdp", "pp"}) {
    for (int a = 0; a < kAxes; ++a) {
      if (name_of(static_cast<Axis>(a)) == name && mesh.size(static_cast<Axis>(a)) > 1)
        axes.emplace_back(name);
    }
  }
  if (axes.size() < 2 || mesh.world() <= mesh.ranks_per_node()) {
    meshes_.push_back(mesh);
    return;
  }
  std::vector<int> turns;
  for (std::size_t i = 0; i < axes.size(); ++i) turns.push_back(static_cast<int>(i));
  std::vector<std::pair<std::vector<double>, Mesh>> kept;
  do {
    Mesh ordered = mesh;
    if (!std::is_sorted(turns.begin(), turns.end())) {
      std::string order;
      for (const int i : turns) order += cat(order.empty() ? "" : ",", axes[i]);
      ordered.set_order(order);
    }
    std::vector<double> links = links_of(ordered, question_.machine);
    const auto beaten = [&](const auto& other) { return no_better(links, other.first); };
    if (std::any_of(kept.begin(), kept.end(), beaten)) {
      ++dominated_;
      continue;
    }
    dominated_ += static_cast<std::int64_t>(
        std::erase_if(kept, [&](const auto& other) { return no_better(other.first, links); }));
    kept.emplace_back(std::move(links), ordered);
  } while (std::next_permutation(turns.begin(), turns.end()));
  for (auto& [links, ordered] : kept) meshes_.push_back(std::move(ordered));
}

void Space::add_orders() {
  const Question& q = question_;
  for (const Schedule& schedule : schedules()) {
    if (q.schedule ? schedule.name != *q.schedule : schedule.name == "gpipe") continue;
    const std::string name(schedule.name);
    if (q.chunks) {
      orders_.push_back({name, *q.chunks});
    } else if (schedule.placement == Placement::looped) {
      for (int chunks = 2; chunks <= kMostChunks; ++chunks) orders_.push_back({name, chunks});
    } else {
      orders_.push_back({name, 0});
    }
  }
}

void Space::visit(int mesh_index, const std::function<void(const Candidate&)>& legal,
                  const std::function<void(const Refusal&)>& refused) const {
  const Question& q = question_;
  const Mesh& mesh = meshes_[mesh_index];
  const bool tensor = mesh.size(Axis::tp) > 1, pipeline = mesh.size(Axis::pp) > 1;
  const int owners = mesh.size(Axis::dp) * mesh.size(Axis::cp) * mesh.size(Axis::ep);
  const int shares = mesh.data_size();
  std::vector<int> zeros = fixed_or(q.zero, owners > 1 ? std::vector{0, 1, 2, 3} : std::vector{0});
  if (!q.zero && mesh.size(Axis::rdp) > 1) zeros.erase(zeros.begin());  // nothing to replicate
  const auto recomputes =
      fixed_or(q.recompute, {Recompute::none, Recompute::attention, Recompute::full});
  const auto sequence = fixed_or<bool>(
      q.sequence_parallel, tensor ? std::vector<bool>{false, true} : std::vector{false});
  const auto offloads = fixed_or<std::pair<bool, bool>>(
      q.offload, {{false, false}, {true, false}, {false, true}, {true, true}});
  const auto inner = static_cast<std::int64_t>(zeros.size() * recomputes.size() * offloads.size());
  StepOptions options = q.options;
  options.zero = zeros.back();
  const auto refuse = [&](const std::string& message, std::int64_t cases) {
    refused({{q.model, mesh, options}, rule_of(message), message, cases});
  };

  const int context = mesh.size(Axis::cp);
  if (!q.mesh && !q.cp && context > 1 && q.model.sequence / context < kLeastTokens) {
    options.micro_batches = 1;
    return refuse(cat("cp=", context, " leaves ", q.model.sequence / context,
                      " tokens of a sequence to a rank; from ", kLeastTokens,
                      " on it is searched, fewer where cp= is given"),
                  inner);
  }
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= kMostMicroBatch; size *= 2) sizes.push_back(size);
  for (const std::int64_t micro_batch : fixed_or(q.micro_batch, sizes)) {
    options.micro_batch = micro_batch;
    if (q.global_batch % (micro_batch * shares) != 0) {
      options.micro_batches = 1;
      if (micro_batch == 1 || q.micro_batch)
        refuse(cat("global_batch=", q.global_batch, " does not divide into micro-batches of ",
                   micro_batch, " on ", shares, " data ranks"),
               1);
      break;
    }
    options.micro_batches = static_cast<int>(q.global_batch / (micro_batch * shares));
    for (std::size_t o = 0; o < orders_.size(); ++o) {
      // Of one stage all schedules are one.
      if (!pipeline && o > 0) break;
      options.schedule = pipeline || q.schedule ? orders_[o].schedule : "1f1b";
      options.chunks = pipeline || q.chunks ? orders_[o].chunks : 0;
      // As many chunks as give all stages the same layers, but for the fewest.
      if (pipeline && !q.chunks && options.chunks > 2 &&
          q.model.layers % (std::int64_t{1} * options.chunks * mesh.size(Axis::pp)) != 0)
        continue;
      for (const bool sp : sequence) {
        options.sequence_parallel = sp;
        try {
          check_step(q.model, mesh, options);
        } catch (const Error& error) {
          refuse(error.what(), inner);
          continue;
        }
        for (const int zero : zeros) {
          for (const Recompute recompute : recomputes) {
            for (const auto& [optimizer, activations] : offloads) {
              legal({.mesh = mesh_index,
                     .micro_batch = static_cast<std::int32_t>(micro_batch),
                     .order = static_cast<std::int16_t>(o),
                     .zero = static_cast<std::int8_t>(zero),
                     .recompute = recompute,
                     .sequence_parallel = sp,
                     .offload_optimizer = optimizer,
                     .offload_activations = activations});
            }
          }
        }
      }
    }
  }
}

StepOptions Space::options_of(const Candidate& c) const {
  const Question& q = question_;
  const Mesh& mesh = meshes_[c.mesh];
  StepOptions options = q.options;
  const bool pipeline = mesh.size(Axis::pp) > 1;
  options.micro_batch = c.micro_batch;
  options.micro_batches = static_cast<int>(q.global_batch / (c.micro_batch * mesh.data_size()));
  options.schedule = pipeline || q.schedule ? orders_[c.order].schedule : "1f1b";
  options.chunks = pipeline || q.chunks ? orders_[c.order].chunks : 0;
  options.zero = c.zero;
  options.recompute = c.recompute;
  options.sequence_parallel = c.sequence_parallel;
  options.offload_optimizer = c.offload_optimizer;
  options.offload_activations = c.offload_activations;
  return options;
}

}  // namespace mb
