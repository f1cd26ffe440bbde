// Process groups of rank threads: every collective is one pass over the peers' own buffers.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "parallel/comm/comm.h"

namespace mb {
namespace {

using Word = std::atomic<std::uint32_t>;

// Bit 0 of every word that a thread parks on; the rest counts or names a state.
constexpr std::uint32_t aborted_bit = 1;

// All-reduces up to this size are copied to the group and summed by everybody, which saves the
// second meeting of the members; above it, each member reduces its part in the peers' buffers.
constexpr std::int64_t small_bytes = 2 << 10;

// A line of its own, with room for the pair of lines that processors prefetch together.
constexpr std::size_t line_bytes = 128;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The first value of `word` that is `done`. Looks `spins` times, soon leaving the core to others
// between two looks, as the one who is waited for may need this very core; then parks.
template <class Done>
std::uint32_t await(const Word& word, int spins, Done done) {
  std::uint32_t seen = word.load(std::memory_order_acquire);
  for (int spin = 0; spin < spins && !done(seen); ++spin) {
    spin < 32 ? relax() : std::this_thread::yield();
    seen = word.load(std::memory_order_acquire);
  }
  for (; !done(seen); seen = word.load(std::memory_order_acquire)) {
    word.wait(seen, std::memory_order_acquire);
  }
  return seen;
}

void set_aborted(Word& word) {
  word.fetch_or(aborted_bit);
  word.notify_all();
}

// A barrier that can be aborted. The word holds twice the number of arrivals, modulo 2^32. Nobody
// arrives after an abort, so either all members pass a given meeting or none does.
class Gate {
 public:
  // `target` belongs to the member and starts at 0. False: aborted before the last one came.
  bool pass(std::uint32_t& target, int members, int spins) {
    target += 2 * static_cast<std::uint32_t>(members);
    std::uint32_t seen = word_.load(std::memory_order_acquire);
    do {
      if (seen & aborted_bit) return false;
    } while (!word_.compare_exchange_weak(seen, seen + 2));
    const auto all_here = [target](std::uint32_t value) {
      return static_cast<std::int32_t>((value & ~aborted_bit) - target) >= 0;
    };
    if (all_here(seen + 2)) {
      word_.notify_all();
      return true;
    }
    return all_here(await(word_, spins, [&](std::uint32_t value) {
      return all_here(value) || (value & aborted_bit) != 0;
    }));
  }

  void abort() { set_aborted(word_); }

 private:
  alignas(line_bytes) Word word_{0};
};

// One direction between two members. The sender moves idle -> offered, the receiver moves
// offered -> claimed -> idle, or -> refused where the sizes differ. Nothing is claimed after an
// abort, and a sender does not leave while its buffer is claimed.
struct Channel {
  static constexpr std::uint32_t idle = 0, offered = 2, claimed = 4, refused = 6;

  alignas(line_bytes) Word state{idle};
  const void* data = nullptr;
  std::int64_t sent_bytes = 0, wanted_bytes = 0;

  void settle(std::uint32_t next) {
    state.fetch_xor(claimed ^ next);
    state.notify_all();
  }
};

enum class Call : std::uint8_t { all_reduce, barrier };

// What a member brings to a collective; equal on all members but for `data`.
struct alignas(line_bytes) Entry {
  Call call = Call::barrier;
  void* data = nullptr;
  std::int64_t count = 0;
  DType type = DType::fp32;
  ReduceOp op = ReduceOp::sum;
};

bool match(const Entry& a, const Entry& b) {
  return a.call == b.call && a.count == b.count && a.type == b.type && a.op == b.op;
}

std::string to_text(const Entry& entry) {
  if (entry.call == Call::barrier) return "barrier";
  return cat("all_reduce of ", entry.count, " ", name_of(entry.type),
             entry.op == ReduceOp::sum ? " sum" : " max");
}

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};

// NaN if either is.
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a >= b || a != a ? a : b;
  }
};

// out[i] = a[i] op b[i]; out may be a.
template <class T, class Op>
void combine(T* out, const T* a, const T* b, std::int64_t count, Op op) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) out[i] = op(a[i], b[i]);
}

// out = elements [begin, begin + count) of buffers[0] op buffers[1] op ..., in this order; `out` is
// none of the two or more buffers.
template <class T, class Op>
void reduce_private(T* out, const std::vector<void*>& buffers, std::int64_t begin,
                    std::int64_t count, Op op) {
  const auto from = [&](std::size_t k) { return static_cast<const T*>(buffers[k]) + begin; };
  combine(out, from(0), from(1), count, op);
  for (std::size_t k = 2; k < buffers.size(); ++k) combine(out, out, from(k), count, op);
}

