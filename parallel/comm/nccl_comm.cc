#include "parallel/comm/nccl_comm.h"

#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "parallel/comm/arguments.h"
#include "parallel/comm/bytes.h"
#include "workloads/base/cuda_check.h"
#include "workloads/base/cuda_memory.h"
#include "workloads/base/mutation.h"

namespace mb {
namespace {

ncclDataType_t nccl_type(DType type) {
  switch (type) {
    case DType::fp32:
      return ncclFloat32;
    case DType::fp64:
      return ncclFloat64;
    case DType::bf16:
      return ncclBfloat16;
    case DType::fp16:
      return ncclFloat16;
    case DType::int32:
      return ncclInt32;
    case DType::int8:
      return ncclInt8;
    case DType::uint8:
      return ncclUint8;
    case DType::uint32:
      return ncclUint32;
    case DType::int64:
      return ncclInt64;
    case DType::uint64:
      return ncclUint64;
  }
  return ncclUint8;
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::prod:
      return ncclProd;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::avg:
      return ncclAvg;
  }
  return ncclSum;
}

class NcclComm final : public Comm {
 public:
  NcclComm(std::shared_ptr<NcclCommunicator> communicator, const NativeStream& stream,
           std::string name, int index, int size)
      : communicator_(std::move(communicator)),
        stream_(static_cast<cudaStream_t>(stream.stream)),
        name_(std::move(name)),
        index_(index),
        size_(size) {
    check(cudaSetDevice(communicator_->device()), "cudaSetDevice");
    flag_ = cuda::Memory(kFlagBytes, "the flag of barriers");
  }
  // Threads without a device of their own would free it by way of the first GPU.
  ~NcclComm() override { (void)cudaSetDevice(communicator_->device()); }

  int index() const override { return index_; }
  int size() const override { return size_; }

  void all_reduce(const void* from, void* to, std::int64_t count, DType type,
                  ReduceOp op) override {
    check_count("all_reduce", count);
    communicator_->enqueue("ncclAllReduce", [&](ncclComm_t comm) {
      return ncclAllReduce(from, to, elements(count), nccl_type(type), nccl_op(op), comm, stream_);
    });
    carry(count, count * size_of(type));
  }
  void reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
              int root) override {
    check_count("reduce", count);
    check_root(name_, "reduce to", root, size_);
    communicator_->enqueue("ncclReduce", [&](ncclComm_t comm) {
      return ncclReduce(from, to, elements(count), nccl_type(type), nccl_op(op), root, comm,
                        stream_);
    });
    carry(count, count * size_of(type));
  }
  void all_gather(const void* from, void* to, std::int64_t count_each, DType type) override {
    check_count("all_gather", count_each);
    communicator_->enqueue("ncclAllGather", [&](ncclComm_t comm) {
      return ncclAllGather(from, to, elements(count_each), nccl_type(type), comm, stream_);
    });
    carry_of_all(count_each, type);
  }
  void reduce_scatter(const void* from, void* to, std::int64_t count_each, DType type,
                      ReduceOp op) override {
    check_count("reduce_scatter", count_each);
    communicator_->enqueue("ncclReduceScatter", [&](ncclComm_t comm) {
      return ncclReduceScatter(from, to, elements(count_each), nccl_type(type), nccl_op(op), comm,
                               stream_);
    });
    carry_of_all(count_each, type);
  }
  void broadcast(const void* from, void* to, std::int64_t count, DType type, int root) override {
    check_count("broadcast", count);
    check_root(name_, "broadcast from", root, size_);
    communicator_->enqueue("ncclBroadcast", [&](ncclComm_t comm) {
      return ncclBroadcast(index_ == root ? from : to, to, elements(count), nccl_type(type), root,
                           comm, stream_);
    });
    carry(count, count * size_of(type));
  }

