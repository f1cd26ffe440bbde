#include "workloads/base/pages.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "tests/support/error.h"

namespace mb {
namespace {

constexpr std::int64_t mib = 1 << 20;

TEST(Pages, AreZeroedAlignedAndKeepWhatIsWritten) {
  for (const PageSize size : {PageSize::huge, PageSize::small}) {
    for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{4097}, 5 * mib + 3}) {
      const Pages pages(bytes, size);
      EXPECT_EQ(pages.bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages.data()) % (2 * mib), 0u);
      const auto* first = pages.as<unsigned char>();
      EXPECT_TRUE(std::all_of(first, first + bytes, [](unsigned char x) { return x == 0; }));
      pages.as<unsigned char>()[bytes - 1] = 7;
      pages.prefault();
      EXPECT_EQ(first[bytes - 1], 7);
    }
  }
}

TEST(Pages, MoveWithTheirAddress) {
  Pages a(100), b;
  std::byte* const data = a.data();
  b = std::move(a);
  EXPECT_EQ(b.data(), data);
  const Pages c(std::move(b));
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.bytes(), 100);
  EXPECT_EQ(b.bytes(), 0);
}

TEST(Pages, OfNoBytesAreNowhere) {
  const Pages none(0);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(none.huge_bytes(), 0);
  none.prefault();
}

TEST(Pages, ThatCannotBeAreAnError) {
  EXPECT_EQ(message_of([] { Pages(-1); }).substr(0, 32), "memory of -1 bytes: give 0 to 92");
  EXPECT_THROW(Pages{std::numeric_limits<std::int64_t>::max()}, Error);
  EXPECT_EQ(message_of([] { Pages(std::int64_t{1} << 60); }).substr(0, 35),
            "no 1152921504606846976 bytes of mem");
}

TEST(Pages, SmallOnesAreNeverHuge) {
  const Pages pages(8 * mib, PageSize::small);
  pages.prefault();
  EXPECT_EQ(pages.huge_bytes().value_or(0), 0);
}

// Whether the kernel gives huge pages is its choice; that it counts no others is ours.
TEST(Pages, HugeOnesAreCountedByThemselves) {
  const Pages first(4 * mib), neighbour(64 * mib), last(4 * mib);
  neighbour.prefault();
  EXPECT_EQ(first.huge_bytes().value_or(0), 0);
  EXPECT_EQ(last.huge_bytes().value_or(0), 0);
  EXPECT_LE(neighbour.huge_bytes().value_or(0), 64 * mib);
}

TEST(ThreadUsage, CountsTheFaultsOfTheThreadThatTouches) {
  const Pages pages(4 * mib, PageSize::small);
  const auto faults_of = [&](auto work) {
    ThreadUsage used;
    std::thread([&] {
      const ThreadUsage before = thread_usage();
      work();
      used = thread_usage() - before;
    }).join();
    return used.minor_faults + used.major_faults;
  };
  const std::int64_t count = 4 * mib / sysconf(_SC_PAGESIZE);
  EXPECT_GE(faults_of([&] { pages.prefault(); }), count / 16);  // kernels may fault around
  EXPECT_LT(faults_of([&] { pages.prefault(); }), count / 16);
}

}  // namespace
}  // namespace mb
