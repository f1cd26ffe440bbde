#include <cstring>
#include <numeric>

#include "parallel/comm/arguments.h"
#include "parallel/comm/mpi_comm.h"
#include "parallel/comm/reduce.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Sends and receives are those of MpiComm.
class NativeMpiComm final : public MpiComm {
 public:
  using MpiComm::MpiComm;

  void all_reduce(const void* from, void* to, std::int64_t count, DType type,
                  ReduceOp op) override {
    check_count("all_reduce", count);
    call("MPI_Allreduce", &MpiFunctions::all_reduce, from, to, count, type, op);
    if (op == ReduceOp::avg) divide_all(to, count, type, size());
    carry(count, count * size_of(type));
  }
  void reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
              int root) override {
    check_count("reduce", count);
    check_root(name_, "reduce to", root, size());
    const std::int64_t bytes = count * size_of(type);
    // Not MPI_IN_PLACE, which MPICH 4.0 fails on from some 2 KiB on.
    if (index() == root && from == to && bytes > 0) from = std::memcpy(scratch(bytes), from, bytes);
    call("MPI_Reduce", &MpiFunctions::reduce, from, to, count, type, op, root);
    if (op == ReduceOp::avg && index() == root) divide_all(to, count, type, size());
    carry(count, bytes);
  }
  void all_gather(const void* from, void* to, std::int64_t count_each, DType type) override {
    check_count("all_gather", count_each);
    call("MPI_Allgather", &MpiFunctions::all_gather, from, to, count_each, type);
    carry(size() * count_each, size() * count_each * size_of(type));
  }
  void reduce_scatter(const void* from, void* to, std::int64_t count_each, DType type,
                      ReduceOp op) override {
    check_count("reduce_scatter", count_each);
    const std::int64_t bytes = count_each * size_of(type);
    // MPI's buffers may not overlap.
    const bool in_place = to == static_cast<const std::byte*>(from) + index() * bytes;
    void* result = in_place ? scratch(bytes) : to;
    call("MPI_Reduce_scatter_block", &MpiFunctions::reduce_scatter, from, result, count_each, type,
         op);
    if (in_place && bytes > 0) std::memcpy(to, result, bytes);
    if (op == ReduceOp::avg) divide_all(to, count_each, type, size());
    carry(size() * count_each, size() * bytes);
  }
  void all_to_all(const void* from, void* to, std::int64_t count_each, DType type) override {
    check_count("all_to_all", count_each);
    call("MPI_Alltoall", &MpiFunctions::all_to_all, from, to, count_each, type);
    carry(size() * count_each, size() * count_each * size_of(type));
  }
  void all_to_all_v(const void* from, std::span<const std::int64_t> send_counts, void* to,
                    std::span<const std::int64_t> recv_counts, DType type) override {
    check_parts(name_, "send", send_counts, size());
    check_parts(name_, "receive", recv_counts, size());
    call("MPI_Alltoallv", &MpiFunctions::all_to_all_v, from, send_counts.data(), to,
         recv_counts.data(), type);
    const std::int64_t sent =
        std::accumulate(send_counts.begin(), send_counts.end(), std::int64_t{0});
    carry(sent, sent * size_of(type));
  }
  void shift(const void* from, void* to, std::int64_t count, DType type) override {
    check_count("shift", count);
    call("MPI_Sendrecv", &MpiFunctions::send_recv, from, (index() + 1) % size(), to,
         (index() + size() - 1) % size(), count, type);
    carry(count, count * size_of(type));
  }
  void broadcast(const void* from, void* to, std::int64_t count, DType type, int root) override {
    check_count("broadcast", count);
    check_root(name_, "broadcast from", root, size());
    const std::int64_t bytes = count * size_of(type);
    if (index() == root && from != to && bytes > 0) std::memcpy(to, from, bytes);
    call("MPI_Bcast", &MpiFunctions::broadcast, to, count, type, root);
    carry(count, bytes);
  }
  void gather(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    check_count("gather", count_each);
    check_root(name_, "gather to", root, size());
    call("MPI_Gather", &MpiFunctions::gather, from, to, count_each, type, root);
    carry(size() * count_each, size() * count_each * size_of(type));
  }
  void scatter(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    check_count("scatter", count_each);
    check_root(name_, "scatter from", root, size());
    call("MPI_Scatter", &MpiFunctions::scatter, from, to, count_each, type, root);
    carry(size() * count_each, size() * count_each * size_of(type));
  }
  void barrier() override {
    link_.enter();
    link_.check(link_.mpi->barrier(group_), "MPI_Barrier");
  }

 private:
  template <class Function, class... Arguments>
  void call(const char* name, Function function, Arguments... arguments) {
    link_.enter();
    link_.check((link_.mpi->*function)(arguments..., group_, link_.native_limit), name);
  }

  void* scratch(std::int64_t bytes) {
    if (static_cast<std::int64_t>(scratch_.size()) < bytes) scratch_.resize(bytes);
    return scratch_.data();
  }

  std::vector<std::byte> scratch_;
};

}  // namespace

std::unique_ptr<Comm> make_native_mpi_comm(const MpiLink& link, const std::string& name,
                                           const std::vector<int>& members, int index) {
  return std::make_unique<NativeMpiComm>(link, name, members, index);
}

}  // namespace mb
