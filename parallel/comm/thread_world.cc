// The groups of a process's rank threads, and their end.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "parallel/comm/comm.h"
#include "parallel/comm/thread_group.h"

namespace mb {
namespace {

// A waiter that looks is only harmless where it has a core of its own, and for a few microseconds,
// as other work may hold the core of the one it waits for. Where ranks share cores, every meeting
// is a switch of threads.
constexpr Waiting own_core = {.looks = 300, .staged_bytes = 512};
constexpr Waiting shared_core = {.looks = 0, .staged_bytes = 4096};

}  // namespace

struct ThreadWorld::State {
  int ranks = 0;
  Waiting waiting;
  Delays delays;
  std::shared_ptr<Abortion> abortion = std::make_shared<Abortion>();
  std::mutex mutex;
  std::map<std::pair<std::string, std::vector<int>>, std::shared_ptr<Group>> groups;
};

ThreadWorld::ThreadWorld(int ranks, Delays delays) : state_(std::make_unique<State>()) {
  require(ranks >= 1, "a world wants at least one rank, not ", ranks);
  require(delays.most_us >= 0, "delays of at most ", delays.most_us, " us: give 0 or more");
  local_ranks_.resize(ranks);
  std::iota(local_ranks_.begin(), local_ranks_.end(), 0);
  state_->ranks = ranks;
  state_->delays = delays;
  const bool own_cores = ranks <= static_cast<int>(std::thread::hardware_concurrency());
  state_->waiting = own_cores ? own_core : shared_core;
}

ThreadWorld::~ThreadWorld() = default;

std::unique_ptr<Comm> ThreadWorld::comm(const std::string& name, const std::vector<int>& members,
                                        int rank) {
  for (std::size_t k = 0; k < members.size(); ++k) {
    require(members[k] >= 0 && members[k] < state_->ranks, "group ", name, ": rank ", members[k],
            " is not one of ", state_->ranks);
    require(std::count(members.begin(), members.end(), members[k]) == 1, "group ", name, ": rank ",
            members[k], " is a member more than once");
  }
  const auto place = std::find(members.begin(), members.end(), rank);
  require(place != members.end(), "group ", name, ": rank ", rank, " is not a member");
  const auto index = place - members.begin();

  std::lock_guard lock(state_->mutex);
  std::shared_ptr<Group>& group = state_->groups[{name, members}];
  if (!group) {
    group = std::make_shared<Group>(name, members, state_->waiting);
    if (aborted()) group->abort();
  }
  require(!group->joined[index], "group ", name, ": rank ", rank, " has its Comm already");
  group->joined[index] = true;
  return make_thread_comm(group, state_->abortion, static_cast<int>(index), state_->delays);
}

std::string ThreadWorld::host_of(int) const {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

void ThreadWorld::abort(const std::string& reason) {
  std::lock_guard lock(state_->mutex);
  if (aborted()) return;
  state_->abortion->reason = reason;
  state_->abortion->happened = true;
  for (auto& [key, group] : state_->groups) group->abort();
}

bool ThreadWorld::aborted() const { return state_->abortion->happened; }

std::string ThreadWorld::reason() const {
  std::lock_guard lock(state_->mutex);
  return state_->abortion->reason;
}

}  // namespace mb
