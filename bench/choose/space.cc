#include "bench/choose/space.h"

#include <algorithm>
#include <cctype>

#include "bench/choose/axis_orders.h"
#include "parallel/cost/spread.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Larger micro-batches than this and more chunks are not searched, nor fewer tokens of a sequence
// on a rank.
constexpr int kMostMicroBatch = 64, kMostChunks = 8;
constexpr int kTensorChunks[] = {1, 2};
constexpr std::int64_t kLeastTokens = 256;

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

// What is searched of one mesh.
struct Choices {
  std::vector<int> zero;
  std::vector<Recompute> recompute;
  std::vector<bool> sequence_parallel;
  std::vector<int> tensor_chunks;
  std::vector<ContextKind> context;
  std::vector<std::pair<bool, bool>> offload;
  std::vector<std::int64_t> micro_batch;

  Choices(const Question& q, const Mesh& mesh)
      : zero(fixed_or(q.zero, {0})),
        recompute(fixed_or(q.recompute, {Recompute::none, Recompute::attention, Recompute::full})),
        sequence_parallel(fixed_or(q.sequence_parallel, {false})),
        tensor_chunks(fixed_or(q.tensor_chunks, {1})),
        context(fixed_or(q.context, {ContextKind::ring})),
        offload(fixed_or(q.offload, {{false, false}, {true, false}, {false, true}, {true, true}})),
        micro_batch(fixed_or(q.micro_batch, {})) {
    const int owners = mesh.size(Axis::dp) * mesh.size(Axis::cp) * mesh.size(Axis::ep);
    if (!q.zero && owners > 1) zero = {0, 1, 2, 3};
    if (!q.zero && mesh.size(Axis::rdp) > 1)
      zero = {1, 2, 3};  // else there is nothing to replicate
    if (mesh.size(Axis::tp) > 1) {
      if (!q.sequence_parallel) sequence_parallel = {false, true};
      if (!q.tensor_chunks)
        tensor_chunks.assign(std::begin(kTensorChunks), std::end(kTensorChunks));
    }
    if (!q.context && mesh.size(Axis::cp) > 1) context = {ContextKind::ring, ContextKind::ulysses};
    for (std::int64_t size = 1; !q.micro_batch && size <= kMostMicroBatch; size *= 2)
      micro_batch.push_back(size);
  }
  // That go with one of tensor_chunks.
  std::int64_t inner() const {
    return static_cast<std::int64_t>(zero.size() * recompute.size() * offload.size());
  }
  std::int64_t of_order() const {
    return inner() * static_cast<std::int64_t>(sequence_parallel.size() * context.size() *
                                               tensor_chunks.size());
  }
};

// Replicas only of what something divides.
std::vector<Mesh> meshes_of_sizes(const Question& q) {
  const std::vector<int> all = divisors(q.gpus), one = {1};
  std::vector<Mesh> meshes;
  for (const int tp : fixed_or(q.tp, all)) {
    for (const int cp : fixed_or(q.cp, all)) {
      for (const int ep : fixed_or(q.ep, q.model.experts > 1 ? all : one)) {
        for (const int pp : fixed_or(q.pp, all)) {
          for (const int rdp : fixed_or(q.rdp, q.zero.value_or(1) > 0 ? all : one)) {
            const std::int64_t inner = std::int64_t{1} * tp * cp * ep * pp * rdp;
            if (inner > q.gpus || q.gpus % inner != 0) continue;
            const auto dp = static_cast<int>(q.gpus / inner);
            if (q.dp ? dp != *q.dp : !q.rdp && rdp > 1 && dp * cp * ep == 1) continue;
            meshes.push_back(Mesh::parse(
                cat("rdp", rdp, ".dp", dp, ".pp", pp, ".cp", cp, ".ep", ep, ".tp", tp)));
          }
        }
      }
    }
  }
  return meshes;
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
  for (const auto& [name, size] : {std::pair{"tp", q.tp},
                                   {"cp", q.cp},
                                   {"ep", q.ep},
                                   {"pp", q.pp},
                                   {"rdp", q.rdp},
                                   {"dp", q.dp}}) {
    require(!size || (*size >= 1 && q.gpus % *size == 0), name, "=", size.value_or(0),
            " does not divide gpus=", q.gpus);
  }
  require(!q.ep || *q.ep == 1 || q.model.experts > 1, "ep=", q.ep.value_or(1),
          ": model=", q.model.name, " has no experts; use dp=");
  require(!q.rdp || *q.rdp == 1 || q.zero.value_or(1) > 0, "rdp=", q.rdp.value_or(1),
          " replicates what ZeRO divides; give zero=1, 2 or 3, or leave zero= out");
  require(!q.mesh || q.mesh->world() == q.gpus, "mesh=", q.mesh ? q.mesh->to_text() : "", " has ",
          q.mesh ? q.mesh->world() : 0, " ranks, and gpus=", q.gpus);
  add_meshes();
  add_orders();
}