  void all_to_all(const void* from, void* to, std::int64_t count_each, DType type) override {
    check_count("all_to_all", count_each);
    const std::int64_t bytes = count_each * size_of(type);
    grouped("all_to_all", [&](Messages& messages) {
      for (int k = 0; k < size_; ++k) {
        messages.send(at(from, k * bytes), bytes, k);
        messages.recv(at(to, k * bytes), bytes, k);
      }
    });
    carry_of_all(count_each, type);
  }
  void all_to_all_v(const void* from, std::span<const std::int64_t> send_counts, void* to,
                    std::span<const std::int64_t> recv_counts, DType type) override {
    check_parts(name_, "send", send_counts, size_);
    check_parts(name_, "receive", recv_counts, size_);
    grouped("all_to_all_v", [&](Messages& messages) {
      std::int64_t sent = 0, received = 0;
      for (int k = 0; k < size_; ++k) {
        messages.send(at(from, sent), send_counts[k] * size_of(type), k);
        messages.recv(at(to, received), recv_counts[k] * size_of(type), k);
        sent += send_counts[k] * size_of(type);
        received += recv_counts[k] * size_of(type);
      }
    });
    const std::int64_t sent =
        std::accumulate(send_counts.begin(), send_counts.end(), std::int64_t{0});
    carry(sent, sent * size_of(type));
  }
  void shift(const void* from, void* to, std::int64_t count, DType type) override {
    check_count("shift", count);
    const std::int64_t bytes = count * size_of(type);
    exchange("shift", from, bytes, (index_ + 1) % size_, to, bytes, (index_ + size_ - 1) % size_);
    carry(count, bytes);
  }
  void gather(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    check_count("gather", count_each);
    check_root(name_, "gather to", root, size_);
    const std::int64_t bytes = count_each * size_of(type);
    const bool in_place = index_ == root && from == at(to, root * bytes);
    grouped("gather", [&](Messages& messages) {
      if (!in_place) messages.send(from, bytes, root);
      for (int k = 0; k < size_ && index_ == root; ++k)
        if (k != root || !in_place) messages.recv(at(to, k * bytes), bytes, k);
    });
    carry_of_all(count_each, type);
  }
  void scatter(const void* from, void* to, std::int64_t count_each, DType type, int root) override {
    check_count("scatter", count_each);
    check_root(name_, "scatter from", root, size_);
    const std::int64_t bytes = count_each * size_of(type);
    const bool in_place = index_ == root && to == at(from, root * bytes);
    grouped("scatter", [&](Messages& messages) {
      for (int k = 0; k < size_ && index_ == root; ++k)
        if (k != root || !in_place) messages.send(at(from, k * bytes), bytes, k);
      if (!in_place) messages.recv(to, bytes, root);
    });
    carry_of_all(count_each, type);
  }

  void send(const void* data, std::int64_t bytes, int peer) override {
    check_peer(name_, peer, index_, size_);
    if (bytes > 0)
      communicator_->enqueue("ncclSend", [&](ncclComm_t comm) {
        return ncclSend(data, elements(bytes), ncclUint8, peer, comm, stream_);
      });
    carry(0, bytes);
  }
  void recv(void* data, std::int64_t bytes, int peer) override {
    check_peer(name_, peer, index_, size_);
    if (bytes == 0) return;
    communicator_->enqueue("ncclRecv", [&](ncclComm_t comm) {
      return ncclRecv(data, elements(bytes), ncclUint8, peer, comm, stream_);
    });
  }
  void send_recv(const void* data, std::int64_t bytes, int to, void* into, std::int64_t into_bytes,
                 int from) override {
    exchange("send_recv", data, bytes, to, into, into_bytes, from);
    carry(0, bytes);
  }
  void barrier() override {
    communicator_->enqueue("ncclAllReduce of a barrier", [&](ncclComm_t comm) {
      return ncclAllReduce(flag_.at(), flag_.at(), 1, ncclInt32, ncclMax, comm, stream_);
    });
  }

 private:
  static constexpr std::size_t kFlagBytes = 4;

  static std::size_t elements(std::int64_t count) { return static_cast<std::size_t>(count); }

  void carry_of_all(std::int64_t count_each, DType type) {
    carry(size_ * count_each, size_ * count_each * size_of(type));
  }

  // Sends and receives of bytes, until one fails.
  struct Messages {
    ncclComm_t comm;
    cudaStream_t stream;
    ncclResult_t code = ncclSuccess;

    void send(const void* data, std::int64_t bytes, int peer) {
      if (bytes > 0 && code == ncclSuccess)
        code = ncclSend(data, elements(bytes), ncclUint8, peer, comm, stream);
    }
    void recv(void* data, std::int64_t bytes, int peer) {
      if (bytes > 0 && code == ncclSuccess)
        code = ncclRecv(data, elements(bytes), ncclUint8, peer, comm, stream);
    }
  };

  // What `add` sends and receives goes at once; one after the other, sends of all members would
  // wait for receives that come after their own.
  template <class Add>
  void grouped(const char* what, Add add) {
    communicator_->enqueue(what, [&](ncclComm_t comm) {
      Messages messages{comm, stream_};
      if (mutated("sends_outside_group")) {
        add(messages);
        return messages.code;
      }
      if (const ncclResult_t code = ncclGroupStart(); code != ncclSuccess) return code;
      add(messages);
      const ncclResult_t code = ncclGroupEnd();
      return messages.code != ncclSuccess ? messages.code : code;
    });
  }

  void exchange(const char* what, const void* data, std::int64_t bytes, int to, void* into,
                std::int64_t into_bytes, int from) {
    grouped(what, [&](Messages& messages) {
      messages.send(data, bytes, to);
      messages.recv(into, into_bytes, from);
    });
  }

  const std::shared_ptr<NcclCommunicator> communicator_;
  const cudaStream_t stream_;
  const std::string name_;
  const int index_, size_;
  cuda::Memory flag_;  // of barriers; what it holds does not matter
};

}  // namespace

std::unique_ptr<Comm> make_nccl_comm(std::shared_ptr<NcclCommunicator> communicator,
                                     const NativeStream& stream, std::string name, int index,
                                     int size) {
  return std::make_unique<NcclComm>(std::move(communicator), stream, std::move(name), index, size);
}

}  // namespace mb
