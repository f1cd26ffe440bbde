// All ranks as processes that mpirun or srun has started, one rank in each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/comm.h"

namespace mb {

struct MpiOptions {
  // For tests: smaller limits take small data in pieces, and clocks of one kernel are aligned by
  // messages too.
  std::int64_t piece_bytes = 1 << 30;      // of the largest message
  std::int64_t native_limit = 2147483647;  // elements in one call of the library
  bool trust_kernel_clock = true;
};

// A Comm's name may be used again once the Comm before it is gone. Where ranks share a kernel they
// share its clock, and alignment has nothing to do.
class MpiWorld final : public World {
 public:
  // Loads the library and starts it: once in the life of a process. Throws Error where the build
  // has no MPI, or where MPI and the launcher count different ranks.
  explicit MpiWorld(const MpiOptions& options = {});
  // Waits for the other processes and ends MPI. Not to be reached by one process alone: see end().
  ~MpiWorld() override;

  int size() const override;
  const std::vector<int>& local_ranks() const override;
  std::unique_ptr<Comm> comm(const std::string& name, const std::vector<int>& members,
                             int rank) override;
  std::unique_ptr<Comm> native_comm(const std::string& name, const std::vector<int>& members,
                                    int rank) override;
  // Tells `reason` on stderr, once of all processes, and ends them all with exit code 3.
  [[noreturn]] void abort(const std::string& reason) override;
  [[noreturn]] void abort(const std::string& reason, int exit_code);
  bool aborted() const override;
  std::string reason() const override;
  std::string host_of(int rank) const override;
  std::string machine_of(int rank) const override;
  void answer_with(std::function<Standing()> answer) override;
  std::map<int, std::optional<Standing>> ask_others(double wait_s) override;
  void align_clocks() override;
  std::int64_t common_ns(std::int64_t local_ns) const override;
  std::int64_t clock_uncertainty_ns() const override;

  int rank() const { return local_ranks().front(); }
  // "Open MPI", "MPICH", and what the library says of itself.
  std::string library() const;
  std::string library_version() const;
  // In the order of their first ranks.
  struct Host {
    std::string name;
    int ranks = 0;
  };
  std::vector<Host> hosts() const;
  // That ranks can compute on at once: of each machine's no more than it has ranks.
  int cores() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mb