void Space::add_meshes() {
  const Question& q = question_;
  AxisOrders orders(q.machine);
  const auto add = [&](Mesh mesh) {
    mesh.set_ranks_per_node(q.machine.ranks_per_node);
    if (q.order) mesh.set_order(*q.order);
    std::vector<Mesh> best;
    if (q.order || !check_sizes(mesh).empty()) {
      best = {mesh};
    } else {
      best = orders.best_of(mesh);
      std::erase_if(best, [&](const Mesh& ordered) { return !refusal_of(ordered).empty(); });
      if (best.empty()) best = {mesh};
    }
    for (Mesh& ordered : best) meshes_.push_back(std::move(ordered));
  };
  if (q.mesh) {
    add(*q.mesh);
  } else {
    for (const Mesh& mesh : meshes_of_sizes(q)) add(mesh);
    require(!meshes_.empty(), "no mesh of gpus=", q.gpus,
            " has the sizes that are given; leave one of tp=, cp=, ep=, pp=, rdp=, dp= out");
  }
  dominated_ = orders.dominated();
}

// Replicas are there to keep ZeRO's sums and gathers within a node. Over as many nodes as without
// them, these send more between nodes, for rdp groups at once, and replicas come on top.
std::string Space::refusal_of(const Mesh& mesh) const {
  const Question& q = question_;
  const int context = mesh.size(Axis::cp);
  if (!q.mesh && !q.cp && context > 1 && q.model.sequence / context < kLeastTokens)
    return cat("cp=", context, " leaves ", q.model.sequence / context,
               " tokens of a sequence to a rank; from ", kLeastTokens,
               " on it is searched, fewer where cp= is given");
  const bool searched = !q.mesh && !q.order && !q.rdp && mesh.size(Axis::rdp) > 1;
  const auto nodes = [&](Group group) { return spread_of(mesh, group, q.machine).nodes; };
  constexpr Group kAll{static_cast<std::uint8_t>(kDataOwners.axes | kReplicas.axes)};
  if (searched && (nodes(kDataOwners) > 1 || nodes(kAll) == 1))
    return cat("rdp=", mesh.size(Axis::rdp), ": what ZeRO divides lies over ", nodes(kDataOwners),
               " nodes with replicas and over ", nodes(kAll),
               " without; rdp is searched where it takes several to one, else where rdp= is given");
  return check_sizes(mesh);
}

