// Stores that pass the caches by, of the widest vectors there are. For sources that are compiled
// once for each instruction set.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mb {
namespace {

// 64 bytes; `to` is aligned to as many. Other threads see them after stream_fence() and what they
// synchronise by.
[[maybe_unused]] inline void stream_64(void* to, const void* from) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX2__)
  auto* const a = static_cast<__m256i*>(to);
  const auto* b = static_cast<const __m256i_u*>(from);
  for (int i = 0; i < 2; ++i) _mm256_stream_si256(a + i, _mm256_loadu_si256(b + i));
#elif defined(__x86_64__)
  auto* const a = static_cast<__m128i*>(to);
  const auto* b = static_cast<const __m128i_u*>(from);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(a + i, _mm_loadu_si128(b + i));
#else
  __builtin_memcpy(to, from, 64);
#endif
}

[[maybe_unused]] inline void stream_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// McCalpin's STREAM. `n` is a multiple of 16, all three are aligned to 64 bytes.
template <bool streaming, class Value>
void stream_lines(float* a, std::int64_t n, Value value) {
  for (std::int64_t i = 0; i < n; i += 16) {
    alignas(64) float line[16];
    for (int k = 0; k < 16; ++k) line[k] = value(i + k);
    streaming ? stream_64(a + i, line) : (void)__builtin_memcpy(a + i, line, sizeof line);
  }
  if (streaming) stream_fence();
}
template <bool streaming>
void triad(float* a, const float* b, const float* c, std::int64_t n) {
  stream_lines<streaming>(a, n, [=](std::int64_t i) { return b[i] + 0.5f * c[i]; });
}
template <bool streaming>
void stream_copy(float* a, const float* b, const float*, std::int64_t n) {
  stream_lines<streaming>(a, n, [=](std::int64_t i) { return b[i]; });
}

}  // namespace
}  // namespace mb
