// Process groups of rank threads: every collective is one pass over the peers' own buffers.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "parallel/comm/call.h"
#include "parallel/comm/comm.h"
#include "parallel/comm/gate.h"
#include "parallel/comm/reduce.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

// What a member brings up to this size is copied to the group and read from there, which saves the
// second meeting of the members; above it, everybody reads and reduces in the peers' buffers.
constexpr std::int64_t small_bytes = 2 << 10;

// Set once, before the words of any group show it.
struct Abortion {
  std::atomic<bool> happened{false};
  std::string reason;
};

// What the members of a group share. Entries and staging exist twice and are used in turn: a member
// may enter its next call while another still reads those of the last, but not the one after.
struct Group {
  Group(std::string group_name, std::vector<int> group_members)
      : name(std::move(group_name)),
        members(std::move(group_members)),
        joined(members.size(), false),
        entries(2 * members.size()),
        staging(new std::byte[2 * members.size() * small_bytes]),
        channels(members.size() * members.size()) {}

  void abort() {
    enter.abort();
    for (Channel& channel : channels) set_aborted(channel.state);
  }

  const std::string name;
  const std::vector<int> members;
  std::vector<bool> joined;  // guarded by the world's mutex
  Gate enter;
  Gate leave;  // never aborted: whoever has entered comes out in bounded time
  std::vector<Entry> entries;
  std::unique_ptr<std::byte[]> staging;  // not initialised, so that unused pages cost nothing
  std::vector<Channel> channels;         // [sender][receiver]
};

class ThreadComm final : public Comm {
 public:
  ThreadComm(std::shared_ptr<Group> group, std::shared_ptr<const Abortion> abortion, int index,
             int spins, Delays delays)
      : group_(std::move(group)),
        abortion_(std::move(abortion)),
        index_(index),
        spins_(spins),
        delays_(delays),
        sources_(group_->members.size()),
        begin_(group_->members.size()) {}

  int index() const override { return index_; }
  int size() const override { return static_cast<int>(group_->members.size()); }

  void all_reduce(const void* from, void* to, std::int64_t count, DType type,
                  ReduceOp op) override {
    dawdle();
    check_count("all_reduce", count);
    const std::int64_t bytes = count * size_of(type);
    if (size() == 1) {
      if (from != to) copy(to, from, bytes);
      return carry(count, bytes);
    }
    exchange(
        {.call = Call::all_reduce, .type = type, .op = op, .count = count, .from = from, .to = to},
        bytes, [&](bool staged) {
          dispatch(type, op, [&](auto zero, auto reduce) {
            using T = decltype(zero);
            staged ? reduce_whole<T>(to, count, reduce) : reduce_part<T>(count, reduce);
          });
        });
    carry(count, bytes);
  }

