// What rank threads of one process group share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/call.h"
#include "parallel/comm/comm.h"
#include "parallel/comm/gate.h"

namespace mb {

// Set once, before the words of any group show it.
struct Abortion {
  std::atomic<bool> happened{false};
  std::string reason;
};

// How the ranks of a world wait for each other, and what they do to meet less often: what a member
// brings up to `staged_bytes` is copied to the group and read from there, which saves the second
// meeting; above it, everybody reads and writes in the peers' buffers.
struct Waiting {
  int looks;  // before a thread parks
  std::int64_t staged_bytes;
};

// What the members of a group share. Entries and staging exist twice and are used in turn: a member
// may enter its next call while another still reads those of the last, but not the one after.
struct Group {
  Group(std::string group_name, std::vector<int> group_members, Waiting how)
      : name(std::move(group_name)),
        members(std::move(group_members)),
        waiting(how),
        joined(members.size(), false),
        entries(2 * members.size()),
        staging(new std::byte[2 * members.size() * waiting.staged_bytes]),
        channels(members.size() * members.size()) {}

  void abort() {
    enter.abort();
    for (Channel& channel : channels) channel.state.set_aborted();
  }

  const std::string name;
  const std::vector<int> members;
  const Waiting waiting;
  std::vector<bool> joined;  // guarded by the world's mutex
  Gate enter;
  Gate leave;  // never aborted: whoever has entered comes out in bounded time
  std::vector<Entry> entries;
  std::unique_ptr<std::byte[]> staging;  // not initialised, so that unused pages cost nothing
  std::vector<Channel> channels;         // [sender][receiver]
};

// The Comm of member `index`, for one thread at a time but for send and recv.
std::unique_ptr<Comm> make_thread_comm(std::shared_ptr<Group> group,
                                       std::shared_ptr<const Abortion> abortion, int index,
                                       Delays delays);

}  // namespace mb
