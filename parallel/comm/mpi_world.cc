#include "parallel/comm/mpi_world.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <mutex>
#include <numeric>

#include "parallel/comm/clock.h"
#include "parallel/comm/launcher.h"
#include "parallel/comm/mpi_comm.h"
#include "parallel/comm/mpi_link.h"
#include "parallel/comm/mpi_monitor.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

constexpr int kRoundTrips = 64;

// Where a process is, in texts of a fixed size that travel.
struct Place {
  char host[256] = "";
  char kernel[256] = "";  // equal where cores and the monotonic clock are the same
  int cores = 1;
  cpu_set_t own;  // cores that the launcher has left to the process

  const char* machine() const { return kernel[0] ? kernel : host; }
};

// A kernel, and the name space of its clocks.
std::string name_of_kernel() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char space[64] = "";
  if (readlink("/proc/self/ns/time", space, sizeof space - 1) < 0) space[0] = 0;
  return boot.empty() ? "" : cat(boot, ' ', space);
}

Place own_place() {
  Place place;
  if (gethostname(place.host, sizeof place.host - 1) != 0) std::strcpy(place.host, "unknown");
  name_of_kernel().copy(place.kernel, sizeof place.kernel - 1);
  place.cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  CPU_ZERO(&place.own);
  sched_getaffinity(0, sizeof place.own, &place.own);
  return place;
}

std::vector<int> first_ranks(int n) {
  std::vector<int> ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// As now_ns() of devices.
std::int64_t monotonic_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

struct MpiWorld::State {
  MpiLink link;
  std::vector<int> local_ranks;
  int size = 1;
  bool trust_kernel_clock = true;
  std::mutex groups;  // one forms at a time
  std::mutex reason;
  std::unique_ptr<MpiComm> all;
  std::unique_ptr<MpiMonitor> monitor;
  std::vector<Place> places;     // by rank
  std::vector<ClockLine> lines;  // by rank, to the clock of rank 0

  // MPI forms a group without leaving the core; where all ranks are to come, that may take long.
  void meet(const std::vector<int>& members) {
    if (static_cast<int>(members.size()) == size) all->barrier();
  }

  bool shares_clock(int rank) const {
    return rank == 0 || (trust_kernel_clock && places[0].kernel[0] != 0 &&
                         std::strcmp(places[0].kernel, places[rank].kernel) == 0);
  }
};

MpiWorld::MpiWorld(const MpiOptions& options) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.link.mpi = &load_mpi();
  s.link.piece_bytes = options.piece_bytes;
  s.link.native_limit = options.native_limit;
  s.trust_kernel_clock = options.trust_kernel_clock;
  bool any_thread = false;
  int rank = 0;
  s.link.check(s.link.mpi->start(&any_thread, &rank, &s.size), "MPI_Init_thread");
  const std::optional<Launcher> by = launcher();
  require(!by || (by->size == s.size && by->rank == rank), s.link.mpi->name, " sees rank ", rank,
          " of ", s.size, ", and ", by ? by->name : "", " has started rank ", by ? by->rank : 0,
          " of ", by ? by->size : 1, "; start by the mpirun of ", s.link.mpi->name,
          ", or set MESHBENCH_MPI");
  require(any_thread, s.link.mpi->name,
          " allows calls from one thread only; streams want MPI_THREAD_MULTIPLE");
  s.local_ranks = {rank};
  s.all = std::make_unique<MpiComm>(s.link, "all", first_ranks(s.size), rank);
  s.monitor = std::make_unique<MpiMonitor>(s.link, rank, s.size);

  const Place own = own_place();
  s.places.resize(s.size);
  s.all->all_gather(&own, s.places.data(), sizeof own, DType::uint8);
  int neighbours = 0, shared = 0;  // on these cores and on this one's, itself among them
  for (const Place& place : s.places) {
    if (std::strcmp(place.machine(), own.machine()) != 0) continue;
    cpu_set_t both;
    CPU_AND(&both, &place.own, &own.own);
    ++neighbours;
    shared += CPU_COUNT(&both) > 0;
  }
  s.link.crowded = neighbours > own.cores;
  s.link.bound = shared == 1;
  s.lines.resize(s.size);
}

MpiWorld::~MpiWorld() {
  state_->all->barrier();
  state_->monitor.reset();
  state_->all.reset();
  state_->link.mpi->finish();
}

int MpiWorld::size() const { return state_->size; }
const std::vector<int>& MpiWorld::local_ranks() const { return state_->local_ranks; }

namespace {

// The place of `rank` among `members`. Throws Error for members that there are not.
int checked_index(const std::string& name, const std::vector<int>& members, int rank, int size) {
  for (const int member : members) {
    require(member >= 0 && member < size, "group ", name, ": rank ", member, " is not one of ",
            size);
    require(std::count(members.begin(), members.end(), member) == 1, "group ", name, ": rank ",
            member, " is a member more than once");
  }
  const auto place = std::find(members.begin(), members.end(), rank);
  require(place != members.end(), "group ", name, ": rank ", rank, " is not a member");
  return static_cast<int>(place - members.begin());
}

}  // namespace