// Elements [begin, end) of every buffer become their reduction. A block of the result stays in the
// first-level cache until it has been written to the last buffer.
template <class T, class Op>
void reduce_shared(const std::vector<void*>& buffers, std::int64_t begin, std::int64_t end, Op op) {
  constexpr std::int64_t block = 4096 / sizeof(T);
  alignas(64) T result[block];
  for (std::int64_t at = begin; at < end; at += block) {
    const std::int64_t count = std::min(block, end - at);
    reduce_private(result, buffers, at, count, op);
    for (void* buffer : buffers)
      std::memcpy(static_cast<T*>(buffer) + at, result, count * sizeof(T));
  }
}

// Calls fn(T{}, op) for an element type and an operation that all_reduce takes.
template <class Fn>
void dispatch(DType type, ReduceOp op, Fn fn) {
  const auto with_op = [&](auto zero) { op == ReduceOp::sum ? fn(zero, Sum{}) : fn(zero, Max{}); };
  type == DType::fp32 ? with_op(float{}) : with_op(double{});
}

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
             int spins)
      : group_(std::move(group)),
        abortion_(std::move(abortion)),
        index_(index),
        spins_(spins),
        buffers_(group_->members.size()) {}

  int index() const override { return index_; }
  int size() const override { return static_cast<int>(group_->members.size()); }

  void all_reduce(void* data, std::int64_t count, DType type, ReduceOp op) override {
    require(type == DType::fp32 || type == DType::fp64, "all_reduce of ", name_of(type),
            " is not supported: fp32 or fp64");
    require(count >= 0, "all_reduce wants a count of 0 or more, not ", count);
    if (size() == 1) return;
    const std::int64_t bytes = count * size_of(type);
    const bool small = bytes <= small_bytes;
    turn_ = 1 - turn_;
    if (small && bytes > 0) std::memcpy(staged(index_), data, bytes);
    meet({Call::all_reduce, data, count, type, op});
    dispatch(type, op, [&](auto zero, auto reduce) {
      using T = decltype(zero);
      small ? reduce_staged<T>(data, count, reduce) : reduce_part<T>(count, reduce);
    });
    carry(count, bytes);
  }

  void barrier() override {
    if (size() == 1) return;
    turn_ = 1 - turn_;
    meet({Call::barrier});
  }

  void send(const void* data, std::int64_t bytes, int peer) override {
    Channel& channel = channel_between(index_, peer);
    channel.data = data;
    channel.sent_bytes = bytes;
    std::uint32_t expected = Channel::idle;
    if (!channel.state.compare_exchange_strong(expected, Channel::offered)) throw_aborted();
    channel.state.notify_all();
    const std::uint32_t seen = await(channel.state, spins_, [](std::uint32_t state) {
      return state != Channel::offered && (state & ~aborted_bit) != Channel::claimed;
    });
    if ((seen & ~aborted_bit) == Channel::offered) throw_aborted();
    if ((seen & ~aborted_bit) != Channel::refused) return carry(0, bytes);
    const std::string message = mismatch(channel, index_, peer);
    channel.state.fetch_and(aborted_bit);
    throw Error(message);
  }

  void recv(void* data, std::int64_t bytes, int peer) override {
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

 private:
  Entry& entry(int member) { return group_->entries[turn_ * size() + member]; }
  std::byte* staged(int member) {
    return group_->staging.get() + (turn_ * size() + member) * small_bytes;
  }

  [[noreturn]] void throw_aborted() const { throw Aborted(abortion_->reason); }

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

  template <class T, class Op>
  void reduce_staged(void* data, std::int64_t count, Op op) {
    for (int k = 0; k < size(); ++k) buffers_[k] = staged(k);
    reduce_private(static_cast<T*>(data), buffers_, 0, count, op);
  }

  template <class T, class Op>
  void reduce_part(std::int64_t count, Op op) {
    for (int k = 0; k < size(); ++k) buffers_[k] = entry(k).data;
    // Parts are whole cache lines of a buffer that starts at one.
    constexpr std::int64_t line = line_bytes / sizeof(T);
    const std::int64_t lines = (count + line - 1) / line;
    const auto start = [&](int member) { return std::min(count, lines * member / size() * line); };
    reduce_shared<T>(buffers_, start(index_), start(index_ + 1), op);
    group_->leave.pass(leave_target_, size(), spins_);
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
  std::uint32_t enter_target_ = 0, leave_target_ = 0;
  int turn_ = 0;
  std::vector<void*> buffers_;  // of all members, for the call at hand
};

}  // namespace

struct ThreadWorld::State {
  int ranks = 0;
  int spins = 0;
  std::shared_ptr<Abortion> abortion = std::make_shared<Abortion>();
  std::mutex mutex;
  std::map<std::pair<std::string, std::vector<int>>, std::shared_ptr<Group>> groups;
};

ThreadWorld::ThreadWorld(int ranks) : state_(std::make_unique<State>()) {
  require(ranks >= 1, "a world wants at least one rank, not ", ranks);
  state_->ranks = ranks;
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
                                      state_->spins);
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
