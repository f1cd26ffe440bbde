#include "parallel/comm/mpi_comm.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "parallel/comm/arguments.h"
#include "parallel/comm/bytes.h"
#include "parallel/comm/gate.h"
#include "parallel/comm/mpi_message.h"
#include "parallel/comm/transfer.h"
#include "workloads/base/error.h"

namespace mb {

struct MpiComm::Head {
  Call call = Call::barrier;
  DType type = DType::fp32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::int64_t count = 0;
  std::int64_t bytes = 0, wanted_bytes = 0;  // of the part for the receiver, and of the one from it

  Entry entry() const {
    return {.call = call, .type = type, .op = op, .root = root, .count = count};
  }
};

struct MpiComm::Slot {
  Head head;
  std::byte part[small_bytes];
};

MpiComm::MpiComm(const MpiLink& link, std::string name, std::vector<int> members, int index)
    : link_(link),
      name_(std::move(name)),
      members_(std::move(members)),
      index_(index),
      outs_(members_.size()),
      ins_(members_.size()),
      sent_(new Slot[members_.size()]),
      received_(new Slot[members_.size()]),
      sources_(members_.size()) {
  // Tags tell groups apart that form at the same time; every MPI has at least 2^15 of them.
  const int tag = static_cast<int>(std::hash<std::string>()(name_) % 32768);
  link_.check(link_.mpi->make_group(members_.data(), size(), tag, &group_),
              "MPI_Comm_create_group");
}

MpiComm::~MpiComm() {
  if (!link_.aborted) link_.mpi->free_group(&group_);
}

// --- collectives --------------------------------------------------------------------------------

void MpiComm::clear_parts() {
  std::fill(outs_.begin(), outs_.end(), Out{});
  std::fill(ins_.begin(), ins_.end(), In{});
}

void MpiComm::post_heads(const Entry& mine) {
  requests_.clear();
  for (int k = 0; k < size(); ++k) {
    Head& head = sent_[k].head;
    head = {mine.call, mine.type, mine.op, mine.root, mine.count, outs_[k].bytes, ins_[k].bytes};
    if (k == index_) continue;
    const std::int64_t rides = outs_[k].bytes <= small_bytes ? outs_[k].bytes : 0;
    copy_bytes(sent_[k].part, outs_[k].data, rides);
    link_.recv(&received_[k], sizeof(Slot), k, kHead, group_, requests_);
    link_.send(&sent_[k], static_cast<std::int64_t>(sizeof(Head)) + rides, k, kHead, group_,
               requests_);
  }
}

void MpiComm::check_entries(const Entry& mine) const {
  const auto entry = [&](int k) { return k == index_ ? mine : received_[k].head.entry(); };
  const Entry first = entry(0);
  for (int k = 1; k < size(); ++k) {
    require(match(first, entry(k)), "group ", name_, ": ", to_text(first), " on rank ", members_[0],
            " meets ", to_text(entry(k)), " on rank ", members_[k]);
  }
}

// Where this member and `peer` give different sizes for a part; "" if they do not.
std::string MpiComm::disagreement(int peer, int element_bytes) const {
  const Head &mine = sent_[peer].head, &theirs = peer == index_ ? mine : received_[peer].head;
  const auto text = [&](std::int64_t sent, int sender, std::int64_t wanted, int receiver) {
    return cat("group ", name_, ": all_to_all_v sends ", sent / element_bytes,
               " elements from rank ", members_[sender], " to rank ", members_[receiver],
               ", which wants ", wanted / element_bytes);
  };
  if (mine.bytes != theirs.wanted_bytes) return text(mine.bytes, index_, theirs.wanted_bytes, peer);
  if (theirs.bytes != mine.wanted_bytes) return text(theirs.bytes, peer, mine.wanted_bytes, index_);
  return "";
}

// Parts that no head has carried, or all of them where `small_too`.
void MpiComm::move_parts(bool small_too, const std::vector<bool>* left_out) {
  requests_.clear();
  for (int k = 0; k < size(); ++k) {
    if (k == index_ || (left_out && (*left_out)[k])) continue;
    if (small_too || ins_[k].bytes > small_bytes)
      link_.recv(ins_[k].data, ins_[k].bytes, k, kParts, group_, requests_);
    if (small_too || outs_[k].bytes > small_bytes)
      link_.send(outs_[k].data, outs_[k].bytes, k, kParts, group_, requests_);
  }
  link_.wait(requests_, Waiting::bytes);
}

void MpiComm::exchange(const Entry& mine) {
  post_heads(mine);
  link_.wait(requests_, Waiting::member);
  check_entries(mine);
  std::string message;
  std::vector<bool> left_out;
  if (mine.call == Call::all_to_all_v) {
    left_out.resize(members_.size());
    for (int k = 0; k < size(); ++k) {
      const std::string unequal = disagreement(k, size_of(mine.type));
      left_out[k] = !unequal.empty();
      if (message.empty()) message = unequal;
    }
  }
  // The others' parts still go where they should, as nobody waits for those of this pair.
  move_parts(/*small_too=*/false, left_out.empty() ? nullptr : &left_out);
  require(message.empty(), message);
  for (int k = 0; k < size(); ++k) {
    if (!ins_[k].data) continue;
    if (k == index_) {
      copy_bytes(ins_[k].data, outs_[k].data, ins_[k].bytes);
    } else if (ins_[k].bytes <= small_bytes) {
      copy_bytes(ins_[k].data, received_[k].part, ins_[k].bytes);
    }
  }
}

// What `member` has brought to this one.
const void* MpiComm::brought(int member, const void* own) const {
  if (member == index_) return own;
  return ins_[member].data ? ins_[member].data : received_[member].part;
}

void MpiComm::reduce_brought(const void* own, void* to, std::int64_t count, DType type,
                             ReduceOp op) {
  for (int k = 0; k < size(); ++k) sources_[k] = brought(k, own);
  if (size() == 1) return copy_bytes(to, own, count * size_of(type));
  const Target target[] = {{to, Stores::ordinary}};
  transfers().reduce[static_cast<int>(type)][static_cast<int>(op)](sources_, {target, 1}, count);
}

// Whole lines of memory, so that no two members write to one.
std::int64_t MpiComm::part_begin(int member, std::int64_t count, DType type) const {
  const std::int64_t line = line_bytes / size_of(type), lines = (count + line - 1) / line;
  return std::min(count, lines * member / size() * line);
}

// Parts of mine.from to their owners, and each reduced by its owner into its place in `to`; where
// `to` is null, into scratch memory. Leaves in outs_[index()] where this member's part is.
void MpiComm::reduce_parts(const Entry& mine, void* to) {
  const int width = size_of(mine.type);
  const auto begin = [&](int k) { return part_begin(k, mine.count, mine.type) * width; };
  const std::int64_t first = begin(index_), bytes = begin(index_ + 1) - first;
  const std::int64_t room = bytes * (size() + 1);
  if (room > scratch_bytes_) {
    scratch_.reset(new std::byte[room]);
    scratch_bytes_ = room;
  }
  for (int k = 0; k < size(); ++k) {
    outs_[k] = {at(mine.from, begin(k)), begin(k + 1) - begin(k)};
    ins_[k] = {k == index_ ? nullptr : scratch_.get() + k * bytes, bytes};
  }
  exchange(mine);
  void* result = to ? at(to, first) : scratch_.get() + size() * bytes;
  reduce_brought(at(mine.from, first), result, bytes / width, mine.type, mine.op);
  outs_[index_] = {result, bytes};
}

void MpiComm::all_reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op) {
  link_.enter();
  check_count("all_reduce", count);
  const std::int64_t bytes = count * size_of(type);
  const Entry mine = {
      .call = Call::all_reduce, .type = type, .op = op, .count = count, .from = from};
  clear_parts();
  if (size() == 1) {
    copy_bytes(to, from, bytes);
  } else if (bytes <= small_bytes) {
    for (int k = 0; k < size(); ++k) {
      outs_[k] = {from, bytes};
      ins_[k] = {nullptr, bytes};
    }
    exchange(mine);
    reduce_brought(from, to, count, type, op);
  } else {
    reduce_parts(mine, to);
    const Out own = outs_[index_];
    for (int k = 0; k < size(); ++k) {
      const std::int64_t begin = part_begin(k, count, type), end = part_begin(k + 1, count, type);
      outs_[k] = own;
      ins_[k] = {at(to, begin * size_of(type)), (end - begin) * size_of(type)};
    }
    move_parts(/*small_too=*/true, nullptr);
  }
  carry(count, bytes);
}

