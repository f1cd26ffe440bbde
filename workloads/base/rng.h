// Counter-based random numbers: a value is a function of (seed, stream, index) and nothing else, so
// that every mesh and every device draws the same one for the same global element.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace mb {

// Finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// FNV-1a, to turn a tensor's name into a stream number.
constexpr std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

// What a loop over indices needs to compute only once.
constexpr std::uint64_t random_key(std::uint64_t seed, std::uint64_t stream) {
  return mix64(mix64(seed + 0x9e3779b97f4a7c15ull) ^ stream);
}
constexpr std::uint64_t random_bits(std::uint64_t key, std::uint64_t index) {
  return mix64(key + 0x9e3779b97f4a7c15ull * (index + 1));
}
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return random_bits(random_key(seed, stream), index);
}

// Uniform in [0, 1), 53 bits.
constexpr double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return static_cast<double>(random_bits(seed, stream, index) >> 11) * 0x1.0p-53;
}

// Standard normal by Box-Muller; element `index` uses uniforms 2 * index and 2 * index + 1.
inline double random_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const double u = 1.0 - random_uniform(seed, stream, 2 * index);
  const double v = random_uniform(seed, stream, 2 * index + 1);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
}

}  // namespace mb
