#include "bench/coll/buffers.h"

#include <unistd.h>

#include <algorithm>

namespace mb {
namespace {

constexpr std::int64_t kLine = 128;  // pairs of cache lines are fetched together

std::int64_t rounded(std::int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

BufferSizes buffer_sizes(const CollCall& call, int member, bool in_place) {
  const std::int64_t in = elements_in(call, member) * size_of(call.type),
                     out = elements_out(call, member) * size_of(call.type);
  if (in_place) return {0, std::max(in, out)};
  return {in, out};
}

std::int64_t last_level_cache_bytes() {
  constexpr std::int64_t kUnknown = 32 << 20;
  const std::int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return cache > 0 ? cache : kUnknown;
}

std::int64_t cold_pool_bytes(int ranks) {
  constexpr std::int64_t kLeast = 16 << 20;
  return std::max(kLeast, 2 * last_level_cache_bytes() / ranks);
}

Buffers::Buffers(const BufferSizes& largest, std::int64_t pool_bytes, PageSize pages)
    : pages_(std::max(rounded(largest.in) + rounded(largest.out), pool_bytes), pages),
      rotates_(pool_bytes > 0) {
  pages_.prefault();
}

void Buffers::shape(const BufferSizes& sizes) {
  in_stride_ = rounded(sizes.in);
  out_stride_ = rounded(sizes.out);
  const std::int64_t each = in_stride_ + out_stride_;
  slots_ = rotates_ && each > 0 ? std::max<std::int64_t>(1, pages_.bytes() / each) : 1;
}

void* Buffers::in(std::int64_t operation) const {
  return pages_.data() + operation % slots_ * in_stride_;
}

void* Buffers::out(std::int64_t operation) const {
  return pages_.data() + slots_ * in_stride_ + operation % slots_ * out_stride_;
}

double Buffers::huge_share() const {
  const auto huge = pages_.huge_bytes();
  if (!huge || pages_.bytes() == 0) return 0;
  return std::min(1.0, static_cast<double>(*huge) / static_cast<double>(pages_.bytes()));
}

}  // namespace mb
