#include "bench/coll/operation.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <span>

#include "workloads/base/error.h"
#include "workloads/base/suggest.h"

namespace mb {
namespace {

using Kind = CollectiveKind;

struct Facts {
  Operation operation;
  std::string_view name;
  std::optional<Kind> kind;
  bool reduces, has_root, in_place, pairs;
  std::string_view reason;
};

constexpr std::string_view kParts =
    "(n-1)/n: of a vector of S bytes, the part that each rank has already does not travel";
constexpr std::string_view kWhole = "1: every byte of S passes each link once";
constexpr std::string_view kMessage = "1: S is one message, one direction";

constexpr std::array<Facts, kOperations> kFacts = {{
    {Operation::all_reduce, "all_reduce", Kind::all_reduce, true, false, true, false,
     "2(n-1)/n: every rank sends (n-1)/n of S to be summed, and (n-1)/n of it as sums"},
    {Operation::all_gather, "all_gather", Kind::all_gather, false, false, true, false, kParts},
    {Operation::reduce_scatter, "reduce_scatter", Kind::reduce_scatter, true, false, true, false,
     kParts},
    {Operation::broadcast, "broadcast", Kind::broadcast, false, true, true, false, kWhole},
    {Operation::reduce, "reduce", Kind::reduce, true, true, true, false, kWhole},
    {Operation::all_to_all, "all_to_all", Kind::all_to_all, false, false, false, false, kParts},
    {Operation::all_to_all_v, "all_to_all_v", Kind::all_to_all_v, false, false, false, false,
     "1 - own/S: S is the busiest rank's, and what it keeps for itself does not travel"},
    {Operation::gather, "gather", Kind::gather, false, true, true, false, kParts},
    {Operation::scatter, "scatter", Kind::scatter, false, true, true, false, kParts},
    {Operation::shift, "shift", Kind::shift, false, false, false, false, kMessage},
    {Operation::ping_pong, "ping_pong", Kind::shift, false, false, false, true, kMessage},
    {Operation::both_ways, "both_ways", Kind::shift, false, false, false, true, kMessage},
    {Operation::barrier, "barrier", std::nullopt, false, false, false, false,
     "none: nothing but time"},
}};

const Facts& facts_of(Operation operation) { return kFacts[static_cast<int>(operation)]; }

std::byte* at(void* data, std::int64_t elements, DType type) {
  return static_cast<std::byte*>(data) + elements * size_of(type);
}

// The matrix [sender][receiver] and after it its transpose, so that what a member receives from
// each lies together as well. Uneven on purpose, as tokens are that go to experts: each pair of
// members has a weight of 1 to n.
std::int64_t weight(int sender, int receiver, int members) {
  return 1 + (std::int64_t{sender} + 1) * (receiver + 1) % members;
}

std::vector<std::int64_t> uneven_parts(int n, std::int64_t elements) {
  std::int64_t busiest = 1;
  for (int a = 0; a < n; ++a) {
    std::int64_t sum = 0;
    for (int b = 0; b < n; ++b) sum += weight(a, b, n);
    busiest = std::max(busiest, sum);
  }
  std::vector<std::int64_t> parts;
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b)
      parts.push_back(elements / busiest * weight(a, b, n) +
                      elements % busiest * weight(a, b, n) / busiest);
  }
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b) parts.push_back(parts[std::size_t(b) * n + a]);
  }
  return parts;
}

struct Busiest {
  std::int64_t elements = 0, own = 0;
};
// The member that sends or receives most.
Busiest busiest_of(const CollCall& call) {
  Busiest most;
  for (int member = 0; member < call.members; ++member) {
    const std::int64_t elements = std::max(call.sent_by(member), call.received_by(member));
    if (elements > most.elements) most = {elements, call.sends(member)[member]};
  }
  return most;
}

bool has_parts(Operation operation) {
  switch (operation) {
    case Operation::all_gather:
    case Operation::reduce_scatter:
    case Operation::all_to_all:
    case Operation::gather:
    case Operation::scatter:
      return true;
    default:
      return false;
  }
}

int partner_of(int member) { return member ^ 1; }

void ping_pong(Comm& comm, const CollCall& call, const Operands& operands) {
  const std::int64_t bytes = call.count * size_of(call.type);
  const int partner = partner_of(comm.index());
  if (comm.index() < partner) {
    comm.send(operands.from, bytes, partner);
    comm.recv(operands.to, bytes, partner);
  } else {
    comm.recv(operands.to, bytes, partner);
    comm.send(operands.from, bytes, partner);
  }
}

}  // namespace

std::string_view name_of(Operation operation) { return facts_of(operation).name; }

Operation operation_named(std::string_view name, std::string_view subject) {
  return find_named(kFacts, name, subject, [](const Facts& facts) { return facts.name; }).operation;
}

std::optional<CollectiveKind> kind_of(Operation operation) { return facts_of(operation).kind; }
bool reduces(Operation operation) { return facts_of(operation).reduces; }
bool has_root(Operation operation) { return facts_of(operation).has_root; }
bool can_be_in_place(Operation operation) { return facts_of(operation).in_place; }
bool is_of_pairs(Operation operation) { return facts_of(operation).pairs; }
bool has_size(Operation operation) { return operation != Operation::barrier; }
std::string_view reason_of(Operation operation) { return facts_of(operation).reason; }

