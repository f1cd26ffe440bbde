// The buffers of one rank, and the pool through which they rotate where caches are to be cold.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/coll/config.h"
#include "workloads/base/pages.h"

namespace mb {

// Of the beginning of every buffer; the first is at a huge page's.
inline constexpr std::int64_t kBufferAlignment = 128;

struct BufferSizes {
  std::int64_t in = 0, out = 0;  // bytes of one operation
};
// Of a member; in place, all is in `out`.
BufferSizes buffer_sizes(const CollCall& call, int member, bool in_place);

// Of the processor, as the system tells; 32 MiB where it does not.
std::int64_t last_level_cache_bytes();
// What the cold buffers of one of `ranks` that share a cache take: together twice the last-level
// cache, and 16 MiB at least, more than a core's own caches.
std::int64_t cold_pool_bytes(int ranks);

class Buffers {
 public:
  // For operations up to `largest`; a pool of `pool_bytes` at least, where that is not 0.
  Buffers(const BufferSizes& largest, std::int64_t pool_bytes, PageSize pages);

  // Room for operations of these sizes. Memory is taken in steps that double, up to what the
  // largest want, and every page touched by this thread.
  void shape(const BufferSizes& sizes);
  // How many operations have buffers of their own, at least one.
  std::int64_t slots() const { return slots_; }
  // Where the first begins, and how many bytes from there operations of these sizes take, and the
  // largest.
  std::byte* data() const { return static_cast<std::byte*>(in(0)); }
  std::int64_t shaped_bytes() const { return slots_ * (in_stride_ + out_stride_); }
  std::int64_t most_bytes() const { return most_bytes_; }
  void* in(std::int64_t operation) const;
  void* out(std::int64_t operation) const;
  double huge_share() const;  // of the bytes, in huge pages; reads the process's mappings

 private:
  std::int64_t most_bytes_, pool_bytes_;
  PageSize page_size_;
  Pages pages_;
  std::int64_t in_stride_ = 0, out_stride_ = 0, slots_ = 1;
};

}  // namespace mb
