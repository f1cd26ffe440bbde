// Streams that are captured into graphs, by the emulation. A test double; see emulation.h.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "tests/support/cuda_emulation/state.h"

namespace mb::cuda_emulation {

// The `index`-th piece of work that was captured from a stream.
struct Place {
  std::uint32_t stream;
  std::size_t index;
  auto operator<=>(const Place&) const = default;
};
struct Capture;
// What has been captured by a time, as an event keeps it: all that is at or before these places.
struct Point {
  std::shared_ptr<Capture> capture;
  std::set<Place> at;
};

// Adds a piece of work to the graph that its stream is captured into; false where it is not.
bool capture_work(CUstream_st& stream, const Activity& activity, std::function<void()> work);
// Where a stream that is captured has come to; nullopt where it is not.
std::optional<Point> captured_point(cudaStream_t stream);
// What the stream has captured from now on comes after `point`; one that was not captured is now.
cudaError_t follow(cudaStream_t stream, const Point& point);
// A call that no captured stream may be given: what it returns, after which the capture has failed.
// cudaSuccess where the stream is not captured.
cudaError_t refuse_captured(cudaStream_t stream, cudaError_t error);
// Of a stream that is destroyed.
void forget_captured(cudaStream_t stream);

}  // namespace mb::cuda_emulation
