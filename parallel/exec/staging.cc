#include "parallel/exec/staging.h"

#include <algorithm>

#include "workloads/base/error.h"
#include "workloads/base/mutation.h"

namespace mb {

std::int64_t Staging::room_of(std::int64_t bytes) {
  constexpr std::int64_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void Staging::reserve(std::int64_t bytes) {
  if (bytes <= bytes_) return;
  room_ = static_cast<std::byte*>(device_.allocate_host(static_cast<std::size_t>(bytes)));
  bytes_ = bytes;
}

// Operands of the same bytes, as in place, share a place.
Staging::Place Staging::place(const Operand& operand) {
  const std::int64_t bytes = operand.elements * size_of(operand.type);
  for (const Place& known : placed_) {
    if (known.device == operand.data && known.bytes == static_cast<std::size_t>(bytes))
      return known;
  }
  require(used_ + bytes <= bytes_, "communication of ", used_ + bytes, " bytes, and ", bytes_,
          " of host memory were set aside");
  placed_.push_back({operand.data, room_ + used_, static_cast<std::size_t>(bytes)});
  used_ += room_of(bytes);
  return placed_.back();
}

void Staging::bring(std::span<Operand> reads, std::span<Operand> writes, bool keeps) {
  placed_.clear();
  back_.clear();
  used_ = 0;
  const auto fetch = [this](const Place& at) {
    device_.copy(stream_, at.host, at.device, at.bytes);
  };
  for (Operand& read : reads) {
    const Place at = place(read);
    fetch(at);
    read.data = at.host;
  }
  const std::size_t read = placed_.size();
  for (Operand& write : writes) {
    const Place at = place(write);
    if (keeps && placed_.size() > read) fetch(at);
    back_.push_back(at);
    write.data = at.host;
  }
  // Also without reads: the room may still be on its way to the device.
  if (!mutated("staging_not_awaited")) device_.finish(stream_);
}

void Staging::take_back() {
  for (const Place& at : back_) device_.copy(stream_, at.device, at.host, at.bytes);
}

}  // namespace mb
