// What a collective puts on the wires of each class, by algorithm and placement: from lists alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/cost/machine.h"

namespace mb {

// Which links join the members of a group: none for one member, `intra` within a node, `inter` one
// member on each of several nodes, `mixed` several on some of several nodes.
enum class LinkClass : std::uint8_t { none, intra, inter, mixed };
std::string_view name_of(LinkClass link);
LinkClass link_class(std::span<const int> nodes);  // node of each member

// Bytes of one direction. `intra` and `inter` are of the member that has most over links of that
// class; `node` is of the node that has most over links to others, over all its members.
struct WirePeak {
  double intra = 0, inter = 0, node = 0;
};
// Bytes that one operation sends; `received` is where most comes in.
struct Wire : WirePeak {
  double total_intra = 0, total_inter = 0;  // over all members
  WirePeak received;
  // Links go both ways at once, so that the larger of both directions takes the time.
  WirePeak busier() const;
};
// `bytes` as nccl-tests counts the size of each kind; member 0 is the root. By Algorithm::own and
// native: as the ring for large messages, which is what libraries choose then. Kinds that an
// algorithm lacks go direct.
Wire wire_of(CollectiveKind kind, Algorithm algorithm, std::int64_t bytes,
             std::span<const int> nodes);

// What each member sends and receives, by class of link.
struct ClassBytes {
  double intra = 0, inter = 0;
};
struct MemberWire {
  ClassBytes sent, received;
};
std::vector<MemberWire> wire_by_member(CollectiveKind kind, Algorithm algorithm, std::int64_t bytes,
                                       std::span<const int> nodes);

// Largest busbw that links of `machine` admit for it, in bytes per second: each member drives one
// link of each class at its full rate both ways. nullopt for one member.
std::optional<double> busbw_ceiling(CollectiveKind kind, Algorithm algorithm,
                                    std::span<const int> nodes, const Machine& machine);

// The same where ranks are threads that share memory of `bytes_per_s` and go over it in one pass:
// collectives that go Algorithm::own (see the counts of reads and writes at the definition).
// nullopt for one member.
std::optional<double> memory_ceiling(CollectiveKind kind, int members, double bytes_per_s);

}  // namespace mb
