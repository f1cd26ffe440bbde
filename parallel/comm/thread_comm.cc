// Process groups of rank threads: every collective is one pass over the peers' own buffers.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "parallel/comm/thread_group.h"
#include "parallel/comm/transfer.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

// Collectives that touch more than this, over all members, use streaming stores: half of a
// last-level cache of 32 MiB. What the system tells of its size is that of the host in virtual
// machines.
constexpr std::int64_t cached_bytes = 16 << 20;
// The size of what members do not all know, so that it is never staged.
constexpr std::int64_t size_unknown = std::numeric_limits<std::int64_t>::max();

class ThreadComm final : public Comm {
 public:
  ThreadComm(std::shared_ptr<Group> group, std::shared_ptr<const Abortion> abortion, int index,
             Delays delays)
      : group_(std::move(group)),
        abortion_(std::move(abortion)),
        index_(index),
        delays_(delays),
        sources_(group_->members.size()),
        begin_(group_->members.size()) {
    targets_.reserve(group_->members.size());
  }

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
        bytes, bytes, [&](bool staged) {
          if (staged) return reduce_to(to, count, type, op);
          const Share mine = share(count, size_of(type));
          for (int k = 0; k < size(); ++k)
            aim_reduction(entry(k).to, entry(k).from, mine.first_byte, 2 * size() * bytes);
          reduce_from(mine.first_byte, mine.count, type, op);
        });
    carry(count, bytes);
  }

  void reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
              int root) override {
    dawdle();
    check_count("reduce", count);
    check_root("reduce to", root);
    const std::int64_t bytes = count * size_of(type);
    exchange({.call = Call::reduce,
              .type = type,
              .op = op,
              .root = root,
              .count = count,
              .from = from,
              .to = to},
             bytes, bytes, [&](bool staged) {
               if (staged) return index_ == root ? reduce_to(to, count, type, op) : void();
               const Share mine = share(count, size_of(type));
               aim_reduction(entry(root).to, entry(root).from, mine.first_byte,
                             (size() + 1) * bytes);
               reduce_from(mine.first_byte, mine.count, type, op);
             });
    carry(count, bytes);
  }

  void all_gather(const void* from, void* to, std::int64_t count_each, DType type) override {
    dawdle();
    check_count("all_gather", count_each);
    const std::int64_t bytes = count_each * size_of(type);
    exchange({.call = Call::all_gather, .type = type, .count = count_each, .from = from, .to = to},
             bytes, bytes, [&](bool staged) {
               if (staged) return collect(to, bytes);
               for (int k = 0; k < size(); ++k)
                 aim_copy(at(entry(k).to, index_ * bytes), from, (size() + 1) * size() * bytes);
               spread(from, bytes);
             });
    carry(size() * count_each, size() * bytes);
  }

  void reduce_scatter(const void* from, void* to, std::int64_t count_each, DType type,
                      ReduceOp op) override {
    dawdle();
    check_count("reduce_scatter", count_each);
    const std::int64_t each = count_each * size_of(type), bytes = size() * each;
    exchange(
        {.call = Call::reduce_scatter, .type = type, .op = op, .count = count_each, .from = from},
        bytes, bytes, [&](bool) {
          aim_reduction(to, at(from, index_ * each), 0, (size() + 1) * bytes);
          reduce_from(index_ * each, count_each, type, op);
        });
    carry(size() * count_each, bytes);
  }

  void all_to_all(const void* from, void* to, std::int64_t count_each, DType type) override {
    dawdle();
    check_count("all_to_all", count_each);
    const std::int64_t each = count_each * size_of(type), bytes = size() * each;
    exchange({.call = Call::all_to_all, .type = type, .count = count_each, .from = from}, bytes,
             bytes, [&](bool) {
               for (int k = 0; k < size(); ++k)
                 copy(at(to, k * each), at(sources_[k], index_ * each), each,
                      stores_for(2 * size() * bytes));
             });
    carry(size() * count_each, bytes);
  }

  void all_to_all_v(const void* from, std::span<const std::int64_t> send_counts, void* to,
                    std::span<const std::int64_t> recv_counts, DType type) override {
    dawdle();
    check_parts("send", send_counts);
    check_parts("receive", recv_counts);
    std::exclusive_scan(send_counts.begin(), send_counts.end(), begin_.begin(), std::int64_t{0});
    std::string unequal;
    exchange({.call = Call::all_to_all_v,
              .type = type,
              .from = from,
              .sent = send_counts.data(),
              .begin = begin_.data(),
              .wanted = recv_counts.data()},
             size_unknown, 0, [&](bool) {
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
    exchange(
        {.call = Call::shift, .type = type, .count = count, .from = from}, bytes, bytes, [&](bool) {
          copy(to, sources_[(index_ + size() - 1) % size()], bytes, stores_for(2 * size() * bytes));
        });
    carry(count, bytes);
  }

  void broadcast(const void* from, void* to, std::int64_t count, DType type, int root) override {
    dawdle();
    check_count("broadcast", count);
    check_root("broadcast from", root);
    const std::int64_t bytes = count * size_of(type);
    exchange({.call = Call::broadcast,
              .type = type,
              .root = root,
              .count = count,
              .from = from,
              .to = to},
             bytes, index_ == root ? bytes : 0, [&](bool staged) {
               if (staged)
                 return index_ == root && from == to ? void() : copy(to, sources_[root], bytes);
               const Share mine = share(count, size_of(type));
               const void* source = at(sources_[root], mine.first_byte);
               for (int k = 0; k < size(); ++k)
                 aim_copy(at(entry(k).to, mine.first_byte), source, size() * bytes);
               spread(source, mine.count * size_of(type));
             });
    carry(count, bytes);
  }

  void gather(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    dawdle();
    check_count("gather", count_each);
    check_root("gather to", root);
    const std::int64_t bytes = count_each * size_of(type);
    exchange({.call = Call::gather,
              .type = type,
              .root = root,
              .count = count_each,
              .from = from,
              .to = to},
             bytes, bytes, [&](bool staged) {
               if (staged) return index_ == root ? collect(to, bytes) : void();
               aim_copy(at(entry(root).to, index_ * bytes), from, 2 * size() * bytes);
               spread(from, bytes);
             });
    carry(size() * count_each, size() * bytes);
  }

  void scatter(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    dawdle();
    check_count("scatter", count_each);
    check_root("scatter from", root);
    const std::int64_t each = count_each * size_of(type), bytes = size() * each;
    exchange({.call = Call::scatter, .type = type, .root = root, .count = count_each, .from = from},
             bytes, index_ == root ? bytes : 0, [&](bool) {
               const std::byte* part = at(sources_[root], index_ * each);
               if (part != to) copy(to, part, each, stores_for(2 * bytes));
             });
    carry(size() * count_each, bytes);
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
    if (!channel.state.change(expected, Channel::offered)) throw_aborted();
    channel.state.wake();
  }

  void complete(std::int64_t bytes, int peer) {
    Channel& channel = channel_between(index_, peer);
    const std::uint32_t seen = channel.state.await(group_->waiting.looks, [](std::uint32_t state) {
      return state != Channel::offered && (state & ~aborted_bit) != Channel::claimed;
    });
    if ((seen & ~aborted_bit) == Channel::offered) throw_aborted();
    if ((seen & ~aborted_bit) != Channel::refused) return carry(0, bytes);
    const std::string message = mismatch(channel, index_, peer);
    channel.state.keep(aborted_bit);
    throw Error(message);
  }

  void accept(void* data, std::int64_t bytes, int peer) {
    Channel& channel = channel_between(peer, index_);
    std::uint32_t seen = channel.state.await(group_->waiting.looks, [](std::uint32_t state) {
      return state == Channel::offered || (state & aborted_bit) != 0;
    });
    if (seen != Channel::offered || !channel.state.change(seen, Channel::claimed)) throw_aborted();
    if (channel.sent_bytes != bytes) {
      channel.wanted_bytes = bytes;
      const std::string message = mismatch(channel, peer, index_);
      channel.settle(Channel::refused);
      throw Error(message);
    }
    copy(data, channel.data, bytes, stores_for(2 * bytes));
    channel.settle(Channel::idle);
  }

  static std::byte* at(void* data, std::int64_t bytes) {
    return static_cast<std::byte*>(data) + bytes;
  }
  static const std::byte* at(const void* data, std::int64_t bytes) {
    return static_cast<const std::byte*>(data) + bytes;
  }
  static Stores stores_for(std::int64_t touched_bytes) {
    return touched_bytes > cached_bytes ? Stores::streaming : Stores::ordinary;
  }
  static void copy(void* to, const void* from, std::int64_t bytes,
                   Stores stores = Stores::ordinary) {
    const Target target = {to, stores};
    if (bytes > 0) transfers().copy(from, {&target, 1}, bytes);
  }

  Entry& entry(int member) { return group_->entries[turn_ * size() + member]; }
  std::byte* staged(int member) {
    return group_->staging.get() + (turn_ * size() + member) * group_->waiting.staged_bytes;
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
    // A call like the last but one leaves its line in the peers' caches.
    if (entry(index_) != mine) entry(index_) = mine;
    if (!group_->enter.pass(enter_target_, size(), group_->waiting.looks)) throw_aborted();
    for (int member = 1; member < size(); ++member) {
      if (!match(entry(0), entry(member))) throw_mismatch(member);
    }
  }
  [[noreturn]] void throw_mismatch(int member) {
    throw Error(cat("group ", group_->name, ": ", to_text(entry(0)), " on rank ",
                    group_->members[0], " meets ", to_text(entry(member)), " on rank ",
                    group_->members[member]));
  }

  // One collective: `work(staged)` finds in sources_ what each member brings, and throws nothing.
  // `bytes` is the same on all members and decides whether they copy the first `brought` bytes of
  // `from` to the group.
  template <class Work>
  void exchange(const Entry& mine, std::int64_t bytes, std::int64_t brought, Work work) {
    const bool small = bytes <= group_->waiting.staged_bytes;
    turn_ = 1 - turn_;
    if (small) copy(staged(index_), mine.from, brought);
    meet(mine);
    for (int k = 0; k < size(); ++k) sources_[k] = small ? staged(k) : entry(k).from;
    targets_.clear();
    work(small);
    if (!small) group_->leave.pass(leave_target_, size(), group_->waiting.looks);
  }

  // This member's share of `count` elements that all work at: whole cache lines of a buffer that
  // starts at one.
  struct Share {
    std::int64_t first_byte, count;
  };
  Share share(std::int64_t count, int element_bytes) const {
    const std::int64_t line = static_cast<std::int64_t>(line_bytes) / element_bytes;
    const std::int64_t lines = (count + line - 1) / line;
    const auto start = [&](int member) { return std::min(count, lines * member / size() * line); };
    return {start(index_) * element_bytes, start(index_ + 1) - start(index_)};
  }

  // Adds the target of a reduction that begins `first_byte` behind `to`, and where the member's own
  // contribution is read behind `from`: in place, its lines are in a cache already. All members
  // touch `touched_bytes` together.
  void aim_reduction(void* to, const void* from, std::int64_t first_byte,
                     std::int64_t touched_bytes) {
    targets_.push_back(
        {at(to, first_byte), to == from ? Stores::ordinary : stores_for(touched_bytes)});
  }
  // `count` elements from `first_byte` of all sources, to the targets.
  void reduce_from(std::int64_t first_byte, std::int64_t count, DType type, ReduceOp op) {
    for (const void*& source : sources_) source = at(source, first_byte);
    transfers().reduce[static_cast<int>(type)][static_cast<int>(op)](sources_, targets_, count);
  }
  void reduce_to(void* to, std::int64_t count, DType type, ReduceOp op) {
    targets_.push_back({to, Stores::ordinary});
    reduce_from(0, count, type, op);
  }

  // Adds the target of a copy, unless it is the source.
  void aim_copy(void* target, const void* source, std::int64_t touched_bytes) {
    if (target != source) targets_.push_back({target, stores_for(touched_bytes)});
  }
  // Copies to the targets.
  void spread(const void* from, std::int64_t bytes) {
    if (bytes > 0 && !targets_.empty()) transfers().copy(from, targets_, bytes);
  }

  // What every member brings, one after the other.
  void collect(void* to, std::int64_t bytes) {
    for (int k = 0; k < size(); ++k) copy(at(to, k * bytes), sources_[k], bytes);
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
    const std::int64_t wanted = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const Stores stores = stores_for(2 * size() * wanted * element_bytes);
    for (int k = 0; k < size(); ++k) {
      const std::int64_t bytes = counts[k] * element_bytes;
      copy(to, at(sources_[k], entry(k).begin[index_] * element_bytes), bytes, stores);
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
  const Delays delays_;
  std::atomic<std::uint64_t> calls_made_{0};  // counted with delays only
  std::uint32_t enter_target_ = 0, leave_target_ = 0;
  int turn_ = 0;
  std::vector<const void*> sources_;  // of all members, for the call at hand
  std::vector<Target> targets_;
  std::vector<std::int64_t> begin_;  // of the parts that an all_to_all_v sends
};

}  // namespace

std::unique_ptr<Comm> make_thread_comm(std::shared_ptr<Group> group,
                                       std::shared_ptr<const Abortion> abortion, int index,
                                       Delays delays) {
  return std::make_unique<ThreadComm>(std::move(group), std::move(abortion), index, delays);
}

}  // namespace mb
