// Whether a collective has moved and summed what it should: inputs that depend on position and
// member, exact in every type, and the outputs that follow from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/coll/operation.h"

namespace mb {

// What a member has found so far.
struct Findings {
  std::int64_t checked = 0, wrong = 0;  // elements
  std::int64_t full = 0, sampled = 0;   // operations
  // The first wrong element: operation, index in the output, bits.
  std::int64_t operation = -1, index = -1;
  std::uint64_t got = 0, expected = 0;
};
// "0x3f800000 (1)", as an element of the type.
std::string element_text(std::uint64_t bits, DType type);

// Inputs and expected outputs of one member of one call. Element i of member k's input is
// table[(i + stride * k) % period]; the period is a prime, so that no two parts of a vector are
// alike. Values are so small, or powers of two where they are multiplied, that every sum and mean
// is exact in the type, whatever order it is taken in.
class Checker {
 public:
  Checker(const CollCall& call, int member, bool in_place, std::uint64_t seed);

  // Inputs as they should be, outputs as they should not.
  void fill(void* in, void* out) const;
  // The same for a few elements of pseudo-random places, those of an operation in place that all
  // members put back alike; check_some() looks at these.
  void fill_some(std::int64_t operation, void* in, void* out) const;

  void check_all(std::int64_t operation, void* in, void* out);
  void check_some(std::int64_t operation, void* in, void* out);
  const Findings& findings() const { return findings_; }

 private:
  // A run of the output: elements [begin, begin + count) are those of member `source` from `from`
  // on, or where it is -1 those of the reduction.
  struct Segment {
    std::int64_t begin = 0, count = 0;
    int source = -1;
    std::int64_t from = 0;
  };
  std::vector<Segment> segments() const;
  const std::byte* expected(const Segment& segment, std::int64_t i) const;
  void copy_run(void* to, const std::vector<std::byte>& table, std::int64_t phase,
                std::int64_t count) const;
  void check_run(std::int64_t operation, const Segment& segment, const std::byte* out);
  void note_wrong(std::int64_t operation, std::int64_t index, const std::byte* got,
                  const std::byte* wanted);
  // Index within a segment of the sample-th place that an operation looks at.
  std::int64_t place(std::int64_t operation, int sample, std::int64_t count) const;
  bool puts_inputs_back() const { return in_place_ && reduces(call_.operation); }

  CollCall call_;
  int member_;
  bool in_place_;
  std::uint64_t seed_;
  int bytes_;                               // of an element
  std::vector<std::byte> table_, reduced_;  // each `period` elements, once more after its end
  std::vector<Segment> segments_;
  Findings findings_;
};

}  // namespace mb
