// Memory in pages of a known size, and what a thread costs the kernel: page faults, switches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mb {

// What is asked of the kernel: transparent huge pages (2 MiB on x86-64), or none of them.
enum class PageSize : std::uint8_t { huge, small };
std::string_view name_of(PageSize size);

// Zeroed memory of its own, aligned to 2 MiB, between pages that nobody can touch. Its pages come
// into being, on the NUMA node of the thread, when a thread first touches them.
class Pages {
 public:
  Pages() = default;  // none
  // `bytes` of 0 or more. Throws Error where the address space does not have them.
  explicit Pages(std::int64_t bytes, PageSize size = PageSize::huge);
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  std::int64_t bytes() const { return bytes_; }

  // Touches every page from the calling thread and keeps what is there; nobody else may be writing.
  void prefault() const;
  // How many of the bytes that are there lie in huge pages just now (AnonHugePages of
  // /proc/self/smaps); whole pages, so that it may be more than bytes(). None where the kernel does
  // not tell. Reads all mappings of the process: not for timed code.
  std::optional<std::int64_t> huge_bytes() const;

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  void* reserved_ = nullptr;  // what was mapped, with the untouchable pages
  std::size_t reserved_bytes_ = 0;
};

// Of the calling thread since it began (getrusage).
struct ThreadUsage {
  std::int64_t minor_faults = 0, major_faults = 0;
  std::int64_t voluntary_switches = 0, involuntary_switches = 0;

  ThreadUsage operator-(const ThreadUsage& before) const {
    return {minor_faults - before.minor_faults, major_faults - before.major_faults,
            voluntary_switches - before.voluntary_switches,
            involuntary_switches - before.involuntary_switches};
  }
  ThreadUsage& operator+=(const ThreadUsage& more) {
    minor_faults += more.minor_faults;
    major_faults += more.major_faults;
    voluntary_switches += more.voluntary_switches;
    involuntary_switches += more.involuntary_switches;
    return *this;
  }
  bool operator==(const ThreadUsage&) const = default;
};
ThreadUsage thread_usage();

// Memory that this machine has left; 0 where it does not say.
double available_bytes();

}  // namespace mb
