#include "parallel/exec/collectives.h"

#include <cstddef>
#include <numeric>
#include <vector>

#include "workloads/base/error.h"
#include "workloads/base/mutation.h"

namespace mb {
namespace {

// Elements of each member's part.
std::int64_t part_of(const Comm& comm, const Collective& collective, std::int64_t elements) {
  require(elements % comm.size() == 0, name_of(collective.kind), " of ", elements,
          " elements does not divide into ", comm.size(), " parts");
  return elements / comm.size();
}

// Of memory that the plan laid out too small or too large.
void check_size(const Collective& collective, const Operand& operand, std::int64_t wanted) {
  require(operand.elements == wanted, name_of(collective.kind), " has a tensor of ",
          operand.elements, " elements where ", wanted, " are wanted");
}

// Elements for, or from, each member: `unit` for each row of the member's run of experts.
std::vector<std::int64_t> part_sizes(const Comm& comm, const Collective& collective,
                                     const Operand& rows) {
  const std::int64_t run = part_of(comm, collective, rows.elements);
  const auto* row = static_cast<const std::int32_t*>(rows.data);
  std::vector<std::int64_t> sizes;
  for (int member = 0; member < comm.size(); ++member, row += run)
    sizes.push_back(collective.unit * std::accumulate(row, row + run, std::int64_t{0}));
  return sizes;
}

void all_to_all_v(Comm& comm, const Collective& collective, std::span<const Operand> reads,
                  const Operand& to) {
  require(reads.size() == 3, "all_to_all_v reads a buffer and two tensors of counts, not ",
          reads.size(), " tensors");
  const std::vector<std::int64_t> sent = part_sizes(comm, collective, reads[1]);
  const std::vector<std::int64_t> received = part_sizes(comm, collective, reads[2]);
  const auto fits = [](const char* verb, const std::vector<std::int64_t>& parts,
                       const Operand& buffer) {
    const std::int64_t sum = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
    require(sum <= buffer.elements, "all_to_all_v ", verb, ' ', sum, " elements; the buffer holds ",
            buffer.elements);
  };
  fits("sends", sent, reads[0]);
  fits("receives", received, to);
  comm.all_to_all_v(reads[0].data, sent, to.data, received, to.type);
}

}  // namespace

Operand slice_of(const Operand& whole, int ways, int index) {
  const std::int64_t part = whole.elements / ways;
  return {static_cast<std::byte*>(whole.data) + index * part * size_of(whole.type), part,
          whole.type};
}

void run_collective(Comm& comm, const Collective& collective, std::span<const Operand> reads,
                    std::span<const Operand> writes) {
  const Operand &from = reads[0], &to = writes[0];
  const bool in_place = from.data == to.data && from.elements == to.elements;
  switch (collective.kind) {
    case CollectiveKind::all_reduce:
      check_size(collective, from, to.elements);
      // The size of the type instead, where that is more; other memory follows.
      return comm.all_reduce(
          from.data, to.data,
          mutated("size_as_count") ? std::max<std::int64_t>(to.elements, 8) : to.elements, to.type,
          collective.op);
    case CollectiveKind::all_gather: {
      const std::int64_t part = part_of(comm, collective, to.elements);
      if (!in_place) check_size(collective, from, part);
      return comm.all_gather(in_place ? slice_of(to, comm.size(), comm.index()).data : from.data,
                             to.data, part, to.type);
    }
    case CollectiveKind::reduce_scatter: {
      const std::int64_t part = part_of(comm, collective, from.elements);
      if (!in_place) check_size(collective, to, part);
      return comm.reduce_scatter(
          from.data, in_place ? slice_of(from, comm.size(), comm.index()).data : to.data, part,
          from.type, collective.op);
    }
    case CollectiveKind::broadcast:
      if (comm.index() == 0) check_size(collective, from, to.elements);
      return comm.broadcast(from.data, to.data, to.elements, to.type, 0);
    case CollectiveKind::all_to_all:
      check_size(collective, to, from.elements);
      return comm.all_to_all(from.data, to.data, part_of(comm, collective, from.elements),
                             from.type);
    case CollectiveKind::all_to_all_v:
      return all_to_all_v(comm, collective, reads, to);
    case CollectiveKind::shift:
      check_size(collective, to, from.elements);
      return comm.shift(from.data, to.data, from.elements, from.type);
    case CollectiveKind::reduce:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      throw Error(cat("no step has a ", name_of(collective.kind)));
  }
}

}  // namespace mb
