#include "parallel/comm/mpi_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>

namespace mb {
namespace {

using std::chrono::milliseconds;

constexpr auto kLook = milliseconds(20);
constexpr std::size_t kMostText = 16 << 10;

struct Head {
  std::int64_t number = 0;
  double idle_s = 0;
};

}  // namespace

MpiMonitor::MpiMonitor(const MpiLink& link, int rank, int size)
    : link_(link), rank_(rank), size_(size) {
  std::vector<int> all(size);
  std::iota(all.begin(), all.end(), 0);
  constexpr int kTag = 32766;
  link_.check(link_.mpi->make_group(all.data(), size, kTag, &group_), "MPI_Comm_create_group");
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

MpiMonitor::~MpiMonitor() {
  thread_.request_stop();
  thread_.join();
  link_.mpi->free_group(&group_);
}

void MpiMonitor::answer_with(std::function<World::Standing()> answer) {
  const std::lock_guard lock(mutex_);
  answer_ = std::move(answer);
}

// Messages stay in memory until they have left; to a process that is stopped they never do.
void MpiMonitor::post(int to, Tag tag, const Message& message) {
  const Head head{message.number, message.idle_s};
  const std::string text = message.text.substr(0, kMostText);
  const std::lock_guard lock(mutex_);
  std::erase_if(outgoing_, [&](Outgoing& before) {
    bool done = false;
    return link_.mpi->test_all(&before.request, 1, &done) == 0 && done;
  });
  Outgoing& out = outgoing_.emplace_back();
  out.bytes.resize(sizeof head + text.size());
  std::memcpy(out.bytes.data(), &head, sizeof head);
  std::copy(text.begin(), text.end(), out.bytes.begin() + sizeof head);
  link_.mpi->isend(out.bytes.data(), static_cast<std::int64_t>(out.bytes.size()), to, tag, group_,
                   &out.request);
}

std::optional<std::pair<int, MpiMonitor::Message>> MpiMonitor::take(Tag tag) {
  bool there = false;
  int from = 0, bytes = 0;
  if (link_.mpi->probe(tag, group_, &there, &from, &bytes) != 0 || !there) return std::nullopt;
  std::vector<char> buffer(std::max<std::size_t>(bytes, sizeof(Head)));
  MpiHandle request{};
  if (link_.mpi->irecv(buffer.data(), bytes, from, tag, group_, &request) != 0) return std::nullopt;
  for (bool done = false; !done; std::this_thread::yield()) {
    if (link_.mpi->test_all(&request, 1, &done) != 0) return std::nullopt;
  }
  Head head;
  std::memcpy(&head, buffer.data(), sizeof head);
  return std::pair(from, Message{head.number, head.idle_s,
                                 std::string(buffer.begin() + sizeof head, buffer.end())});
}

void MpiMonitor::watch(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    while (const auto end = take(kEnd))
      tell_and_end(end->second.text, static_cast<int>(end->second.number));
    while (const auto question = take(kQuestion)) {
      std::function<World::Standing()> answer;
      {
        const std::lock_guard lock(mutex_);
        answer = answer_;
      }
      const World::Standing standing = answer ? answer() : World::Standing{"", 0};
      post(question->first, kAnswer, {question->second.number, standing.idle_s, standing.text});
    }
    while (const auto answer = take(kAnswer)) {
      const std::lock_guard lock(mutex_);
      if (answer->second.number != question_) continue;
      answers_[answer->first] = World::Standing{answer->second.text, answer->second.idle_s};
      answered_.notify_all();
    }
    std::this_thread::sleep_for(kLook);
  }
}

std::map<int, std::optional<World::Standing>> MpiMonitor::ask_others(double wait_s) {
  std::int64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++question_;
    answers_.clear();
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_) answers_[rank] = std::nullopt;
    }
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) post(rank, kQuestion, {.number = number});
  }
  std::unique_lock lock(mutex_);
  answered_.wait_for(lock, std::chrono::duration<double>(wait_s), [this] {
    return std::all_of(answers_.begin(), answers_.end(),
                       [](const auto& answer) { return answer.second.has_value(); });
  });
  return answers_;
}

void MpiMonitor::tell_and_end(const std::string& reason, int exit_code) {
  if (told_.exchange(true)) return;
  const std::string line = "meshbench: " + reason + '\n';
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
  // Launchers forward what they have read before they end a process.
  std::this_thread::sleep_for(milliseconds(50));
  // A library whose other threads hang in it may not come back; a launcher that sees a process end
  // ends the rest.
  std::thread([this, exit_code] { link_.mpi->abort(exit_code); }).detach();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  _exit(exit_code);
}

void MpiMonitor::end_all(const std::string& reason, int exit_code) {
  if (rank_ != 0) {
    post(0, kEnd, {.number = exit_code, .text = reason});
    // Unless rank 0 hangs, this process is ended meanwhile; if it does, lower ranks come first. A
    // rank that waits for a core on a busy machine does not hang.
    std::this_thread::sleep_for(milliseconds(2000 + 250 * std::min(rank_, 8)));
  }
  tell_and_end(reason, exit_code);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  _exit(exit_code);
}

}  // namespace mb
