// The machine and what on it decides how fast a program is: hard facts that make two results
// incomparable where they differ, and soft ones that are recorded and warn.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>

namespace mb {

using Fact =
    std::variant<std::monostate, bool, std::int64_t, double, std::string>;  // none: unknown

struct Fingerprint {
  std::string id;  // hash of the hard facts, 16 hex digits
  std::map<std::string, Fact> hard, soft;
};

// `extra_hard`: facts that the caller adds, such as the hash of a simulated machine. Nothing that
// is measured, and no process or user ids.
Fingerprint fingerprint(const std::map<std::string, Fact>& extra_hard = {});

// Variables that change how fast a program runs and are safe to publish: those of OpenMP, oneDNN,
// MKL, MPI, UCX, NCCL, CUDA and our own, without any whose name speaks of a secret.
std::map<std::string, std::string> published_environment();

// FNV-1a, 64 bits, as 16 hex digits: to tell values apart, not to protect them.
std::string hash_text(std::string_view text);

}  // namespace mb
