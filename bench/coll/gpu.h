// A rank's GPU in a measurement: twins of its buffers in device memory, and calls on its stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/coll/operation.h"
#include "parallel/device/device.h"
#include "parallel/exec/executor.h"
#include "parallel/exec/staging.h"

namespace mb {

class CollGpu {
 public:
  // All ranks make theirs together. `groups`: those that comm() will be asked for. `bytes`: the
  // largest buffers; as much again is pinned where `world` communicates through the host.
  CollGpu(const DeviceMaker& make_device, World& world, int rank,
          const std::vector<World::GroupName>& groups, std::int64_t bytes);

  // What calls are made on; nullptr where it is one of the host's, which operands are brought to.
  std::unique_ptr<Comm> comm(const std::string& name, const std::vector<int>& members);
  Device& device() { return *device_; }

  // The buffers begin at `host`; from then on operands are given by their places there.
  void stand_for(std::byte* host) { host_ = host; }
  void put(const void* host, std::int64_t bytes);
  void get(void* host, std::int64_t bytes);

  // Readies the device for one call, before ranks meet.
  void ready();
  struct Times {
    Span span;                      // on the device, on the clock of now_ns()
    std::int64_t submitted_ns = 0;  // when the rank could go on
  };
  Times run(Comm& comm, const CollCall& call, const Operands& operands);

 private:
  std::byte* twin(const void* host) const {
    return device_data_ + (static_cast<const std::byte*>(host) - host_);
  }
  void enqueue(Comm& comm, const CollCall& call, const Operands& on_device);

  World& world_;
  const int rank_;
  const std::unique_ptr<Device> device_;
  std::optional<Staging> staging_;  // of a world that does not enqueue
  std::byte* device_data_ = nullptr;
  std::byte* host_ = nullptr;
};

}  // namespace mb
