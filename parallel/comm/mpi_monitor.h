// What the processes of an MPI world tell each other out of band, from a thread of its own: where
// each stands, and that one has to end them all.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/comm.h"
#include "parallel/comm/mpi_link.h"

namespace mb {

class MpiMonitor {
 public:
  // Meets all ranks. Keeps a reference to `link`.
  MpiMonitor(const MpiLink& link, int rank, int size);
  // All processes have come to an end.
  ~MpiMonitor();

  void answer_with(std::function<World::Standing()> answer);
  std::map<int, std::optional<World::Standing>> ask_others(double wait_s);
  // Has rank 0 tell `reason` once, whoever else has one, and ends all processes.
  [[noreturn]] void end_all(const std::string& reason, int exit_code);

 private:
  enum Tag : int { kQuestion, kAnswer, kEnd };
  struct Message {
    std::int64_t number = 0;  // of the question, or an exit code
    double idle_s = 0;
    std::string text;
  };
  struct Outgoing {
    std::vector<char> bytes;
    MpiHandle request{};
  };

  void post(int to, Tag tag, const Message& message);
  std::optional<std::pair<int, Message>> take(Tag tag);
  void watch(const std::stop_token& stop);
  void tell_and_end(const std::string& reason, int exit_code);

  const MpiLink& link_;
  const int rank_, size_;
  MpiHandle group_{};
  std::atomic<bool> told_{false};
  std::mutex mutex_;  // of all below
  std::condition_variable answered_;
  std::function<World::Standing()> answer_;
  std::map<int, std::optional<World::Standing>> answers_;
  std::int64_t question_ = 0;
  std::deque<Outgoing> outgoing_;
  std::jthread thread_;
};

}  // namespace mb