std::unique_ptr<Comm> MpiWorld::comm(const std::string& name, const std::vector<int>& members,
                                     int rank) {
  const int index = checked_index(name, members, rank, size());
  const std::lock_guard lock(state_->groups);
  state_->meet(members);
  return std::make_unique<MpiComm>(state_->link, name, members, index);
}

std::unique_ptr<Comm> MpiWorld::native_comm(const std::string& name,
                                            const std::vector<int>& members, int rank) {
  const int index = checked_index(name, members, rank, size());
  const std::lock_guard lock(state_->groups);
  state_->meet(members);
  return make_native_mpi_comm(state_->link, name, members, index);
}

void MpiWorld::abort(const std::string& reason) { abort(reason, 3); }

void MpiWorld::abort(const std::string& reason, int exit_code) {
  {
    const std::lock_guard lock(state_->reason);
    if (!state_->link.aborted) {
      state_->link.reason = reason;
      state_->link.aborted = true;
    }
  }
  state_->monitor->end_all(reason, exit_code);
}

bool MpiWorld::aborted() const { return state_->link.aborted; }
std::string MpiWorld::reason() const { return aborted() ? state_->link.reason : ""; }
std::string MpiWorld::host_of(int rank) const { return state_->places.at(rank).host; }
std::string MpiWorld::machine_of(int rank) const { return state_->places.at(rank).machine(); }

void MpiWorld::answer_with(std::function<Standing()> answer) {
  state_->monitor->answer_with(std::move(answer));
}
std::map<int, std::optional<World::Standing>> MpiWorld::ask_others(double wait_s) {
  std::map<int, std::optional<Standing>> answers = state_->monitor->ask_others(wait_s);
  for (auto& [rank, standing] : answers) {
    if (standing && standing->text.empty())
      standing->text = cat("rank ", rank, " on ", host_of(rank), ": between two runs");
  }
  return answers;
}

void MpiWorld::align_clocks() {
  State& s = *state_;
  const int own = rank();
  std::array<RoundTrip, kRoundTrips> trips;
  for (int other = 1; other < s.size; ++other) {
    if (s.shares_clock(other) || (own != 0 && own != other)) continue;
    for (RoundTrip& trip : trips) {
      std::int64_t there = 0;
      if (own == 0) {
        s.all->recv_now(&there, sizeof there, other);
        there = monotonic_ns();
        s.all->send_now(&there, sizeof there, other);
      } else {
        trip.sent_ns = monotonic_ns();
        s.all->send_now(&there, sizeof there, 0);
        s.all->recv_now(&trip.there_ns, sizeof trip.there_ns, 0);
        trip.back_ns = monotonic_ns();
      }
    }
  }
  const ClockSample sample =
      s.shares_clock(own) ? ClockSample{.here_ns = monotonic_ns()} : best_of(trips);
  std::vector<ClockSample> samples(s.size);
  s.all->all_gather(&sample, samples.data(), sizeof sample, DType::uint8);
  for (int r = 0; r < s.size; ++r) s.lines[r].add(samples[r]);
}

std::int64_t MpiWorld::common_ns(std::int64_t local_ns) const {
  return state_->shares_clock(rank()) ? local_ns : state_->lines[rank()].there_ns(local_ns);
}

std::int64_t MpiWorld::clock_uncertainty_ns() const {
  std::int64_t most = 0;
  for (int r = 0; r < size(); ++r) {
    if (!state_->shares_clock(r))
      most = std::max(most, state_->lines[r].uncertainty_ns(monotonic_ns()));
  }
  return most;
}

std::string MpiWorld::library() const { return state_->link.mpi->name; }

std::string MpiWorld::library_version() const {
  char text[256] = "";
  state_->link.mpi->version(text, sizeof text);
  return text;
}

int MpiWorld::cores() const {
  std::map<std::string, std::pair<int, int>> machines;  // ranks and cores
  for (const Place& place : state_->places) {
    auto& [ranks, cores] = machines[place.machine()];
    ++ranks;
    cores = place.cores;
  }
  int sum = 0;
  for (const auto& [machine, count] : machines) sum += std::min(count.first, count.second);
  return sum;
}

std::vector<MpiWorld::Host> MpiWorld::hosts() const {
  std::vector<Host> hosts;
  for (const Place& place : state_->places) {
    auto known = std::find_if(hosts.begin(), hosts.end(),
                              [&](const Host& host) { return host.name == place.host; });
    if (known == hosts.end()) known = hosts.insert(known, {place.host, 0});
    ++known->ranks;
  }
  return hosts;
}

}  // namespace mb
