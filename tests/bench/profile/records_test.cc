#include "bench/profile/records.h"

#include <gtest/gtest.h>

namespace mb {
namespace {

ActivityRecord work(std::int64_t start, std::int64_t end, std::uint32_t correlation) {
  return {Activity::kernel, start, end, 0, 7, correlation, "same name"};
}

TEST(Records, JoinsUnorderedRecordsAndKeepsGapsOutOfBusyTime) {
  const std::uint64_t id = external_id(3, 0xffffffff);
  const ActivityRecords records{
      {work(50, 60, 0), work(10, 20, 0xffffffff), work(15, 30, 1), work(30, 40, 2)},
      {{2, external_id(4, 0)}, {1, id}, {0, id}, {0xffffffff, id}}};
  const ActivityTimeline joined = join(records, {1, 100});
  ASSERT_EQ(joined.instructions.size(), 2u);
  const InstructionActivity& one = joined.instructions.at(id);
  EXPECT_EQ(one.rank, 3u);
  EXPECT_EQ(one.instruction, 0xffffffffu);
  EXPECT_EQ(one.work, (std::vector<std::size_t>{1, 2, 0}));
  EXPECT_EQ(one.extent.start_ns, 10);
  EXPECT_EQ(one.extent.end_ns, 60);
  EXPECT_EQ(length_ns(one.busy), 30);
  EXPECT_EQ(joined.quality.placed, 4);
}

TEST(Records, CountsEveryRecordThatItCannotPlace) {
  ActivityRecords records{{work(0, 0, 1), work(20, 10, 1), work(5, 15, 1), work(95, 101, 1),
                           work(20, 30, 9), work(20, 30, 2), work(10, 100, 1)},
                          {{1, 1}, {1, 1}, {2, 1}, {2, 5}, {2, 1}}};
  records.dropped = 4;
  const TraceQuality q = join(records, {10, 100}).quality;
  EXPECT_EQ(q.without_time, 2);
  EXPECT_EQ(q.out_of_window, 2);
  EXPECT_EQ(q.uncorrelated, 2);
  EXPECT_EQ(q.placed, 1);
  EXPECT_EQ(q.dropped, 4);
}

TEST(Records, TheHostsSpansAreClippedAndThoseOfSeveralThreadsCountOnce) {
  ActivityRecords records;
  records.host = {{HostActivity::wait, 10, 30},     {HostActivity::wait, 20, 40},
                  {HostActivity::wait, 95, 120},    {HostActivity::stream_wait, 50, 50},
                  {HostActivity::overhead, 60, 70}, {HostActivity::overhead, 0, 0},
                  {HostActivity::wait, 130, 140},   {HostActivity::wait, 80, 70}};
  records.allocations = {{50, 1000}, {5, 1}, {0, 1}};
  const HostTime time = host_time(records, {10, 100});
  EXPECT_EQ(time.waits, 3);
  EXPECT_EQ(time.waiting_ns, 35);
  EXPECT_EQ(time.stream_waits, 1);
  EXPECT_EQ(time.overheads, 1);
  EXPECT_EQ(time.overhead_ns, 10);
  EXPECT_EQ(time.allocations, 1);
  EXPECT_EQ(time.allocated_bytes, 1000);
  EXPECT_EQ(time.without_time, 3);
  EXPECT_EQ(time.out_of_window, 2);
}

}  // namespace
}  // namespace mb
