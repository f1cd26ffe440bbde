// The fastest cases of a space that fit: closed forms of all of them, a walk over the slots of
// those that may be among the best, and the Plan in virtual time of what is left.
//
// Each is an estimate of the next with a known error, so that a case is dropped only where it
// would have to err by more to be among the best. Nothing depends on how threads share the work.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/choose/space.h"
#include "parallel/exec/predict.h"

namespace mb {

struct Scored {
  Candidate candidate;
  double form_s = 0, memory_bytes = 0;  // closed forms
  double least_s = 0;                   // form_s less what it may be too much
};
struct Simulated {
  Candidate candidate;
  double form_s = 0, walk_s = 0;
  Prediction prediction;
  bool fits = false;
};

struct SearchLimits {
  int best = 10;   // so many of the fastest are told: no other case beats one of them, within the
                   // errors of estimates
  int front = 10;  // cases on the front of time and memory that are simulated beside them
  // What is left once so many cases are simulated, or so many layers of micro-batches in them
  // (20 s of a core), is counted.
  int most = 400;
  std::int64_t most_layers = 200'000;
  int threads = 2;
};

struct Rejected {
  std::int64_t cases = 0;
  std::string example;  // the reason of the first
};

struct SearchResult {
  std::int64_t cases = 0;                  // legal ones, all of them by closed form
  std::int64_t walked = 0, simulated = 0;  // of these
  std::int64_t left = 0;  // not simulated for limits, though they may be the fastest
  std::map<std::string, Rejected> rejected;  // by rule
  std::int64_t too_large = 0;                // by closed form, beyond its error; part of `cases`
  std::int64_t slower_in_chunks = 0;         // than with fewer tensor_chunks; part of `cases`
  std::vector<Simulated> fastest;            // that fit, fastest first, SearchLimits::best of them
  std::vector<Simulated> front;              // no other simulated one is faster and smaller
  std::vector<Simulated> all;                // simulated ones that fit, fastest first
  std::vector<Scored> fitting;               // all that may fit by closed form, by least_s
  std::optional<Simulated> smallest;         // where nothing fits: the one that needs least
  double forms_s = 0, total_s = 0;           // that the search itself took
};

SearchResult search(const Space& space, const SearchLimits& limits = {});

// What memory of a device a case needs.
double needed_bytes(const Prediction& prediction);
Simulated simulate_candidate(const Space& space, const Candidate& candidate);

// f(i) for all i below n, on so many threads; rethrows what the first failing one throws.
void in_parallel(int threads, std::int64_t n, const std::function<void(std::int64_t)>& f);

}  // namespace mb
