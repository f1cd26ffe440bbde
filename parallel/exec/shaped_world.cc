#include "parallel/exec/shaped_world.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>

#include "parallel/cost/collective_cost.h"
#include "parallel/cost/wire.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

enum class Way { out, in };
int link_of(int owner, Way way, bool inter) {
  return 4 * owner + 2 * static_cast<int>(way) + static_cast<int>(inter);
}

LinkLoad load_from(const LinkShape& shape, const std::map<int, double>& bytes, double seconds,
                   double latency_s) {
  const auto alone = [&](int link, double count) {
    return count / ((link % 2 == 1 ? shape.inter : shape.intra).gb_per_s * 1e9);
  };
  LinkLoad load{.seconds = seconds, .latency_s = latency_s};
  for (const auto& [link, count] : bytes) load.seconds = std::max(load.seconds, alone(link, count));
  for (const auto& [link, count] : bytes) {
    if (count > 0) load.uses.push_back({link, alone(link, count) / load.seconds});
  }
  return load;
}

}  // namespace

LinkLoad load_of(const LinkShape& shape, CollectiveKind kind, std::int64_t bytes,
                 std::span<const int> members, std::span<const int> node_of_rank) {
  std::vector<int> nodes;
  for (const int rank : members) nodes.push_back(node_of_rank[rank]);
  const auto seconds = [&](std::int64_t size) {
    return collective_seconds(kind, Algorithm::own, size, nodes, shape.intra, shape.inter);
  };
  std::map<int, double> links;
  const std::vector<MemberWire> wires = wire_by_member(kind, Algorithm::own, bytes, nodes);
  for (std::size_t k = 0; k < wires.size(); ++k) {
    const int outside = shape.inter_of_node ? nodes[k] : members[k];
    for (const auto& [way, count] :
         {std::pair(Way::out, wires[k].sent), std::pair(Way::in, wires[k].received)}) {
      links[link_of(members[k], way, false)] += count.intra;
      links[link_of(outside, way, true)] += count.inter;
    }
  }
  const double latency = seconds(0);
  return load_from(shape, links, seconds(bytes) - latency, latency);
}

LinkLoad load_of_message(const LinkShape& shape, std::int64_t bytes, int from, int to,
                         std::span<const int> node_of_rank) {
  const bool inter = node_of_rank[from] != node_of_rank[to];
  const int owner = inter && shape.inter_of_node ? node_of_rank[from] : from;
  return load_from(shape, {{link_of(owner, Way::out, inter), static_cast<double>(bytes)}}, 0,
                   (inter ? shape.inter : shape.intra).latency_us * 1e-6);
}

// Operations under way and the links they share.
class ShapedWorld::Fabric {
 public:
  // Of one group: which collective of it, or which message of a pair.
  struct Key {
    std::string group;
    std::vector<int> members;
    int from = -1, to = -1;
    std::int64_t number = 0;
    auto operator<=>(const Key&) const = default;
  };

  Fabric(World& world, const LinkShape& shape, std::vector<int> nodes)
      : world_(world), shape_(shape), nodes_(std::move(nodes)) {
    const std::vector<int>& local = world.local_ranks();
    local_.resize(nodes_.size());
    for (const int rank : local) local_[rank] = true;
  }

  bool is_local(int rank) const { return local_[rank]; }
  std::span<const int> nodes() const { return nodes_; }
  const LinkShape& shape() const { return shape_; }

  // One of `parties` of this process has come; the last of them starts the operation, of the most
  // bytes that any brings. load(bytes) says what it is.
  template <class Load>
  void arrive(const Key& key, int parties, std::int64_t bytes, Load load) {
    const std::lock_guard lock(mutex_);
    Operation& operation = operations_[key];
    operation.bytes = std::max(operation.bytes, bytes);
    if (++operation.arrived < parties) return;
    LinkLoad needed = load(operation.bytes);
    operation.flow = flows_.start(now_s(), needed.seconds, std::move(needed.uses));
    operation.latency_s = needed.latency_s;
    changed_.notify_all();
  }

