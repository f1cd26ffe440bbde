// A World whose links are slower than they are: operations wait out what alpha-beta says.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/comm.h"
#include "parallel/cost/machine.h"
#include "parallel/exec/link_flows.h"

namespace mb {

// Of each rank, one way, full duplex. With `inter_of_node`, the ranks of a node share one link to
// the others.
struct LinkShape {
  Link intra, inter;
  bool inter_of_node = false;
  bool operator==(const LinkShape&) const = default;
};
// "intra:4GB/s,2us;inter:0.5GB/s,20us", or inter:0.5GB/s/node,20us. Throws Error naming `subject`,
// the value and what would do.
LinkShape parse_link_shape(std::string_view text, std::string_view subject);
std::string to_text(const LinkShape& shape);

// The links that an operation takes, and for how long if they are free; both directions of a link
// count by themselves. Links 4 r and 4 r + 1 go out of rank r, within its node and to others, 4 r +
// 2 and 4 r + 3 come in; with `inter_of_node`, 4 m + 1 and 4 m + 3 are those of node m.
struct LinkLoad {
  double seconds = 0;    // that its bytes take
  double latency_s = 0;  // of the steps that follow each other
  std::vector<LinkUse> uses;
};
// Collectives go as collective_seconds and wire_by_member have them for Algorithm::own; `members`
// are ranks. A message takes the sender's link.
LinkLoad load_of(const LinkShape& shape, CollectiveKind kind, std::int64_t bytes,
                 std::span<const int> members, std::span<const int> node_of_rank);
LinkLoad load_of_message(const LinkShape& shape, std::int64_t bytes, int from, int to,
                         std::span<const int> node_of_rank);

// `world` with links of that shape; `nodes` are those of all ranks. From when the last of its
// members has come, an operation takes at least its load, and operations that run at the same time
// share links by max-min fairness; ranks sleep meanwhile. Of ranks in other processes it knows
// nothing: links are shared within a process. Keeps a reference to `world`.
class ShapedWorld final : public World {
 public:
  ShapedWorld(World& world, const LinkShape& shape, std::vector<int> nodes);
  ~ShapedWorld() override;

  int size() const override { return world_.size(); }
  const std::vector<int>& local_ranks() const override { return world_.local_ranks(); }
  std::unique_ptr<Comm> comm(const std::string& name, const std::vector<int>& members,
                             int rank) override;
  std::unique_ptr<Comm> native_comm(const std::string& name, const std::vector<int>& members,
                                    int rank) override;
  void abort(const std::string& reason) override;
  bool aborted() const override { return world_.aborted(); }
  std::string reason() const override { return world_.reason(); }
  std::string host_of(int rank) const override { return world_.host_of(rank); }
  std::string machine_of(int rank) const override { return world_.machine_of(rank); }
  void answer_with(std::function<Standing()> answer) override {
    world_.answer_with(std::move(answer));
  }
  std::map<int, std::optional<Standing>> ask_others(double wait_s) override {
    return world_.ask_others(wait_s);
  }
  void align_clocks() override { world_.align_clocks(); }
  std::int64_t common_ns(std::int64_t local_ns) const override {
    return world_.common_ns(local_ns);
  }
  std::int64_t clock_uncertainty_ns() const override { return world_.clock_uncertainty_ns(); }

 private:
  class Fabric;
  friend class ShapedComm;

  World& world_;
  std::shared_ptr<Fabric> fabric_;
};

}  // namespace mb