void MpiComm::reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
                     int root) {
  link_.enter();
  check_count("reduce", count);
  check_root(name_, "reduce to", root, size());
  const std::int64_t bytes = count * size_of(type);
  const Entry mine = {
      .call = Call::reduce, .type = type, .op = op, .root = root, .count = count, .from = from};
  clear_parts();
  if (bytes <= small_bytes) {
    outs_[root] = {from, bytes};
    for (int k = 0; index_ == root && k < size(); ++k) ins_[k] = {nullptr, bytes};
    exchange(mine);
    if (index_ == root) reduce_brought(from, to, count, type, op);
  } else {
    reduce_parts(mine, index_ == root ? to : nullptr);
    const Out own = outs_[index_];
    clear_parts();
    if (index_ != root) outs_[root] = own;
    for (int k = 0; index_ == root && k < size(); ++k) {
      const std::int64_t begin = part_begin(k, count, type), end = part_begin(k + 1, count, type);
      ins_[k] = {at(to, begin * size_of(type)), (end - begin) * size_of(type)};
    }
    move_parts(/*small_too=*/true, nullptr);
  }
  carry(count, bytes);
}

void MpiComm::all_gather(const void* from, void* to, std::int64_t count_each, DType type) {
  link_.enter();
  check_count("all_gather", count_each);
  const std::int64_t bytes = count_each * size_of(type);
  for (int k = 0; k < size(); ++k) {
    outs_[k] = {from, bytes};
    ins_[k] = {at(to, k * bytes), bytes};
  }
  exchange({.call = Call::all_gather, .type = type, .count = count_each});
  carry(size() * count_each, size() * bytes);
}

