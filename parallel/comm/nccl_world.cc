#include "parallel/comm/nccl_world.h"

#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/comm/nccl_comm.h"
#include "parallel/comm/nccl_communicator.h"

namespace mb {
namespace {

std::string version_text(int code) {
  return cat(code / 10000, '.', code / 100 % 100, '.', code % 100);
}

// What every member brings, to all.
std::vector<std::string> gather_texts(Comm& comm, const std::string& mine) {
  auto bytes = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> sizes(comm.size());
  comm.all_gather(&bytes, sizes.data(), 1, DType::int64);
  const std::int64_t most = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = mine, all(most * comm.size(), '\0');
  padded.resize(most);
  comm.all_gather(padded.data(), all.data(), most, DType::uint8);
  std::vector<std::string> texts;
  for (int k = 0; k < comm.size(); ++k) texts.push_back(all.substr(k * most, sizes[k]));
  return texts;
}

class NcclWorld final : public World {
 public:
  NcclWorld(World& hosts, const NcclOptions& options) : hosts_(hosts), options_(options) {
    nccl_versions();
    watcher_ = std::thread([this] { watch(); });
  }
  ~NcclWorld() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    watcher_.join();
  }

  int size() const override { return hosts_.size(); }
  const std::vector<int>& local_ranks() const override { return hosts_.local_ranks(); }
  std::unique_ptr<Comm> comm(const std::string& name, const std::vector<int>& members,
                             int rank) override {
    return hosts_.comm(name, members, rank);
  }
  bool enqueues() const override { return true; }

  void announce(const NativeStream& stream, const std::vector<GroupName>& groups,
                int rank) override {
    std::vector<int> all(size());
    std::iota(all.begin(), all.end(), 0);
    const auto control = hosts_.comm("nccl", all, rank);
    const auto whole = communicator(cat("rank ", rank, ", all ranks"), stream.device);
    ncclUniqueId id{};
    if (rank == 0) {
      const ncclResult_t code = ncclGetUniqueId(&id);
      require(code == ncclSuccess, "ncclGetUniqueId: ", nccl_error_text(code));
    }
    control->broadcast(id.internal, sizeof id.internal, DType::uint8, 0);
    whole->join(id, size(), rank);
    Parts parts;
    for (const std::string& name : names_of_all(*control, groups)) {
      const auto own = std::find_if(groups.begin(), groups.end(),
                                    [&](const GroupName& group) { return group.name == name; });
      auto part = communicator(cat("rank ", rank, ", group ", name), stream.device);
      if (own == groups.end()) {
        part->join_part(*whole, NCCL_SPLIT_NOCOLOR, 0);
        continue;
      }
      const auto place = std::find(own->members.begin(), own->members.end(), rank);
      require(place != own->members.end(), "group ", name, ": rank ", rank, " is not a member");
      part->join_part(*whole, own->members.front(), static_cast<int>(place - own->members.begin()));
      parts.emplace(name, std::move(part));
    }
    const std::lock_guard lock(mutex_);
    wholes_[rank] = whole;
    parts_[rank] = std::move(parts);
  }

  std::unique_ptr<Comm> comm_on(const NativeStream& stream, const std::string& name,
                                const std::vector<int>& members, int rank) override {
    const auto place = std::find(members.begin(), members.end(), rank);
    require(place != members.end(), "group ", name, ": rank ", rank, " is not a member");
    std::shared_ptr<NcclCommunicator> part;
    {
      const std::lock_guard lock(mutex_);
      Parts& parts = parts_[rank];
      const auto found = parts.find(name);
      require(found != parts.end(), "group ", name, ": rank ", rank,
              " has not announced it, or has its Comm already");
      part = std::move(found->second);
      parts.erase(found);
    }
    return make_nccl_comm(std::move(part), stream, name, static_cast<int>(place - members.begin()),
                          static_cast<int>(members.size()));
  }

  void abort(const std::string& reason) override {
    hosts_.abort(reason);
    for (const auto& communicator : communicators()) communicator->abort();
  }
  bool aborted() const override { return hosts_.aborted(); }
  std::string reason() const override { return hosts_.reason(); }

  std::string host_of(int rank) const override { return hosts_.host_of(rank); }
  std::string machine_of(int rank) const override { return hosts_.machine_of(rank); }
  void answer_with(std::function<Standing()> answer) override {
    hosts_.answer_with(std::move(answer));
  }
  std::map<int, std::optional<Standing>> ask_others(double wait_s) override {
    return hosts_.ask_others(wait_s);
  }
  void align_clocks() override { hosts_.align_clocks(); }
  std::int64_t common_ns(std::int64_t local_ns) const override {
    return hosts_.common_ns(local_ns);
  }
  std::int64_t clock_uncertainty_ns() const override { return hosts_.clock_uncertainty_ns(); }

 private:
  using Parts = std::map<std::string, std::shared_ptr<NcclCommunicator>>;

  // Known to abort() and to the watcher while it lives.
  std::shared_ptr<NcclCommunicator> communicator(const std::string& name, int device) {
    auto made = std::make_shared<NcclCommunicator>(hosts_, name, device, options_.timeout_s);
    const std::lock_guard lock(mutex_);
    std::erase_if(communicators_, [](const auto& known) { return known.expired(); });
    communicators_.push_back(made);
    return made;
  }
  std::vector<std::shared_ptr<NcclCommunicator>> communicators() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<NcclCommunicator>> live;
    for (const auto& known : communicators_) {
      if (auto communicator = known.lock()) live.push_back(std::move(communicator));
    }
    return live;
  }

  // Sorted, so that all ranks split in one order.
  static std::set<std::string> names_of_all(Comm& control, const std::vector<GroupName>& groups) {
    std::string mine;
    for (const GroupName& group : groups) mine += group.name + '\n';
    std::set<std::string> names;
    for (const std::string& text : gather_texts(control, mine)) {
      std::istringstream lines(text);
      for (std::string name; std::getline(lines, name);) names.insert(name);
    }
    return names;
  }

  void watch() {
    constexpr std::chrono::milliseconds kPause(50);
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kPause, [this] { return closing_; })) {
      lock.unlock();
      for (const auto& communicator : communicators()) {
        if (const std::string error = communicator->async_error(); !error.empty()) abort(error);
      }
      lock.lock();
    }
  }

  World& hosts_;
  const NcclOptions options_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<NcclCommunicator>> communicators_;
  std::map<int, std::shared_ptr<NcclCommunicator>> wholes_;  // by rank
  std::map<int, Parts> parts_;                               // by rank; not asked for yet
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread watcher_;
};

}  // namespace

NcclVersions nccl_versions() {
  int library = 0;
  const ncclResult_t code = ncclGetVersion(&library);
  require(code == ncclSuccess, "ncclGetVersion: ", nccl_error_text(code));
  const NcclVersions versions{version_text(library), version_text(NCCL_VERSION_CODE)};
  require(library >= NCCL_VERSION_CODE && library / 10000 == NCCL_MAJOR, "NCCL ", versions.library,
          " is loaded, and this program was built for ", versions.header,
          "; put that library or a later one of the same major version first in LD_LIBRARY_PATH, "
          "or build again with the headers of this one");
  return versions;
}

std::unique_ptr<World> make_nccl_world(World& hosts, const NcclOptions& options) {
  return std::make_unique<NcclWorld>(hosts, options);
}

}  // namespace mb
