// Operands of communication that lie on a device, brought to memory of the host and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/device/device.h"
#include "parallel/exec/collectives.h"

namespace mb {

// Room of one stream of a device, used on its thread.
class Staging {
 public:
  Staging(Device& device, int stream) : device_(device), stream_(stream) {}

  // Before the first step: the largest sum of bytes that bring() will be given.
  void reserve(std::int64_t bytes);

  // Makes all operands those of the host, the reads filled, and with `keeps` also writes, which the
  // call will write a part of. Returns once the stream has come to here.
  void bring(std::span<Operand> reads, std::span<Operand> writes, bool keeps);
  // Enqueues what the call has written back to where it belongs.
  void take_back();

  // Bytes of the room that an operand takes.
  static std::int64_t room_of(std::int64_t bytes);

 private:
  struct Place {
    void* device;
    std::byte* host;
    std::size_t bytes;
  };
  Place place(const Operand& operand);

  Device& device_;
  const int stream_;
  std::byte* room_ = nullptr;
  std::int64_t bytes_ = 0, used_ = 0;
  std::vector<Place> placed_, back_;
};

}  // namespace mb
