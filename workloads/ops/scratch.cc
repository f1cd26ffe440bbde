// Per-thread scratch memory.
#include "workloads/ops/scratch.h"

#include <array>
#include <cmath>
#include <memory>
#include <new>
#include <vector>

namespace mb {
namespace {

constexpr std::align_val_t kAlignment{64};

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
};

struct Buffer {
  std::unique_ptr<std::byte, AlignedDelete> memory;
  std::size_t bytes = 0;
};

template <class T>
struct RotaryTable {
  std::int64_t sequence = 0, head_dim = 0;
  float base = 0;
  std::vector<T> values;
};

template <class T>
const T* cached_table(std::int64_t sequence, std::int64_t head_dim, float base) {
  thread_local RotaryTable<T> table;
  if (table.sequence == sequence && table.head_dim == head_dim && table.base == base) {
    return table.values.data();
  }
  const std::int64_t half = head_dim / 2;
  table = {sequence, head_dim, base, std::vector<T>(2 * sequence * half)};
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(static_cast<double>(base), -2.0 * i / head_dim);
    for (std::int64_t position = 0; position < sequence; ++position) {
      const double angle = position * frequency;
      table.values[position * half + i] = static_cast<T>(std::cos(angle));
      table.values[(sequence + position) * half + i] = static_cast<T>(std::sin(angle));
    }
  }
  return table.values.data();
}

}  // namespace

void* thread_scratch(Scratch use, std::size_t bytes) {
  thread_local std::array<Buffer, static_cast<int>(Scratch::count)> buffers;
  Buffer& buffer = buffers[static_cast<int>(use)];
  if (buffer.bytes < bytes || !buffer.memory) {
    buffer.memory.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
    buffer.bytes = bytes;
  }
  return buffer.memory.get();
}

const float* rotary_table(std::int64_t sequence, std::int64_t head_dim, float base, float) {
  return cached_table<float>(sequence, head_dim, base);
}
const double* rotary_table(std::int64_t sequence, std::int64_t head_dim, float base, double) {
  return cached_table<double>(sequence, head_dim, base);
}

}  // namespace mb