  void reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
              int root) override {
    dawdle();
    check_count("reduce", count);
    check_root("reduce to", root);
    const std::int64_t bytes = count * size_of(type);
    exchange(
        {.call = Call::reduce, .type = type, .op = op, .root = root, .count = count, .from = from},
        bytes, [&](bool) {
          if (index_ != root) return;
          dispatch(type, op, [&](auto zero, auto reduce) {
            reduce_whole<decltype(zero)>(to, count, reduce);
          });
        });
    carry(count, bytes);
  }

  void all_gather(const void* from, void* to, std::int64_t count_each, DType type) override {
    dawdle();
    check_count("all_gather", count_each);
    const std::int64_t bytes = count_each * size_of(type);
    exchange({.call = Call::all_gather, .type = type, .count = count_each, .from = from}, bytes,
             [&](bool) {
               for (int k = 0; k < size(); ++k) {
                 const bool in_place = k == index_ && from == at(to, k * bytes);
                 if (!in_place) copy(at(to, k * bytes), sources_[k], bytes);
               }
             });
    carry(size() * count_each, size() * bytes);
  }

  void reduce_scatter(const void* from, void* to, std::int64_t count_each, DType type,
                      ReduceOp op) override {
    dawdle();
    check_count("reduce_scatter", count_each);
    const std::int64_t bytes = size() * count_each * size_of(type);
    exchange(
        {.call = Call::reduce_scatter, .type = type, .op = op, .count = count_each, .from = from},
        bytes, [&](bool) {
          dispatch(type, op, [&](auto zero, auto reduce) {
            const std::int64_t first = index_ * count_each;
            reduce_blocks<decltype(zero)>(
                sources_, first, first + count_each, reduce,
                [&](auto& block, std::int64_t i) { block.store(to, i - first); });
          });
        });
    carry(size() * count_each, bytes);
  }

  void all_to_all(const void* from, void* to, std::int64_t count_each, DType type) override {
    dawdle();
    check_count("all_to_all", count_each);
    const std::int64_t each = count_each * size_of(type), bytes = size() * each;
    exchange({.call = Call::all_to_all, .type = type, .count = count_each, .from = from}, bytes,
             [&](bool) {
               for (int k = 0; k < size(); ++k)
                 copy(at(to, k * each), at(sources_[k], index_ * each), each);
             });
    carry(size() * count_each, bytes);
  }

  void all_to_all_v(const void* from, std::span<const std::int64_t> send_counts, void* to,
                    std::span<const std::int64_t> recv_counts, DType type) override {
    dawdle();
    check_parts("send", send_counts);
    check_parts("receive", recv_counts);
    std::exclusive_scan(send_counts.begin(), send_counts.end(), begin_.begin(), std::int64_t{0});
    // Buffers are never staged: members send different sizes, but all have to go the same way.
    std::string unequal;
    exchange({.call = Call::all_to_all_v,
              .type = type,
              .from = from,
              .sent = send_counts.data(),
              .begin = begin_.data(),
              .wanted = recv_counts.data()},
             small_bytes + 1, [&](bool) {
               for (int k = 0; k < size() && unequal.empty(); ++k) {
                 unequal = disagreement(index_, k);
                 if (unequal.empty()) unequal = disagreement(k, index_);
               }
               if (unequal.empty()) copy_parts(to, recv_counts, size_of(type));
             });
    require(unequal.empty(), unequal);
    const std::int64_t sent = begin_.back() + send_counts.back();
    carry(sent, sent * size_of(type));
  }

  void shift(const void* from, void* to, std::int64_t count, DType type) override {
    dawdle();
    check_count("shift", count);
    const std::int64_t bytes = count * size_of(type);
    exchange({.call = Call::shift, .type = type, .count = count, .from = from}, bytes,
             [&](bool) { copy(to, sources_[(index_ + size() - 1) % size()], bytes); });
    carry(count, bytes);
  }

  void broadcast(const void* from, void* to, std::int64_t count, DType type, int root) override {
    dawdle();
    check_count("broadcast", count);
    check_root("broadcast from", root);
    const std::int64_t bytes = count * size_of(type);
    if (index_ != root) from = to;  // brings nothing, but something that may be read
    exchange({.call = Call::broadcast, .type = type, .root = root, .count = count, .from = from},
             bytes, [&](bool) {
               if (from != to || index_ != root) copy(to, sources_[root], bytes);
             });
    carry(count, bytes);
  }

  void gather(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    dawdle();
    check_count("gather", count_each);
    check_root("gather to", root);
    const std::int64_t bytes = count_each * size_of(type);
    exchange({.call = Call::gather, .type = type, .root = root, .count = count_each, .from = from},
             bytes, [&](bool) {
               for (int k = 0; index_ == root && k < size(); ++k) {
                 const bool in_place = k == index_ && from == at(to, k * bytes);
                 if (!in_place) copy(at(to, k * bytes), sources_[k], bytes);
               }
             });
    carry(size() * count_each, size() * bytes);
  }

  void scatter(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    dawdle();
    check_count("scatter", count_each);
    check_root("scatter from", root);
    const std::int64_t each = count_each * size_of(type);
    // Only the root brings something, so that nothing can be staged.
    exchange({.call = Call::scatter, .type = type, .root = root, .count = count_each, .from = from},
             small_bytes + 1, [&](bool) {
               const std::byte* part = at(sources_[root], index_ * each);
               if (part != to) copy(to, part, each);
             });
    carry(size() * count_each, size() * each);
  }

  void barrier() override {
    dawdle();
    if (size() == 1) return;
    turn_ = 1 - turn_;
    meet({.call = Call::barrier});
  }

  void send(const void* data, std::int64_t bytes, int peer) override {
    dawdle();
    offer(data, bytes, peer);
    complete(bytes, peer);
  }

  void recv(void* data, std::int64_t bytes, int peer) override {
    dawdle();
    accept(data, bytes, peer);
  }

  void send_recv(const void* data, std::int64_t bytes, int to, void* into, std::int64_t into_bytes,
                 int from) override {
    dawdle();
    if (to == index_ && from == index_) {
      require(bytes == into_bytes, "group ", group_->name, ": send of ", bytes, " bytes on rank ",
              group_->members[index_], " meets its own receive of ", into_bytes, " bytes");
      copy(into, data, bytes);
      return carry(0, bytes);
    }
    offer(data, bytes, to);
    accept(into, into_bytes, from);
    complete(bytes, to);
  }

 private:
  // Sends begin here and end in complete().
  void offer(const void* data, std::int64_t bytes, int peer) {
    Channel& channel = channel_between(index_, peer);
    channel.data = data;
    channel.sent_bytes = bytes;
    std::uint32_t expected = Channel::idle;
    if (!channel.state.compare_exchange_strong(expected, Channel::offered)) throw_aborted();
    channel.state.notify_all();
  }

  void complete(std::int64_t bytes, int peer) {
    Channel& channel = channel_between(index_, peer);
    const std::uint32_t seen = await(channel.state, spins_, [](std::uint32_t state) {
      return state != Channel::offered && (state & ~aborted_bit) != Channel::claimed;
    });
    if ((seen & ~aborted_bit) == Channel::offered) throw_aborted();
    if ((seen & ~aborted_bit) != Channel::refused) return carry(0, bytes);
    const std::string message = mismatch(channel, index_, peer);
    channel.state.fetch_and(aborted_bit);
    throw Error(message);
  }

  void accept(void* data, std::int64_t bytes, int peer) {
    Channel& channel = channel_between(peer, index_);
    std::uint32_t seen = await(channel.state, spins_, [](std::uint32_t state) {
      return state == Channel::offered || (state & aborted_bit) != 0;
    });
    if (seen != Channel::offered || !channel.state.compare_exchange_strong(seen, Channel::claimed))
      throw_aborted();
    if (channel.sent_bytes != bytes) {
      channel.wanted_bytes = bytes;
      const std::string message = mismatch(channel, peer, index_);
      channel.settle(Channel::refused);
      throw Error(message);
    }
    if (bytes > 0) std::memcpy(data, channel.data, bytes);
    channel.settle(Channel::idle);
  }

  static std::byte* at(void* data, std::int64_t bytes) {
    return static_cast<std::byte*>(data) + bytes;
  }
  static const std::byte* at(const void* data, std::int64_t bytes) {
    return static_cast<const std::byte*>(data) + bytes;
  }
  static void copy(void* to, const void* from, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  Entry& entry(int member) { return group_->entries[turn_ * size() + member]; }
  std::byte* staged(int member) {
    return group_->staging.get() + (turn_ * size() + member) * small_bytes;
  }

  [[noreturn]] void throw_aborted() const { throw Aborted(abortion_->reason); }

  // Sleeps for this call's share of the delays.
  void dawdle() {
    if (delays_.most_us == 0) return;
    const std::uint64_t draw = random_bits(delays_.seed, group_->members[index_], calls_made_++);
    std::this_thread::sleep_for(std::chrono::microseconds(draw % (delays_.most_us + 1)));
  }

  static void check_count(std::string_view name, std::int64_t count) {
    require(count >= 0, name, " wants a count of 0 or more, not ", count);
  }
  void check_root(std::string_view what, int root) const {
    require(root >= 0 && root < size(), "group ", group_->name, ": ", what, " member ", root,
            " of ", size());
  }
  void check_parts(std::string_view side, std::span<const std::int64_t> counts) const {
    require(static_cast<int>(counts.size()) == size(), "group ", group_->name,
            ": all_to_all_v has ", counts.size(), " counts to ", side, ", one for each of ", size(),
            " members wanted");
    for (std::int64_t count : counts) check_count("all_to_all_v", count);
  }

  // Waits for all members; throws on all of them where they do not make the same call.
  void meet(const Entry& mine) {
    entry(index_) = mine;
    if (!group_->enter.pass(enter_target_, size(), spins_)) throw_aborted();
    for (int member = 1; member < size(); ++member) {
      require(match(entry(0), entry(member)), "group ", group_->name, ": ", to_text(entry(0)),
              " on rank ", group_->members[0], " meets ", to_text(entry(member)), " on rank ",
              group_->members[member]);
    }
  }

  // One collective: `work(staged)` finds in sources_ what each member brings, `bytes` of them on
  // all members alike, and throws nothing.
  template <class Work>
  void exchange(const Entry& mine, std::int64_t bytes, Work work) {
    const bool small = bytes <= small_bytes;
    turn_ = 1 - turn_;
    if (small) copy(staged(index_), mine.from, bytes);
    meet(mine);
    for (int k = 0; k < size(); ++k) sources_[k] = small ? staged(k) : entry(k).from;
    work(small);
    if (!small) group_->leave.pass(leave_target_, size(), spins_);
  }

  template <class T, class Op>
  void reduce_whole(void* data, std::int64_t count, Op op) {
    reduce_blocks<T>(sources_, 0, count, op,
                     [&](auto& block, std::int64_t i) { block.store(data, i); });
  }

  // This member's part of a large all_reduce, for everybody.
  template <class T, class Op>
  void reduce_part(std::int64_t count, Op op) {
    // Parts are whole cache lines of a buffer that starts at one.
    constexpr std::int64_t line = line_bytes / sizeof(T);
    const std::int64_t lines = (count + line - 1) / line;
    const auto start = [&](int member) { return std::min(count, lines * member / size() * line); };
    reduce_blocks<T>(sources_, start(index_), start(index_ + 1), op,
                     [&](auto& block, std::int64_t i) {
                       for (int k = 0; k < size(); ++k) block.store(entry(k).to, i);
                     });
  }

  // What is wrong with the sizes that two members gave for one part of an all_to_all_v; "" if
  // nothing is.
  std::string disagreement(int sender, int receiver) {
    const std::int64_t sent = entry(sender).sent[receiver];
    const std::int64_t wanted = entry(receiver).wanted[sender];
    if (sent == wanted) return "";
    return cat("group ", group_->name, ": all_to_all_v sends ", sent, " elements from rank ",
               group_->members[sender], " to rank ", group_->members[receiver], ", which wants ",
               wanted);
  }

  void copy_parts(void* to, std::span<const std::int64_t> counts, int element_bytes) {
    for (int k = 0; k < size(); ++k) {
      const std::int64_t bytes = counts[k] * element_bytes;
      copy(to, at(sources_[k], entry(k).begin[index_] * element_bytes), bytes);
      to = at(to, bytes);
    }
  }

  Channel& channel_between(int sender, int receiver) {
    const int peer = sender == index_ ? receiver : sender;
    require(peer >= 0 && peer < size() && peer != index_, "group ", group_->name, ": member ",
            index_, " of ", size(), " cannot exchange with ", peer);
    return group_->channels[sender * size() + receiver];
  }

  std::string mismatch(const Channel& channel, int sender, int receiver) const {
    return cat("group ", group_->name, ": send of ", channel.sent_bytes, " bytes on rank ",
               group_->members[sender], " meets a receive of ", channel.wanted_bytes,
               " bytes on rank ", group_->members[receiver]);
  }

  const std::shared_ptr<Group> group_;
  const std::shared_ptr<const Abortion> abortion_;
  const int index_;
  const int spins_;
  const Delays delays_;
  std::atomic<std::uint64_t> calls_made_{0};  // counted with delays only
  std::uint32_t enter_target_ = 0, leave_target_ = 0;
  int turn_ = 0;
  std::vector<const void*> sources_;  // of all members, for the call at hand
  std::vector<std::int64_t> begin_;   // of the parts that an all_to_all_v sends
};

}  // namespace

struct ThreadWorld::State {
  int ranks = 0;
  int spins = 0;
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
  // A spinning waiter is only harmless where it has a core of its own.
  state_->spins = ranks <= static_cast<int>(std::thread::hardware_concurrency()) ? 64 : 0;
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
    group = std::make_shared<Group>(name, members);
    if (aborted()) group->abort();
  }
  require(!group->joined[index], "group ", name, ": rank ", rank, " has its Comm already");
  group->joined[index] = true;
  return std::make_unique<ThreadComm>(group, state_->abortion, static_cast<int>(index),
                                      state_->spins, state_->delays);
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
