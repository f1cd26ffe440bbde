#include "tests/support/cuda_emulation/heap.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "tests/support/cuda_emulation/state.h"
#include "workloads/base/error.h"

namespace mb::cuda_emulation {
namespace {

constexpr std::size_t kGuard = 256;
constexpr std::size_t kKept = 16 << 20;                     // bytes of freed blocks
constexpr unsigned char kGuardByte = 0xa5, kPoison = 0xff;  // NaN in every floating-point type

struct Block {
  std::unique_ptr<std::byte[]> memory;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int device = 0;
};

struct Heap {
  std::mutex mutex;
  std::map<std::byte*, Block> live;  // by `data`
  std::deque<Block> freed;
  std::size_t freed_bytes = 0;
  std::map<int, Memory> counts;
  std::size_t pinned = 0;
  std::vector<std::string> faults;
};
Heap& heap() {
  static Heap* const heap = new Heap;
  return *heap;
}

bool all_are(const std::byte* data, std::size_t n, unsigned char value) {
  return n == 0 || (*data == std::byte{value} && std::memcmp(data, data + 1, n - 1) == 0);
}

std::string name_of(const Block& block) {
  return cat(block.bytes, " bytes ",
             block.device == kPinned ? "of pinned memory" : cat("on device ", block.device));
}

void check_guards(const Block& block, std::vector<std::string>& faults) {
  if (!all_are(block.data - kGuard, kGuard, kGuardByte))
    faults.push_back("something wrote before the beginning of " + name_of(block));
  if (!all_are(block.data + block.bytes, kGuard, kGuardByte))
    faults.push_back("something wrote past the end of " + name_of(block));
}
void check_freed(const Block& block, std::vector<std::string>& faults) {
  if (!all_are(block.data, block.bytes, kPoison))
    faults.push_back("something wrote to " + name_of(block) + " after they were freed");
}

// The live block that holds `data`, or null; the heap is locked.
const Block* block_of(const void* data) {
  auto* const at = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  auto found = heap().live.upper_bound(at);
  if (found == heap().live.begin()) return nullptr;
  const Block& block = (--found)->second;
  return at < block.data + block.bytes ? &block : nullptr;
}

bool was_freed(const void* data) {
  return std::any_of(heap().freed.begin(), heap().freed.end(), [&](const Block& block) {
    return data >= block.data && data < block.data + block.bytes;
  });
}

thread_local int device_of_thread = 0;

}  // namespace

int current_device() { return device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }

void* take(int device, std::size_t bytes) {
  const std::lock_guard lock(heap().mutex);
  Memory& count = heap().counts[device];
  if (device != kPinned) {
    if (bytes > settings().memory_bytes - count.live_bytes) return nullptr;
    ++count.allocations;
    count.live_bytes += bytes;
    count.peak_bytes = std::max(count.peak_bytes, count.live_bytes);
  } else {
    heap().pinned += bytes;
  }
  Block block{std::make_unique<std::byte[]>(bytes + 3 * kGuard), nullptr, bytes, device};
  const auto start = reinterpret_cast<std::uintptr_t>(block.memory.get());
  block.data = reinterpret_cast<std::byte*>((start + kGuard - 1) / kGuard * kGuard + kGuard);
  std::memset(block.data - kGuard, kGuardByte, kGuard);
  std::memset(block.data, kPoison, bytes);
  std::memset(block.data + bytes, kGuardByte, kGuard);
  std::byte* const data = block.data;
  heap().live.emplace(data, std::move(block));
  return data;
}

bool give(void* data) {
  const std::lock_guard lock(heap().mutex);
  const auto found = heap().live.find(static_cast<std::byte*>(data));
  if (found == heap().live.end()) return false;
  Block block = std::move(found->second);
  heap().live.erase(found);
  check_guards(block, heap().faults);
  std::memset(block.data, kPoison, block.bytes);
  (block.device == kPinned ? heap().pinned : heap().counts[block.device].live_bytes) -= block.bytes;
  heap().freed_bytes += block.bytes;
  heap().freed.push_back(std::move(block));
  while (heap().freed_bytes > kKept) {
    check_freed(heap().freed.front(), heap().faults);
    heap().freed_bytes -= heap().freed.front().bytes;
    heap().freed.pop_front();
  }
  return true;
}

std::size_t free_bytes(int device) {
  const std::lock_guard lock(heap().mutex);
  return settings().memory_bytes - heap().counts[device].live_bytes;
}

Memory memory(int device) {
  const std::lock_guard lock(heap().mutex);
  Memory count = heap().counts[device];
  count.pinned_bytes = heap().pinned;
  return count;
}

std::vector<std::string> heap_faults() {
  const std::lock_guard lock(heap().mutex);
  std::vector<std::string> faults = heap().faults;
  for (const auto& [data, block] : heap().live) check_guards(block, faults);
  for (const Block& block : heap().freed) check_freed(block, faults);
  return faults;
}

void clear_heap() {
  const std::lock_guard lock(heap().mutex);
  heap().live.clear();
  heap().freed.clear();
  heap().freed_bytes = heap().pinned = 0;
  heap().counts.clear();
  heap().faults.clear();
}

bool find_range(const void* data, Range& range) {
  const std::lock_guard lock(heap().mutex);
  const Block* block = block_of(data);
  if (block) range = {block->data, block->bytes, block->device};
  return block != nullptr;
}

bool check_access(int device, const void* data, std::size_t bytes, const std::string& what) {
  if (bytes == 0) return true;
  std::string wrong;
  {
    const std::lock_guard lock(heap().mutex);
    const Block* block = block_of(data);
    if (!block) {
      wrong = was_freed(data) ? "memory that was freed" : "memory that is no device's";
    } else if (block->device != kPinned && block->device != device) {
      wrong = cat("memory of device ", block->device);
    } else if (const auto at = static_cast<const std::byte*>(data) - block->data;
               at + bytes > block->bytes) {
      wrong = cat("bytes ", at, " to ", at + bytes, " of an allocation of ", block->bytes);
    } else {
      return true;
    }
  }
  fault(device, cudaErrorIllegalAddress, cat(what, " on device ", device, " touches ", wrong));
  return false;
}

}  // namespace mb::cuda_emulation