  // Returns once the operation's time is over. Throws Aborted.
  void await(const Key& key, int parties) {
    std::unique_lock lock(mutex_);
    Operation& operation = operations_.at(key);
    for (double now = now_s(), end = end_of(operation); now < end;
         now = now_s(), end = end_of(operation)) {
      if (world_.aborted()) throw Aborted(world_.reason());
      // Others that start move the end and wake this; who aborts another way is seen soon.
      changed_.wait_until(lock, time_of(std::min(end, now + 0.1)));
    }
    if (++operation.left < parties) return;
    flows_.forget(now_s(), operation.flow);
    operations_.erase(key);
  }

  void wake() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Operation {
    std::int64_t bytes = 0;
    int arrived = 0, left = 0, flow = -1;
    double latency_s = 0;
  };

  double now_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  Clock::time_point time_of(double s) const {
    return start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  }
  double end_of(const Operation& operation) const {
    if (operation.flow < 0) return std::numeric_limits<double>::infinity();
    return flows_.end_of(operation.flow) + operation.latency_s;
  }

  World& world_;
  const LinkShape shape_;
  const std::vector<int> nodes_;
  std::vector<bool> local_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  LinkFlows flows_;
  std::map<Key, Operation> operations_;
};

class ShapedComm final : public Comm {
 public:
  ShapedComm(std::unique_ptr<Comm> comm, std::shared_ptr<ShapedWorld::Fabric> fabric,
             std::string name, std::vector<int> members)
      : comm_(std::move(comm)),
        fabric_(std::move(fabric)),
        name_(std::move(name)),
        members_(std::move(members)),
        sent_(members_.size()),
        received_(members_.size()) {
    parties_ = static_cast<int>(std::count_if(members_.begin(), members_.end(),
                                              [&](int rank) { return fabric_->is_local(rank); }));
  }

  int index() const override { return comm_->index(); }
  int size() const override { return comm_->size(); }

