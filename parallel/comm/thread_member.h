// How a member of a group of threads meets the others and reaches their buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/comm/bytes.h"
#include "parallel/comm/thread_group.h"
#include "parallel/comm/transfer.h"

namespace mb {

// Collectives whose members read more than this together use streaming stores: sources that fill
// most of a last-level cache of 32 MiB leave no room for what is written. What the system tells of
// the cache's size is that of the host in virtual machines.
inline constexpr std::int64_t cached_bytes = 24 << 20;
// The size of what members do not all know, so that it is never staged.
inline constexpr std::int64_t never_staged = std::numeric_limits<std::int64_t>::max();

class ThreadMember {
 protected:
  ThreadMember(std::shared_ptr<Group> group, std::shared_ptr<const Abortion> abortion, int index)
      : group_(std::move(group)),
        abortion_(std::move(abortion)),
        index_(index),
        sources_(group_->members.size()) {
    targets_.reserve(group_->members.size());
  }

  int members() const { return static_cast<int>(group_->members.size()); }

  static Stores stores_for(std::int64_t read_bytes) {
    return read_bytes > cached_bytes ? Stores::streaming : Stores::ordinary;
  }
  static void copy(void* to, const void* from, std::int64_t bytes,
                   Stores stores = Stores::ordinary) {
    const Target target = {to, stores};
    if (bytes > 0) transfers().copy(from, {&target, 1}, bytes);
  }

  Entry& entry(int member) { return group_->entries[turn_ * members() + member]; }
  std::byte* staged(int turn, int member) {
    return group_->staging.get() + (turn * members() + member) * group_->waiting.staged_bytes;
  }

  [[noreturn]] void throw_aborted() const { throw Aborted(abortion_->reason); }

  // Waits for all members; throws on all of them where they do not make the same call.
  void meet(const Entry& mine) {
    turn_ = 1 - turn_;
    // A call like the last but one leaves its line in the peers' caches.
    if (entry(index_) != mine) entry(index_) = mine;
    if (!group_->enter.pass(enter_target_, members(), group_->waiting.looks)) throw_aborted();
    for (int member = 1; member < members(); ++member) {
      if (!match(entry(0), entry(member))) throw_mismatch(member);
    }
  }
  [[noreturn]] void throw_mismatch(int member) {
    throw Error(cat("group ", group_->name, ": ", to_text(entry(0)), " on rank ",
                    group_->members[0], " meets ", to_text(entry(member)), " on rank ",
                    group_->members[member]));
  }

  // Before parking where the others copy or reduce up to `bytes`: for about as long as this takes,
  // as being woken takes longer than most copies.
  int looks_for(std::int64_t bytes) const {
    const Waiting& waiting = group_->waiting;
    return waiting.looks == 0 ? 0 : waiting.looks + std::min<std::int64_t>(bytes >> 8, 4096);
  }

  // One collective: `work(staged)` finds in sources_ what each member brings, and throws nothing.
  // `bytes` is the same on all members and decides whether they copy the first `brought` bytes of
  // `from` to the group.
  template <class Work>
  void exchange(const Entry& mine, std::int64_t bytes, std::int64_t brought, Work work) {
    const bool small = bytes <= group_->waiting.staged_bytes;
    if (small) copy(staged(1 - turn_, index_), mine.from, brought);
    meet(mine);
    for (int k = 0; k < members(); ++k) sources_[k] = small ? staged(turn_, k) : entry(k).from;
    targets_.clear();
    work(small);
    if (!small) group_->leave.pass(leave_target_, members(), looks_for(bytes));
  }

  // This member's share of `count` elements that all work at: whole cache lines of a buffer that
  // starts at one.
  struct Share {
    std::int64_t first_byte, count;
  };
  Share share(std::int64_t count, int element_bytes) const {
    const std::int64_t line = static_cast<std::int64_t>(line_bytes) / element_bytes;
    const std::int64_t lines = (count + line - 1) / line;
    const auto start = [&](int member) {
      return std::min(count, lines * member / members() * line);
    };
    return {start(index_) * element_bytes, start(index_ + 1) - start(index_)};
  }

  // Adds the target of a reduction that begins `first_byte` behind `to`, and where the member's own
  // contribution is read behind `from`: in place, its lines are in a cache already. All members
  // read `read_bytes` together.
  void aim_reduction(void* to, const void* from, std::int64_t first_byte, std::int64_t read_bytes) {
    targets_.push_back(
        {at(to, first_byte), to == from ? Stores::ordinary : stores_for(read_bytes)});
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
  void aim_copy(void* target, const void* source, std::int64_t read_bytes) {
    if (target != source) targets_.push_back({target, stores_for(read_bytes)});
  }
  // Copies to the targets.
  void spread(const void* from, std::int64_t bytes) {
    if (bytes > 0 && !targets_.empty()) transfers().copy(from, targets_, bytes);
  }

  // What every member brings, one after the other.
  void collect(void* to, std::int64_t bytes) {
    for (int k = 0; k < members(); ++k) copy(at(to, k * bytes), sources_[k], bytes);
  }

  const std::shared_ptr<Group> group_;
  const std::shared_ptr<const Abortion> abortion_;
  const int index_;
  std::vector<const void*> sources_;  // of all members, for the call at hand
  std::vector<Target> targets_;

 private:
  std::uint32_t enter_target_ = 0, leave_target_ = 0;
  int turn_ = 0;
};

}  // namespace mb
