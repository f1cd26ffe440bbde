// Process groups of rank threads: every collective is one pass over the peers' own buffers.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "parallel/comm/arguments.h"
#include "parallel/comm/thread_group.h"
#include "parallel/comm/thread_member.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

class ThreadComm final : public Comm, private ThreadMember {
 public:
  ThreadComm(std::shared_ptr<Group> group, std::shared_ptr<const Abortion> abortion, int index,
             Delays delays)
      : ThreadMember(std::move(group), std::move(abortion), index),
        delays_(delays),
        begin_(group_->members.size()) {}

  int index() const override { return index_; }
  int size() const override { return members(); }

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
            aim_reduction(entry(k).to, entry(k).from, mine.first_byte, size() * bytes);
          reduce_from(mine.first_byte, mine.count, type, op);
        });
    carry(count, bytes);
  }

  void reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
              int root) override {
    dawdle();
    check_count("reduce", count);
    check_root(group_->name, "reduce to", root, size());
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
               aim_reduction(entry(root).to, entry(root).from, mine.first_byte, size() * bytes);
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
                 aim_copy(at(entry(k).to, index_ * bytes), from, size() * bytes);
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
          aim_reduction(to, at(from, index_ * each), 0, size() * bytes);
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
                      stores_for(size() * bytes));
             });
    carry(size() * count_each, bytes);
  }

  void all_to_all_v(const void* from, std::span<const std::int64_t> send_counts, void* to,
                    std::span<const std::int64_t> recv_counts, DType type) override {
    dawdle();
    check_parts(group_->name, "send", send_counts, size());
    check_parts(group_->name, "receive", recv_counts, size());
    std::exclusive_scan(send_counts.begin(), send_counts.end(), begin_.begin(), std::int64_t{0});
    std::string unequal;
    exchange({.call = Call::all_to_all_v,
              .type = type,
              .from = from,
              .sent = send_counts.data(),
              .begin = begin_.data(),
              .wanted = recv_counts.data()},
             never_staged, 0, [&](bool) {
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
          copy(to, sources_[(index_ + size() - 1) % size()], bytes, stores_for(size() * bytes));
        });
    carry(count, bytes);
  }

  void broadcast(const void* from, void* to, std::int64_t count, DType type, int root) override {
    dawdle();
    check_count("broadcast", count);
    check_root(group_->name, "broadcast from", root, size());
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
                 aim_copy(at(entry(k).to, mine.first_byte), source, bytes);
               spread(source, mine.count * size_of(type));
             });
    carry(count, bytes);
  }

  void gather(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    dawdle();
    check_count("gather", count_each);
    check_root(group_->name, "gather to", root, size());
    const std::int64_t bytes = count_each * size_of(type);
    exchange({.call = Call::gather,
              .type = type,
              .root = root,
              .count = count_each,
              .from = from,
              .to = to},
             bytes, bytes, [&](bool staged) {
               if (staged) return index_ == root ? collect(to, bytes) : void();
               aim_copy(at(entry(root).to, index_ * bytes), from, size() * bytes);
               spread(from, bytes);
             });
    carry(size() * count_each, size() * bytes);
  }

  void scatter(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    dawdle();
    check_count("scatter", count_each);
    check_root(group_->name, "scatter from", root, size());
    const std::int64_t each = count_each * size_of(type), bytes = size() * each;
    exchange({.call = Call::scatter, .type = type, .root = root, .count = count_each, .from = from},
             bytes, index_ == root ? bytes : 0, [&](bool) {
               const std::byte* part = at(sources_[root], index_ * each);
               if (part != to) copy(to, part, each, stores_for(bytes));
             });
    carry(size() * count_each, bytes);
  }

  void barrier() override {
    dawdle();
    if (size() > 1) meet({.call = Call::barrier});
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
    channel_between(from, index_);  // refused before anything is offered
    offer(data, bytes, to);
    std::exception_ptr refused;
    try {
      accept(into, into_bytes, from);
    } catch (const Error&) {
      refused = std::current_exception();
    }
    // Whatever came of the receive, the other peer may be reading `data`.
    try {
      complete(bytes, to);
    } catch (const Error&) {
      if (!refused) throw;
    }
    if (refused) std::rethrow_exception(refused);
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

  // Sleeps for this call's share of the delays.
  void dawdle() {
    if (delays_.most_us == 0) return;
    const std::uint64_t draw = random_bits(delays_.seed, group_->members[index_], calls_made_++);
    std::this_thread::sleep_for(std::chrono::microseconds(draw % (delays_.most_us + 1)));
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
    const Stores stores = stores_for(size() * wanted * element_bytes);
    for (int k = 0; k < size(); ++k) {
      const std::int64_t bytes = counts[k] * element_bytes;
      copy(to, at(sources_[k], entry(k).begin[index_] * element_bytes), bytes, stores);
      to = at(to, bytes);
    }
  }

  Channel& channel_between(int sender, int receiver) {
    const int peer = sender == index_ ? receiver : sender;
    check_peer(group_->name, peer, index_, size());
    return group_->channels[sender * size() + receiver];
  }

  std::string mismatch(const Channel& channel, int sender, int receiver) const {
    return cat("group ", group_->name, ": send of ", channel.sent_bytes, " bytes on rank ",
               group_->members[sender], " meets a receive of ", channel.wanted_bytes,
               " bytes on rank ", group_->members[receiver]);
  }

  const Delays delays_;
  std::atomic<std::uint64_t> calls_made_{0};  // counted with delays only
  std::vector<std::int64_t> begin_;           // of the parts that an all_to_all_v sends
};

}  // namespace

std::unique_ptr<Comm> make_thread_comm(std::shared_ptr<Group> group,
                                       std::shared_ptr<const Abortion> abortion, int index,
                                       Delays delays) {
  return std::make_unique<ThreadComm>(std::move(group), std::move(abortion), index, delays);
}

}  // namespace mb
