// Pages by mmap, their size by madvise.
#include "workloads/base/pages.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "workloads/base/error.h"

namespace mb {
namespace {

constexpr std::int64_t small_page = 4096, huge_page = 2 << 20;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::string_view name_of(PageSize size) { return size == PageSize::huge ? "huge" : "small"; }

Pages::Pages(std::int64_t bytes, PageSize size) : bytes_(bytes) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() - 4 * huge_page;
  require(bytes >= 0 && bytes <= most, "memory of ", bytes, " bytes: give 0 to ", most);
  if (bytes == 0) return;
  // The whole of a huge page even where less is wanted, as the kernel gives no other.
  const std::int64_t used = round_up(bytes, size == PageSize::huge ? huge_page : small_page);
  reserved_bytes_ = used + huge_page + 2 * small_page;
  void* reserved =
      mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(reserved != MAP_FAILED, "no ", bytes, " bytes of memory: ", std::strerror(errno));
  reserved_ = reserved;
  const auto first = reinterpret_cast<std::uintptr_t>(reserved) + small_page;
  data_ = reinterpret_cast<std::byte*>(round_up(static_cast<std::int64_t>(first), huge_page));
  if (mprotect(data_, used, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    munmap(reserved_, reserved_bytes_);
    throw Error(cat("no ", bytes, " bytes of memory: ", std::strerror(error)));
  }
  // A kernel without huge pages refuses, and gives small ones: huge_bytes() shows it.
  madvise(data_, used, size == PageSize::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      reserved_(std::exchange(other.reserved_, nullptr)),
      reserved_bytes_(std::exchange(other.reserved_bytes_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(reserved_, other.reserved_);
  std::swap(reserved_bytes_, other.reserved_bytes_);
  return *this;
}

Pages::~Pages() {
  if (reserved_) munmap(reserved_, reserved_bytes_);
}

void Pages::prefault() const {
  for (std::int64_t at = 0; at < bytes_; at += small_page) {
    volatile auto* byte = as<unsigned char>() + at;
    *byte = *byte;
  }
}

std::optional<std::int64_t> Pages::huge_bytes() const {
  if (bytes_ == 0) return 0;
  std::ifstream smaps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(data_);
  bool mine = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t begin = 0, end = 0;
    std::int64_t kib = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      mine = begin <= wanted && wanted < end;
    } else if (mine && std::sscanf(line.c_str(), "AnonHugePages: %" SCNd64, &kib) == 1) {
      return kib << 10;
    }
  }
  return std::nullopt;
}

ThreadUsage thread_usage() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return {usage.ru_minflt, usage.ru_majflt, usage.ru_nvcsw, usage.ru_nivcsw};
}

double available_bytes() {
  std::ifstream info("/proc/meminfo");
  for (std::string name, unit; info >> name;) {
    double kib = 0;
    if (name == "MemAvailable:" && info >> kib) return 1024 * kib;
    std::getline(info, unit);
  }
  return 0;
}

}  // namespace mb
