// One exception for whatever a user or a machine can get wrong, and the two calls that make it.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace mb {

// The message names the subject, the value and what would do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& text, std::int64_t needed, std::int64_t there)
      : Error(text), needed_bytes(needed), free_bytes(there) {}
  std::int64_t needed_bytes, free_bytes;
};

template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Throws Error(cat(message...)) unless `ok`.
template <class... Parts>
void require(bool ok, const Parts&... message) {
  if (!ok) throw Error(cat(message...));
}

}  // namespace mb
