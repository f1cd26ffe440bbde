// What can be timed: the collectives and the exchanges of a pair, with what nccl-tests means by the
// size of each and what every member brings and gets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/comm/comm.h"
#include "workloads/base/dtype.h"

namespace mb {

// The last four are timed beside the collectives: members 2k and 2k + 1 send a message forth and
// back (time is that of one way), or both at once; and nothing but meeting. A last member without a
// partner does nothing.
enum class Operation : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  all_to_all,
  all_to_all_v,
  gather,
  scatter,
  shift,
  ping_pong,
  both_ways,
  barrier
};
inline constexpr int kOperations = 13;
std::string_view name_of(Operation operation);
Operation operation_named(std::string_view name, std::string_view subject);  // throws Error

// As the cost of it is modelled; nullopt for a barrier. A pair's message is a shift.
std::optional<CollectiveKind> kind_of(Operation operation);
bool reduces(Operation operation);
bool has_root(Operation operation);
bool can_be_in_place(Operation operation);
bool is_of_pairs(Operation operation);
bool has_size(Operation operation);
// How many of n members take part: all, or whole pairs.
int participants(Operation operation, int members);

// One call as every member of a group of `members` makes it.
struct CollCall {
  Operation operation = Operation::all_reduce;
  int members = 1;
  std::int64_t count = 0;  // what nccl-tests prints: of the vector, or of each member's part
  DType type = DType::fp32;
  ReduceOp redop = ReduceOp::sum;
  int root = 0;
  // all_to_all_v: elements [sender][receiver], then the same [receiver][sender].
  std::vector<std::int64_t> parts;

  // Of an all_to_all_v: what a member sends to each, and receives from each.
  std::span<const std::int64_t> sends(int member) const { return run(member); }
  std::span<const std::int64_t> receives(int member) const { return run(members + member); }
  std::int64_t sent_by(int member) const;
  std::int64_t received_by(int member) const;

 private:
  std::span<const std::int64_t> run(int row) const {
    return std::span(parts).subspan(static_cast<std::size_t>(row) * members, members);
  }
};

// The call whose size is `bytes` or as much less as whole elements and equal parts take away.
CollCall call_of(Operation operation, int members, std::int64_t bytes, DType type, ReduceOp redop,
                 int root);
// Its size as nccl-tests counts it: the vector; of a gather or all_gather the whole output, of a
// scatter, reduce_scatter or all_to_all the whole input, of an all_to_all_v the busiest member's.
std::int64_t bytes_of(const CollCall& call);
// busbw over algbw; nullopt where there is no bus or no size. Of an all_to_all_v the share that the
// busiest member does not keep.
std::optional<double> factor_of(const CollCall& call);
// Why that factor, for people.
std::string_view reason_of(Operation operation);

// Elements that a member brings and takes. Buffers in place are as large as the larger.
std::int64_t elements_in(const CollCall& call, int member);
std::int64_t elements_out(const CollCall& call, int member);

struct Operands {
  const void* from = nullptr;
  void* to = nullptr;
};
// Where a member's input and output are in its two buffers, or, in place, both in `out`.
Operands operands(const CollCall& call, int member, bool in_place, void* in, void* out);

// Makes the call as member comm.index().
void issue(Comm& comm, const CollCall& call, const Operands& operands);

}  // namespace mb
