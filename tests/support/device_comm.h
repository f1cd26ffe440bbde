// A Comm over host memory by one that enqueues: operands go to memory of the device of exactly
// their size and come back, so that the tests of what every Comm promises hold for it.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/comm.h"

namespace mb::test {

class DeviceComm final : public Comm {
 public:
  DeviceComm(std::unique_ptr<Comm> comm, cudaStream_t stream)
      : comm_(std::move(comm)), stream_(stream) {}

  int index() const override { return comm_->index(); }
  int size() const override { return comm_->size(); }

  void all_reduce(const void* from, void* to, std::int64_t count, DType type,
                  ReduceOp op) override {
    run(from, count * size_of(type), to, count * size_of(type),
        [&](void* in, void* out) { comm_->all_reduce(in, out, count, type, op); });
  }
  void reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
              int root) override {
    run(from, count * size_of(type), to, count * size_of(type),
        [&](void* in, void* out) { comm_->reduce(in, out, count, type, op, root); });
  }
  void all_gather(const void* from, void* to, std::int64_t count, DType type) override {
    run(from, count * size_of(type), to, size() * count * size_of(type),
        [&](void* in, void* out) { comm_->all_gather(in, out, count, type); });
  }
  void reduce_scatter(const void* from, void* to, std::int64_t count, DType type,
                      ReduceOp op) override {
    run(from, size() * count * size_of(type), to, count * size_of(type),
        [&](void* in, void* out) { comm_->reduce_scatter(in, out, count, type, op); });
  }
  void all_to_all(const void* from, void* to, std::int64_t count, DType type) override {
    const std::int64_t bytes = size() * count * size_of(type);
    run(from, bytes, to, bytes,
        [&](void* in, void* out) { comm_->all_to_all(in, out, count, type); });
  }
  void all_to_all_v(const void* from, std::span<const std::int64_t> sent, void* to,
                    std::span<const std::int64_t> wanted, DType type) override {
    const auto bytes = [&](std::span<const std::int64_t> counts) {
      return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) * size_of(type);
    };
    run(from, bytes(sent), to, bytes(wanted),
        [&](void* in, void* out) { comm_->all_to_all_v(in, sent, out, wanted, type); });
  }
  void shift(const void* from, void* to, std::int64_t count, DType type) override {
    run(from, count * size_of(type), to, count * size_of(type),
        [&](void* in, void* out) { comm_->shift(in, out, count, type); });
  }
  void broadcast(const void* from, void* to, std::int64_t count, DType type, int root) override {
    run(from, count * size_of(type), to, count * size_of(type),
        [&](void* in, void* out) { comm_->broadcast(in, out, count, type, root); });
  }
  void gather(const void* from, void* to, std::int64_t count, DType type, int root) override {
    run(from, count * size_of(type), to, size() * count * size_of(type),
        [&](void* in, void* out) { comm_->gather(in, out, count, type, root); });
  }
  void scatter(const void* from, void* to, std::int64_t count, DType type, int root) override {
    run(from, size() * count * size_of(type), to, count * size_of(type),
        [&](void* in, void* out) { comm_->scatter(in, out, count, type, root); });
  }
  void send(const void* data, std::int64_t bytes, int peer) override {
    run(data, bytes, nullptr, 0, [&](void* in, void*) { comm_->send(in, bytes, peer); });
  }
  void recv(void* data, std::int64_t bytes, int peer) override {
    run(nullptr, 0, data, bytes, [&](void*, void* out) { comm_->recv(out, bytes, peer); });
  }
  void send_recv(const void* data, std::int64_t bytes, int to, void* into, std::int64_t into_bytes,
                 int from) override {
    run(data, bytes, into, into_bytes,
        [&](void* in, void* out) { comm_->send_recv(in, bytes, to, out, into_bytes, from); });
  }
  void barrier() override {
    comm_->barrier();
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }

 private:
  struct Copy {
    std::byte* data = nullptr;
    Copy(const void* host, std::int64_t bytes) {
      void* device = nullptr;
      EXPECT_EQ(cudaMalloc(&device, static_cast<std::size_t>(bytes)), cudaSuccess);
      data = static_cast<std::byte*>(device);
      if (host && bytes > 0)
        cudaMemcpy(data, host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice);
    }
    ~Copy() { cudaFree(data); }
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;
  };

  // Operands that overlap, as in place, share memory there too.
  template <class Call>
  void run(const void* from, std::int64_t from_bytes, void* to, std::int64_t to_bytes, Call call) {
    const auto* const in = static_cast<const std::byte*>(from);
    auto* const out = static_cast<std::byte*>(to);
    const auto within = [](const std::byte* part, const std::byte* whole, std::int64_t bytes) {
      return part && whole && part >= whole && part < whole + bytes;
    };
    const bool to_in_from = within(out, in, from_bytes), from_in_to = within(in, out, to_bytes);
    if (from_bytes >= to_bytes && to_in_from) {
      const Copy whole(from, from_bytes);
      call(whole.data, whole.data + (out - in));
      finish(to, whole.data + (out - in), to_bytes);
    } else if (from_in_to) {
      const Copy whole(to, to_bytes);
      call(whole.data + (in - out), whole.data);
      finish(to, whole.data, to_bytes);
    } else {
      const Copy source(from, from ? from_bytes : 0), target(nullptr, to ? to_bytes : 0);
      call(from ? source.data : nullptr, to ? target.data : nullptr);
      finish(to, target.data, to_bytes);
    }
  }
  void finish(void* to, const void* device, std::int64_t bytes) {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    if (to && bytes > 0)
      cudaMemcpy(to, device, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost);
  }

  std::unique_ptr<Comm> comm_;
  const cudaStream_t stream_;
};

}  // namespace mb::test