void MpiComm::reduce_scatter(const void* from, void* to, std::int64_t count_each, DType type,
                             ReduceOp op) {
  link_.enter();
  check_count("reduce_scatter", count_each);
  const std::int64_t bytes = count_each * size_of(type), room = bytes * size();
  if (room > scratch_bytes_) {
    scratch_.reset(new std::byte[room]);
    scratch_bytes_ = room;
  }
  for (int k = 0; k < size(); ++k) {
    outs_[k] = {at(from, k * bytes), bytes};
    ins_[k] = {k == index_ ? nullptr : scratch_.get() + k * bytes, bytes};
  }
  exchange({.call = Call::reduce_scatter, .type = type, .op = op, .count = count_each});
  reduce_brought(at(from, index_ * bytes), to, count_each, type, op);
  carry(size() * count_each, size() * bytes);
}

void MpiComm::all_to_all(const void* from, void* to, std::int64_t count_each, DType type) {
  link_.enter();
  check_count("all_to_all", count_each);
  const std::int64_t bytes = count_each * size_of(type);
  for (int k = 0; k < size(); ++k) {
    outs_[k] = {at(from, k * bytes), bytes};
    ins_[k] = {at(to, k * bytes), bytes};
  }
  exchange({.call = Call::all_to_all, .type = type, .count = count_each});
  carry(size() * count_each, size() * bytes);
}

void MpiComm::all_to_all_v(const void* from, std::span<const std::int64_t> send_counts, void* to,
                           std::span<const std::int64_t> recv_counts, DType type) {
  link_.enter();
  check_parts(name_, "send", send_counts, size());
  check_parts(name_, "receive", recv_counts, size());
  const int width = size_of(type);
  std::int64_t sent = 0;
  for (int k = 0; k < size(); ++k) {
    outs_[k] = {from, send_counts[k] * width};
    ins_[k] = {to, recv_counts[k] * width};
    from = at(from, outs_[k].bytes);
    to = at(to, ins_[k].bytes);
    sent += send_counts[k];
  }
  exchange({.call = Call::all_to_all_v, .type = type});
  carry(sent, sent * width);
}

void MpiComm::shift(const void* from, void* to, std::int64_t count, DType type) {
  link_.enter();
  check_count("shift", count);
  const std::int64_t bytes = count * size_of(type);
  clear_parts();
  outs_[(index_ + 1) % size()] = {from, bytes};
  ins_[(index_ + size() - 1) % size()] = {to, bytes};
  exchange({.call = Call::shift, .type = type, .count = count});
  carry(count, bytes);
}

void MpiComm::broadcast(const void* from, void* to, std::int64_t count, DType type, int root) {
  link_.enter();
  check_count("broadcast", count);
  check_root(name_, "broadcast from", root, size());
  const std::int64_t bytes = count * size_of(type);
  clear_parts();
  for (int k = 0; index_ == root && k < size(); ++k) outs_[k] = {from, bytes};
  ins_[root] = {to, bytes};
  exchange({.call = Call::broadcast, .type = type, .root = root, .count = count});
  carry(count, bytes);
}

void MpiComm::gather(const void* from, void* to, std::int64_t count_each, DType type, int root) {
  link_.enter();
  check_count("gather", count_each);
  check_root(name_, "gather to", root, size());
  const std::int64_t bytes = count_each * size_of(type);
  clear_parts();
  outs_[root] = {from, bytes};
  for (int k = 0; index_ == root && k < size(); ++k) ins_[k] = {at(to, k * bytes), bytes};
  exchange({.call = Call::gather, .type = type, .root = root, .count = count_each});
  carry(size() * count_each, size() * bytes);
}

void MpiComm::scatter(const void* from, void* to, std::int64_t count_each, DType type, int root) {
  link_.enter();
  check_count("scatter", count_each);
  check_root(name_, "scatter from", root, size());
  const std::int64_t bytes = count_each * size_of(type);
  clear_parts();
  for (int k = 0; index_ == root && k < size(); ++k) outs_[k] = {at(from, k * bytes), bytes};
  ins_[root] = {to, bytes};
  exchange({.call = Call::scatter, .type = type, .root = root, .count = count_each});
  carry(size() * count_each, size() * bytes);
}

void MpiComm::barrier() {
  link_.enter();
  clear_parts();
  exchange({.call = Call::barrier});
}

// --- what may be wrong with arguments -----------------------------------------------------------

}  // namespace mb
