// A process's way to the MPI library: errors as Error, and waits that leave the core to others.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "parallel/comm/mpi_library.h"

namespace mb {

// What one waits for decides how long one looks before sleeping, and for how long at most.
enum class Waiting : std::uint8_t {
  member,  // somebody who may come late
  bytes    // a message on its way, which moves only while both sides look
};

struct MpiLink {
  const MpiFunctions* mpi = nullptr;
  bool crowded = false;                    // more ranks on this host than cores
  bool bound = false;                      // to cores that no other rank may run on
  std::int64_t piece_bytes = 1 << 30;      // of the largest message
  std::int64_t native_limit = 2147483647;  // elements in one call of the library
  std::atomic<bool> aborted{false};
  std::string reason;  // set before `aborted`

  // Throws Error with the library's words unless `code` is 0.
  void check(int code, const char* what) const;
  // Until all have happened. An abort ends the process, so that nothing waits for ever.
  void wait(std::span<MpiHandle> requests, Waiting kind) const;
  // The same, without leaving the core.
  void look(std::span<MpiHandle> requests) const;
  // Throws Aborted after an abort.
  void enter() const;

  // Posts as many messages as `bytes` want, and appends their requests to `requests`, a vector.
  template <class Requests>
  void send(const void* data, std::int64_t bytes, int to, int tag, MpiHandle group,
            Requests& requests) const {
    for (std::int64_t at = 0; at < bytes; at += piece_bytes) {
      requests.emplace_back();
      check(mpi->isend(static_cast<const char*>(data) + at, std::min(piece_bytes, bytes - at), to,
                       tag, group, &requests.back()),
            "MPI_Isend");
    }
  }
  template <class Requests>
  void recv(void* data, std::int64_t bytes, int from, int tag, MpiHandle group,
            Requests& requests) const {
    for (std::int64_t at = 0; at < bytes; at += piece_bytes) {
      requests.emplace_back();
      check(mpi->irecv(static_cast<char*>(data) + at, std::min(piece_bytes, bytes - at), from, tag,
                       group, &requests.back()),
            "MPI_Irecv");
    }
  }
};

}  // namespace mb
