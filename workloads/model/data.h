// Where tokens come from: a text file as bytes, a file of token ids, or a synthetic Markov source.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "workloads/ops/launch.h"  // BatchSource

namespace mb {

// A supply of samples; sample i is `sequence + 1` tokens, a function of i (and of the seed) alone.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // Writes sequence + 1 tokens. Thread-safe.
  virtual void sample(std::int64_t index, std::int64_t sequence, std::int32_t* tokens) const = 0;
  // Nats per token that no model can beat on average, where known (the Markov source); below 0
  // where not.
  virtual double entropy_nats() const = 0;
  virtual std::string describe() const = 0;
};

// First-order Markov chain over min(vocabulary, 64) states; its transition rows are drawn from the
// seed, and its entropy rate is computed from the stationary distribution.
std::unique_ptr<TokenSource> make_markov_source(std::int64_t vocabulary, std::uint64_t seed);

// Sample i is the i-th run of `sequence` tokens, and the one after it, of the file in order; past
// the last whole run it starts over. path "*.bin": little-endian uint16 ids if the vocabulary has
// at most 65,536 entries, else uint32; any other file: its bytes. Throws Error if the file is
// missing, empty, shorter than one sequence + 1, or holds a token outside the vocabulary (naming
// its offset), or if `global_batch` sequences are more than it has.
std::unique_ptr<TokenSource> open_token_file(const std::string& path, std::int64_t vocabulary,
                                             std::int64_t sequence, std::int64_t global_batch);

// Cuts the global batch into micro-batches. Sample s * global_batch + d * (global_batch /
// data_size) + m * batch + row goes to step s, data rank d, micro-batch m: the same global batch on
// every mesh. Keeps a reference to `source`. Throws Error unless global_batch is a positive
// multiple of data_size, and from load() if the micro-batch ends past the rank's share.
std::unique_ptr<BatchSource> make_batches(const TokenSource& source, std::int64_t global_batch,
                                          int data_size);

}  // namespace mb
