// The buffers of one rank, and the pool through which they rotate where caches are to be cold.
#pragma once

#include <cstdint>

#include "bench/coll/config.h"
#include "workloads/base/pages.h"

namespace mb {

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
  Buffers() = default;
  // Room for operations up to `largest`, `pool_bytes` at least; every page touched by this thread.
  Buffers(const BufferSizes& largest, std::int64_t pool_bytes, PageSize pages);

  // How many operations of these sizes have buffers of their own, at least one.
  void shape(const BufferSizes& sizes);
  std::int64_t slots() const { return slots_; }
  void* in(std::int64_t operation) const;
  void* out(std::int64_t operation) const;
  double huge_share() const;  // of the bytes, in huge pages; reads the process's mappings

 private:
  Pages pages_;
  std::int64_t in_stride_ = 0, out_stride_ = 0, slots_ = 1;
  bool rotates_ = false;
};

}  // namespace mb