// Of the fewest demands: what breaks a rule here does so with all other choices.
std::string Space::check_sizes(const Mesh& mesh) const {
  const Question& q = question_;
  StepOptions options = q.options;
  options.zero = q.zero.value_or(mesh.size(Axis::rdp) > 1 ? 1 : 0);
  options.micro_batches =
      static_cast<int>(std::max<std::int64_t>(1, q.global_batch / mesh.data_size()));
  std::string first;
  for (const ContextKind context : Choices(q, mesh).context) {
    options.context = context;
    try {
      check_step(q.model, mesh, options);
      return "";
    } catch (const Error& error) {
      if (first.empty()) first = error.what();
    }
  }
  return first;
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

namespace {

// Goes over the cases of one mesh.
class Visit {
 public:
  Visit(const Space& space, int mesh, const Space::Visitor& legal,
        const std::function<void(const Refusal&)>& refused)
      : q_(space.question()),
        mesh_(space.meshes()[mesh]),
        choices_(q_, mesh_),
        legal_(legal),
        refused_(refused),
        options_(q_.options) {
    candidate_.mesh = mesh;
    options_.micro_batches = 1;
    options_.zero = choices_.zero.back();
    // Of one stage all schedules are one.
    orders_ = mesh_.size(Axis::pp) > 1 ? space.orders().size() : 1;
  }

  void refuse_all(const std::string& reason) {
    refuse(reason,
           choices_.of_order() * static_cast<std::int64_t>(orders_ * choices_.micro_batch.size()));
  }

  void run(const Space& space) {
    const int shares = mesh_.data_size();
    for (const std::int64_t micro_batch : choices_.micro_batch) {
      options_.micro_batch = micro_batch;
      candidate_.micro_batch = static_cast<std::int32_t>(micro_batch);
      if (q_.global_batch % (micro_batch * shares) != 0) {
        if (micro_batch == 1 || q_.micro_batch)
          refuse(cat("global_batch=", q_.global_batch, " does not divide into micro-batches of ",
                     micro_batch, " on ", shares, " data ranks"),
                 1);
        return;
      }
      options_.micro_batches = static_cast<int>(q_.global_batch / (micro_batch * shares));
      for (std::size_t o = 0; o < orders_; ++o) {
        if (set_order(space.orders(), o)) go_over_tensor_and_context();
      }
    }
  }

 private:
  void refuse(const std::string& message, std::int64_t cases) {
    refused_({{q_.model, mesh_, options_}, rule_of(message), message, cases});
  }

  bool set_order(const std::vector<Order>& orders, std::size_t index) {
    const bool pipeline = mesh_.size(Axis::pp) > 1;
    candidate_.order = static_cast<std::int16_t>(index);
    options_.schedule = pipeline || q_.schedule ? orders[index].schedule : "1f1b";
    options_.chunks = pipeline || q_.chunks ? orders[index].chunks : 0;
    // As many chunks as give all stages the same layers, but for the fewest.
    return !pipeline || q_.chunks || options_.chunks <= 2 ||
           q_.model.layers % (std::int64_t{1} * options_.chunks * mesh_.size(Axis::pp)) == 0;
  }

  void go_over_tensor_and_context() {
    for (const bool sequence_parallel : choices_.sequence_parallel) {
      for (const ContextKind context : choices_.context) {
        candidate_.sequence_parallel = options_.sequence_parallel = sequence_parallel;
        candidate_.context = options_.context = context;
        check_tensor_chunks();
        go_over_the_rest();
      }
    }
  }

  void check_tensor_chunks() {
    legal_chunks_.clear();
    options_.zero = choices_.zero.back();
    for (const int chunks : choices_.tensor_chunks) {
      options_.tensor_chunks = chunks;
      try {
        check_step(q_.model, mesh_, options_);
        legal_chunks_.push_back(chunks);
      } catch (const Error& error) {
        // What is wrong with the fewest is wrong with any.
        const bool all = legal_chunks_.empty();
        const std::size_t refused = all ? choices_.tensor_chunks.size() : 1;
        refuse(error.what(), choices_.inner() * static_cast<std::int64_t>(refused));
        if (all) return;
      }
    }
  }

  void go_over_the_rest() {
    for (const int zero : choices_.zero) {
      for (const Recompute recompute : choices_.recompute) {
        for (const auto& [optimizer, activations] : choices_.offload) {
          for (const int chunks : legal_chunks_) {
            candidate_.zero = static_cast<std::int8_t>(options_.zero = zero);
            candidate_.recompute = options_.recompute = recompute;
            candidate_.offload_optimizer = options_.offload_optimizer = optimizer;
            candidate_.offload_activations = options_.offload_activations = activations;
            candidate_.tensor_chunks = static_cast<std::int8_t>(options_.tensor_chunks = chunks);
            legal_(candidate_, options_);
          }
        }
      }
    }
  }

  const Question& q_;
  const Mesh& mesh_;
  const Choices choices_;
  const Space::Visitor& legal_;
  const std::function<void(const Refusal&)>& refused_;
  std::size_t orders_ = 1;
  Candidate candidate_;
  StepOptions options_;
  std::vector<int> legal_chunks_;
};

}  // namespace

void Space::visit(int mesh, const Visitor& legal,
                  const std::function<void(const Refusal&)>& refused) const {
  Visit visit(*this, mesh, legal, refused);
  const std::string reason = refusal_of(meshes_[mesh]);
  reason.empty() ? visit.run(*this) : visit.refuse_all(reason);
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
  options.tensor_chunks = c.tensor_chunks;
  options.context = c.context;
  options.offload_optimizer = c.offload_optimizer;
  options.offload_activations = c.offload_activations;
  return options;
}

std::vector<Candidate> Space::in_chunks(const Candidate& candidate) const {
  const Mesh& mesh = meshes_[candidate.mesh];
  std::vector<Candidate> all;
  for (const int chunks : Choices(question_, mesh).tensor_chunks) {
    if (chunks <= candidate.tensor_chunks) continue;
    all.push_back(candidate);
    all.back().tensor_chunks = static_cast<std::int8_t>(chunks);
    try {
      check_step(question_.model, mesh, options_of(all.back()));
    } catch (const Error&) {
      all.pop_back();
    }
  }
  return all;
}

}  // namespace mb