int participants(Operation operation, int members) {
  return is_of_pairs(operation) ? members / 2 * 2 : members;
}

std::int64_t CollCall::sent_by(int member) const {
  const auto row = sends(member);
  return std::accumulate(row.begin(), row.end(), std::int64_t{0});
}

std::int64_t CollCall::received_by(int member) const {
  const auto row = receives(member);
  return std::accumulate(row.begin(), row.end(), std::int64_t{0});
}

CollCall call_of(Operation operation, int members, std::int64_t bytes, DType type, ReduceOp redop,
                 int root) {
  CollCall call{.operation = operation,
                .members = members,
                .count = bytes / size_of(type),
                .type = type,
                .redop = redop,
                .root = root};
  if (has_parts(operation)) call.count /= members;
  if (operation == Operation::all_to_all_v) call.parts = uneven_parts(members, call.count);
  if (!has_size(operation)) call.count = 0;
  return call;
}

std::int64_t bytes_of(const CollCall& call) {
  if (call.operation == Operation::all_to_all_v)
    return busiest_of(call).elements * size_of(call.type);
  return call.count * size_of(call.type) * (has_parts(call.operation) ? call.members : 1);
}

std::optional<double> factor_of(const CollCall& call) {
  const auto kind = kind_of(call.operation);
  if (!kind || participants(call.operation, call.members) < 2) return std::nullopt;
  if (*kind != Kind::all_to_all_v) return busbw_factor(*kind, call.members);
  const Busiest busiest = busiest_of(call);
  if (busiest.elements == 0) return std::nullopt;
  return 1 - static_cast<double>(busiest.own) / static_cast<double>(busiest.elements);
}

std::int64_t elements_in(const CollCall& call, int member) {
  const bool root = member == call.root;
  switch (call.operation) {
    case Operation::reduce_scatter:
    case Operation::all_to_all:
      return call.count * call.members;
    case Operation::scatter:
      return root ? call.count * call.members : 0;
    case Operation::broadcast:
      return root ? call.count : 0;
    case Operation::all_to_all_v:
      return call.sent_by(member);
    case Operation::ping_pong:
    case Operation::both_ways:
      return member < participants(call.operation, call.members) ? call.count : 0;
    default:
      return call.count;
  }
}

std::int64_t elements_out(const CollCall& call, int member) {
  const bool root = member == call.root;
  switch (call.operation) {
    case Operation::all_gather:
    case Operation::all_to_all:
      return call.count * call.members;
    case Operation::gather:
      return root ? call.count * call.members : 0;
    case Operation::reduce:
      return root ? call.count : 0;
    case Operation::all_to_all_v:
      return call.received_by(member);
    case Operation::ping_pong:
    case Operation::both_ways:
      return member < participants(call.operation, call.members) ? call.count : 0;
    default:
      return call.count;
  }
}

Operands operands(const CollCall& call, int member, bool in_place, void* in, void* out) {
  if (!in_place) return {in, out};
  void* own_part = at(out, member * call.count, call.type);
  switch (call.operation) {
    case Operation::all_gather:
      return {own_part, out};
    case Operation::gather:
      return {member == call.root ? own_part : out, out};
    case Operation::reduce_scatter:
      return {out, own_part};
    case Operation::scatter:
      return {out, member == call.root ? own_part : out};
    default:
      return {out, out};
  }
}

void issue(Comm& comm, const CollCall& call, const Operands& o) {
  switch (call.operation) {
    case Operation::all_reduce:
      return comm.all_reduce(o.from, o.to, call.count, call.type, call.redop);
    case Operation::all_gather:
      return comm.all_gather(o.from, o.to, call.count, call.type);
    case Operation::reduce_scatter:
      return comm.reduce_scatter(o.from, o.to, call.count, call.type, call.redop);
    case Operation::broadcast:
      return comm.broadcast(o.from, o.to, call.count, call.type, call.root);
    case Operation::reduce:
      return comm.reduce(o.from, o.to, call.count, call.type, call.redop, call.root);
    case Operation::all_to_all:
      return comm.all_to_all(o.from, o.to, call.count, call.type);
    case Operation::all_to_all_v:
      return comm.all_to_all_v(o.from, call.sends(comm.index()), o.to, call.receives(comm.index()),
                               call.type);
    case Operation::gather:
      return comm.gather(o.from, o.to, call.count, call.type, call.root);
    case Operation::scatter:
      return comm.scatter(o.from, o.to, call.count, call.type, call.root);
    case Operation::shift:
      return comm.shift(o.from, o.to, call.count, call.type);
    case Operation::ping_pong:
      if (comm.index() < participants(call.operation, call.members)) ping_pong(comm, call, o);
      return;
    case Operation::both_ways:
      if (comm.index() < participants(call.operation, call.members)) {
        const std::int64_t bytes = call.count * size_of(call.type);
        const int partner = partner_of(comm.index());
        comm.send_recv(o.from, bytes, partner, o.to, bytes, partner);
      }
      return;
    case Operation::barrier:
      return comm.barrier();
  }
}

}  // namespace mb