  void all_reduce(const void* from, void* to, std::int64_t count, DType type,
                  ReduceOp op) override {
    collective(CollectiveKind::all_reduce, count * size_of(type),
               [&] { comm_->all_reduce(from, to, count, type, op); });
  }
  void reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
              int root) override {
    collective(CollectiveKind::reduce, count * size_of(type),
               [&] { comm_->reduce(from, to, count, type, op, root); });
  }
  void all_gather(const void* from, void* to, std::int64_t count_each, DType type) override {
    collective(CollectiveKind::all_gather, size() * count_each * size_of(type),
               [&] { comm_->all_gather(from, to, count_each, type); });
  }
  void reduce_scatter(const void* from, void* to, std::int64_t count_each, DType type,
                      ReduceOp op) override {
    collective(CollectiveKind::reduce_scatter, size() * count_each * size_of(type),
               [&] { comm_->reduce_scatter(from, to, count_each, type, op); });
  }
  void all_to_all(const void* from, void* to, std::int64_t count_each, DType type) override {
    collective(CollectiveKind::all_to_all, size() * count_each * size_of(type),
               [&] { comm_->all_to_all(from, to, count_each, type); });
  }
  void all_to_all_v(const void* from, std::span<const std::int64_t> send_counts, void* to,
                    std::span<const std::int64_t> recv_counts, DType type) override {
    const std::int64_t sent =
        std::accumulate(send_counts.begin(), send_counts.end(), std::int64_t{0});
    collective(CollectiveKind::all_to_all_v, sent * size_of(type),
               [&] { comm_->all_to_all_v(from, send_counts, to, recv_counts, type); });
  }
  void shift(const void* from, void* to, std::int64_t count, DType type) override {
    collective(CollectiveKind::shift, count * size_of(type),
               [&] { comm_->shift(from, to, count, type); });
  }
  void broadcast(const void* from, void* to, std::int64_t count, DType type, int root) override {
    collective(CollectiveKind::broadcast, count * size_of(type),
               [&] { comm_->broadcast(from, to, count, type, root); });
  }
  void gather(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    collective(CollectiveKind::gather, size() * count_each * size_of(type),
               [&] { comm_->gather(from, to, count_each, type, root); });
  }
  void scatter(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    collective(CollectiveKind::scatter, size() * count_each * size_of(type),
               [&] { comm_->scatter(from, to, count_each, type, root); });
  }
  void barrier() override { comm_->barrier(); }

  void send(const void* data, std::int64_t bytes, int peer) override {
    const Message out = message(index(), peer, bytes);
    counted([&] { comm_->send(data, bytes, peer); });
    await(out);
  }
  void recv(void* data, std::int64_t bytes, int peer) override {
    const Message in = message(peer, index(), bytes);
    comm_->recv(data, bytes, peer);
    await(in);
  }
  void send_recv(const void* data, std::int64_t bytes, int to, void* into, std::int64_t into_bytes,
                 int from) override {
    const Message out = message(index(), to, bytes), in = message(from, index(), into_bytes);
    counted([&] { comm_->send_recv(data, bytes, to, into, into_bytes, from); });
    await(out);
    await(in);
  }

 private:
  using Key = ShapedWorld::Fabric::Key;
  struct Message {
    Key key;
    int parties = 0;  // 0: not over a link, or to a member that is not there
  };

  template <class Call>
  void counted(Call call) {
    const CommCount before = comm_->carried();
    call();
    const CommCount after = comm_->carried();
    carry(after.elements - before.elements, after.bytes - before.bytes);
  }

  template <class Call>
  void collective(CollectiveKind kind, std::int64_t bytes, Call call) {
    if (size() < 2) return counted(call);
    const Key key{.group = name_, .members = members_, .number = collectives_++};
    fabric_->arrive(key, parties_, bytes, [&](std::int64_t most) {
      return load_of(fabric_->shape(), kind, most, members_, fabric_->nodes());
    });
    counted(call);
    fabric_->await(key, parties_);
  }

  Message message(int from, int to, std::int64_t bytes) {
    const bool sends = from == index();
    const int peer = sends ? to : from;
    if (peer < 0 || peer >= size() || from == to) return {};
    const std::int64_t number = sends ? sent_[to]++ : received_[from]++;
    const Message out{.key = {name_, members_, from, to, number},
                      .parties = 1 + fabric_->is_local(members_[peer])};
    fabric_->arrive(out.key, out.parties, bytes, [&](std::int64_t most) {
      return load_of_message(fabric_->shape(), most, members_[from], members_[to],
                             fabric_->nodes());
    });
    return out;
  }
  void await(const Message& message) {
    if (message.parties > 0) fabric_->await(message.key, message.parties);
  }

  const std::unique_ptr<Comm> comm_;
  const std::shared_ptr<ShapedWorld::Fabric> fabric_;
  const std::string name_;
  const std::vector<int> members_;
  int parties_ = 0;
  std::int64_t collectives_ = 0;
  // By peer: senders and receivers may be different threads.
  std::vector<std::int64_t> sent_, received_;
};

ShapedWorld::ShapedWorld(World& world, const LinkShape& shape, std::vector<int> nodes)
    : world_(world) {
  require(static_cast<int>(nodes.size()) == world.size(), "nodes of ", nodes.size(),
          " ranks for a world of ", world.size());
  require(std::all_of(nodes.begin(), nodes.end(), [](int node) { return node >= 0; }),
          "nodes are numbers of 0 or more");
  fabric_ = std::make_shared<Fabric>(world, shape, std::move(nodes));
}

ShapedWorld::~ShapedWorld() = default;

std::unique_ptr<Comm> ShapedWorld::comm(const std::string& name, const std::vector<int>& members,
                                        int rank) {
  return std::make_unique<ShapedComm>(world_.comm(name, members, rank), fabric_, name, members);
}

std::unique_ptr<Comm> ShapedWorld::native_comm(const std::string& name,
                                               const std::vector<int>& members, int rank) {
  return std::make_unique<ShapedComm>(world_.native_comm(name, members, rank), fabric_,
                                      cat(name, " native"), members);
}

void ShapedWorld::abort(const std::string& reason) {
  world_.abort(reason);
  fabric_->wake();
}

}  // namespace mb
