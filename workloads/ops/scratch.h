// Scratch memory of the calling thread, which grows to the largest request and is reused.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mb {

enum class Scratch : int {
  packed_a,
  packed_b,
  scores,
  d_scores,
  row_sums,
  onednn,
  batch,
  wide_a,
  wide_b,
  wide_c,
  wide_d,
  wide_e,
  wide_f,
  count
};

// At least `bytes` bytes, aligned to 64, not initialised; valid until the thread's next call with
// the same `use`.
void* thread_scratch(Scratch use, std::size_t bytes);

// Cosines, then sines, of position * base^(-2 i / head_dim) for i < head_dim / 2: each [sequence,
// head_dim / 2]. Valid until the thread's next call; the same arguments again cost nothing.
const float* rotary_table(std::int64_t sequence, std::int64_t head_dim, float base, float type);
const double* rotary_table(std::int64_t sequence, std::int64_t head_dim, float base, double type);

}  // namespace mb
