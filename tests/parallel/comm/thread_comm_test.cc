#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>
#include <type_traits>

#include "parallel/comm/comm.h"
#include "parallel/mesh/mesh.h"
#include "tests/support/error.h"
#include "workloads/base/half.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

std::vector<int> first_ranks(int n) {
  std::vector<int> ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Runs `body(rank)` on a thread per rank.
void on_ranks(int n, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back(body, rank);
  for (auto& thread : threads) thread.join();
}

// Runs `body(comm)` on all members of one group of `n` in a world of its own.
void in_group(int n, const std::function<void(Comm&)>& body, Delays delays = {}) {
  ThreadWorld world(n, delays);
  on_ranks(n, [&](int rank) { body(*world.comm("g", first_ranks(n), rank)); });
}

// Contributions of very different sizes, so that another order of additions shows in the bits.
template <class T>
std::vector<T> input(int member, std::int64_t count) {
  std::vector<T> values(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = random_normal(7, member, i);
    values[i] = static_cast<T>(i % 3 == 0 ? value * 1e6 : value);
  }
  return values;
}

template <class T>
std::vector<T> serial_reduce(int members, std::int64_t count, ReduceOp op) {
  std::vector<T> result = input<T>(0, count);
  for (int member = 1; member < members; ++member) {
    const std::vector<T> next = input<T>(member, count);
    for (std::int64_t i = 0; i < count; ++i) {
      result[i] = op == ReduceOp::sum ? result[i] + next[i] : std::max(result[i], next[i]);
    }
  }
  return result;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || !std::memcmp(&a[0], &b[0], a.size() * sizeof(T)));
}

// A pause that differs from call to call: nothing, a yield, or some work.
void dawdle(int member, int call) {
  const std::uint64_t draw = random_bits(3, member, call);
  if (draw % 4 == 0) std::this_thread::yield();
  volatile double sink = 0;
  for (std::uint64_t i = 0; draw % 4 == 1 && i < draw % 5000; ++i) sink = sink + 1;
}

template <class T>
void expect_serial_bits(int members, DType type, bool with_delays) {
  const std::vector<std::int64_t> counts = {0, 1, members - 1, members, members + 1, 1000, 100003};
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
    std::vector<std::vector<T>> expected;
    for (auto count : counts) expected.push_back(serial_reduce<T>(members, count, op));
    in_group(members, [&](Comm& comm) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        for (std::size_t c = 0; c < counts.size(); ++c) {
          std::vector<T> data = input<T>(comm.index(), counts[c]);
          if (with_delays) dawdle(comm.index(), static_cast<int>(repeat * counts.size() + c));
          comm.all_reduce(data.data(), counts[c], type, op);
          EXPECT_TRUE(same_bits(data, expected[c]))
              << "member " << comm.index() << " of " << members << ", count " << counts[c];
        }
      }
    });
  }
}

class AllReduce : public testing::TestWithParam<int> {};

TEST_P(AllReduce, HasTheBitsOfTheSerialReductionOnEveryMember) {
  expect_serial_bits<float>(GetParam(), DType::fp32, false);
  expect_serial_bits<double>(GetParam(), DType::fp64, false);
}

TEST_P(AllReduce, DoesNotDependOnWhoComesWhen) {
  expect_serial_bits<float>(GetParam(), DType::fp32, true);
}

INSTANTIATE_TEST_SUITE_P(Members, AllReduce, testing::Values(1, 2, 3, 4, 5, 8));

TEST(AllReduceMax, IsNanWhereAnyMemberHasNan) {
  in_group(3, [](Comm& comm) {
    for (int bad = 0; bad < 3; ++bad) {
      float x = comm.index() == bad ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
      comm.all_reduce(&x, 1, DType::fp32, ReduceOp::max);
      EXPECT_TRUE(std::isnan(x));
    }
  });
}

TEST(AllReduceSum, TakesBuffersThatStartAnywhere) {
  in_group(3, [](Comm& comm) {
    std::vector<float> data(5000 + comm.index(), 1.0f);
    comm.all_reduce(data.data() + comm.index(), 5000, DType::fp32, ReduceOp::sum);
    EXPECT_EQ(std::accumulate(data.begin(), data.end(), 0.0), 15000.0 + comm.index());
  });
}

TEST(AllReduceSum, OfManyCallsMayBeSmallAndLargeInTurn) {
  in_group(4, [](Comm& comm) {
    std::vector<double> data(3000);
    for (int call = 0; call < 500; ++call) {
      const std::int64_t count = call % 3 == 0 ? 3000 : call % 7;
      std::fill(data.begin(), data.end(), call + comm.index());
      comm.all_reduce(data.data(), count, DType::fp64, ReduceOp::sum);
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(data[i], 4 * call + 6);
      if (call % 5 == 0) comm.barrier();
    }
  });
}

TEST(AllReduceSum, RunsInAllRowsAndColumnsOfAMeshAtOnce) {
  constexpr int ranks = 8, axes = 3;  // rank = 4 x + 2 y + z, a group of two along each axis
  ThreadWorld world(ranks);
  on_ranks(ranks * axes, [&](int thread) {
    const int rank = thread / axes, bit = 1 << thread % axes;
    const std::vector<int> members = {rank & ~bit, rank | bit};
    const auto comm = world.comm(cat("axis", thread % axes), members, rank);
    EXPECT_EQ(comm->size(), 2);
    EXPECT_EQ(members[comm->index()], rank);
    for (int call = 0; call < 200; ++call) {
      std::vector<float> data(call % 2 == 0 ? 10 : 2000, static_cast<float>(rank + call));
      comm->all_reduce(data.data(), static_cast<std::int64_t>(data.size()), DType::fp32,
                       ReduceOp::sum);
      for (float x : data) ASSERT_EQ(x, members[0] + members[1] + 2 * call);
    }
  });
}

TEST(AllReduceSum, KeepsGroupsOfOneNameOrOneMemberListApart) {
  ThreadWorld world(2);
  on_ranks(4, [&](int thread) {
    const std::string name = thread < 2 ? "a" : "b";
    const auto comm = world.comm(name, {0, 1}, thread % 2);
    float x = thread < 2 ? 1.0f : 10.0f;
    comm->all_reduce(&x, 1, DType::fp32, ReduceOp::sum);
    EXPECT_EQ(x, thread < 2 ? 2.0f : 20.0f);
  });
}

TEST(AllReduceMismatch, IsToldToEveryMemberWithTheTwoRanksAndValues) {
  ThreadWorld world(8);
  on_ranks(3, [&](int index) {
    const auto comm = world.comm("dp", {5, 3, 7}, std::vector<int>{5, 3, 7}[index]);
    std::vector<double> data(5000, 1.0);
    EXPECT_EQ(message_of([&] {
                comm->all_reduce(data.data(), index == 1 ? 4000 : 5, DType::fp32, ReduceOp::sum);
              }),
              "group dp: all_reduce of 5 fp32 sum on rank 5 meets all_reduce of 4000 fp32 sum on "
              "rank 3");
    EXPECT_EQ(message_of([&] {
                comm->all_reduce(data.data(), 5, index == 2 ? DType::fp64 : DType::fp32,
                                 ReduceOp::max);
              }),
              "group dp: all_reduce of 5 fp32 max on rank 5 meets all_reduce of 5 fp64 max on "
              "rank 7");
    EXPECT_EQ(message_of([&] {
                if (index == 0) return comm->barrier();
                comm->all_reduce(data.data(), 1, DType::fp32, ReduceOp::sum);
              }),
              "group dp: barrier on rank 5 meets all_reduce of 1 fp32 sum on rank 3");
    EXPECT_EQ(data, std::vector<double>(5000, 1.0));
  });
}

// --- All collectives, all types ---

template <class T>
constexpr DType type_of() {
  if constexpr (std::is_same_v<T, float>) return DType::fp32;
  if constexpr (std::is_same_v<T, double>) return DType::fp64;
  if constexpr (std::is_same_v<T, Bf16>) return DType::bf16;
  if constexpr (std::is_same_v<T, Fp16>) return DType::fp16;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::int32;
}

// What a 16-bit type is summed in.
template <class T>
using Sums = std::conditional_t<sizeof(T) == 2, float, T>;

// Element `i` of what `member` brings to call `salt`, from small to large.
template <class T>
T draw(int salt, int member, std::int64_t i) {
  const double value = (random_uniform(salt, member, i) - 0.5) * (i % 3 == 0 ? 1000 : 1);
  if constexpr (std::is_same_v<T, std::int32_t>) return static_cast<T>(value * 1e4);
  return static_cast<T>(static_cast<Sums<T>>(value));
}

template <class T>
T serial(int members, int salt, std::int64_t i, ReduceOp op) {
  auto result = static_cast<Sums<T>>(draw<T>(salt, 0, i));
  for (int member = 1; member < members; ++member) {
    const auto next = static_cast<Sums<T>>(draw<T>(salt, member, i));
    result = op == ReduceOp::sum ? result + next : std::max(result, next);
  }
  return static_cast<T>(result);
}

// Elements with a fence on both sides.
template <class T>
class Fenced {
 public:
  explicit Fenced(std::int64_t count) : count_(count), bytes_(count * sizeof(T) + 2 * fence) {
    std::memset(bytes_.data(), mark, bytes_.size());
  }
  ~Fenced() {
    const auto whole = [](auto from, auto to) {
      return std::all_of(from, to, [](unsigned char byte) { return byte == mark; });
    };
    EXPECT_TRUE(whole(bytes_.begin(), bytes_.begin() + fence)) << "written before the buffer";
    EXPECT_TRUE(whole(bytes_.end() - fence, bytes_.end())) << "written behind the buffer";
  }
  T* data() { return reinterpret_cast<T*>(bytes_.data() + fence); }
  template <class Value>
  void fill(Value value) {
    for (std::int64_t i = 0; i < count_; ++i) data()[i] = value(i);
  }
  void spoil() { std::memset(data(), 0x55, count_ * sizeof(T)); }
  template <class Value>
  void expect(const char* what, Value value) {
    for (std::int64_t i = 0; i < count_; ++i) {
      const T wanted = value(i);
      if (std::memcmp(data() + i, &wanted, sizeof(T)) == 0) continue;
      ADD_FAILURE() << what << ": element " << i << " of " << count_ << " of "
                    << name_of(type_of<T>());
      return;
    }
  }

 private:
  static constexpr std::int64_t fence = 64;
  static constexpr unsigned char mark = 0xa5;
  std::int64_t count_;
  std::vector<unsigned char> bytes_;
};

// Elements from one member to another in an all_to_all_v: none, a few, or up to `most`.
std::int64_t part_size(int salt, int sender, int receiver, std::int64_t most) {
  const std::uint64_t bits = random_bits(salt, sender, receiver);
  return bits % 3 == 0 ? 0 : static_cast<std::int64_t>(bits / 3 % (most + 1));
}

// One call of a kind that checks its result on this member. Buffers are spoilt or die as soon as
// the call is over.
template <class T>
struct Exercise {
  Comm& comm;
  std::int64_t count;
  int salt;
  const int n = comm.size(), me = comm.index();
  static constexpr DType type = type_of<T>();

  auto mine() const {
    return [this](std::int64_t i) { return draw<T>(salt, me, i); };
  }
  auto reduced(ReduceOp op, std::int64_t first = 0) const {
    return [=, this](std::int64_t i) { return serial<T>(n, salt, first + i, op); };
  }

  void all_reduce(ReduceOp op) {
    Fenced<T> data(count);
    data.fill(mine());
    comm.all_reduce(data.data(), count, type, op);
    data.expect("all_reduce", reduced(op));
    data.spoil();
  }

  void all_gather() {
    const auto gathered = [this](std::int64_t i) {
      return draw<T>(salt, static_cast<int>(i / count), i % count);
    };
    Fenced<T> from(count), to(n * count), whole(n * count);
    from.fill(mine());
    comm.all_gather(from.data(), to.data(), count, type);
    from.spoil();
    to.expect("all_gather", gathered);
    for (std::int64_t i = 0; i < count; ++i) whole.data()[me * count + i] = draw<T>(salt, me, i);
    comm.all_gather(whole.data() + me * count, whole.data(), count, type);
    whole.expect("all_gather in place", gathered);
    whole.spoil();
  }

  void reduce_scatter(ReduceOp op) {
    Fenced<T> from(n * count), to(count);
    from.fill(mine());
    comm.reduce_scatter(from.data(), to.data(), count, type, op);
    from.expect("input of reduce_scatter", mine());
    from.spoil();
    to.expect("reduce_scatter", reduced(op, me * count));
    from.fill(mine());
    comm.reduce_scatter(from.data(), from.data() + me * count, count, type, op);
    from.expect("reduce_scatter in place", [&](std::int64_t i) {
      return i / count == me ? serial<T>(n, salt, i, op) : draw<T>(salt, me, i);
    });
    from.spoil();
  }

  void all_to_all() {
    Fenced<T> from(n * count), to(n * count);
    from.fill(mine());
    comm.all_to_all(from.data(), to.data(), count, type);
    from.spoil();
    to.expect("all_to_all", [&](std::int64_t i) {
      return draw<T>(salt, static_cast<int>(i / count), me * count + i % count);
    });
  }

  // Element i of the part from s to r is that of draw(salt + r, s, i).
  void all_to_all_v() {
    std::vector<std::int64_t> sent, wanted;
    for (int k = 0; k < n; ++k) {
      sent.push_back(part_size(salt, me, k, count));
      wanted.push_back(part_size(salt, k, me, count));
    }
    Fenced<T> from(std::accumulate(sent.begin(), sent.end(), std::int64_t{0}));
    Fenced<T> to(std::accumulate(wanted.begin(), wanted.end(), std::int64_t{0}));
    std::vector<T> expected;
    T* at = from.data();
    for (int k = 0; k < n; ++k) {
      for (std::int64_t i = 0; i < sent[k]; ++i) *at++ = draw<T>(salt + k, me, i);
      for (std::int64_t i = 0; i < wanted[k]; ++i) expected.push_back(draw<T>(salt + me, k, i));
    }
    comm.all_to_all_v(from.data(), sent, to.data(), wanted, type);
    from.spoil();
    std::fill(sent.begin(), sent.end(), -1);
    to.expect("all_to_all_v", [&](std::int64_t i) { return expected[i]; });
  }

  void shift() {
    Fenced<T> from(count), to(count);
    from.fill(mine());
    comm.shift(from.data(), to.data(), count, type);
    from.spoil();
    to.expect("shift", [&](std::int64_t i) { return draw<T>(salt, (me + n - 1) % n, i); });
  }

  void broadcast() {
    const int root = salt % n;
    Fenced<T> data(count);
    if (me == root) data.fill(mine());
    comm.broadcast(data.data(), count, type, root);
    data.expect("broadcast", [&](std::int64_t i) { return draw<T>(salt, root, i); });
    data.spoil();
  }

  void all_kinds() {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      all_reduce(op);
      reduce_scatter(op);
    }
    all_gather();
    all_to_all();
    all_to_all_v();
    shift();
    broadcast();
  }
};

void exercise(Comm& comm, std::int64_t count, int salt) {
  Exercise<float>{comm, count, salt}.all_kinds();
  Exercise<double>{comm, count, salt + 10}.all_kinds();
  Exercise<Bf16>{comm, count, salt + 20}.all_kinds();
  Exercise<Fp16>{comm, count, salt + 30}.all_kinds();
  Exercise<std::int32_t>{comm, count, salt + 40}.all_kinds();
}

class EveryCollective : public testing::TestWithParam<int> {};

// Below, around and above the size up to which data is staged (2 KiB), for each type.
TEST_P(EveryCollective, HasTheBitsOfASerialOneWhateverTypeAndSize) {
  in_group(GetParam(), [](Comm& comm) {
    int salt = 0;
    for (const int count : {0, 1, 7, 256, 257, 512, 513, 1024, 1025, 5001})
      exercise(comm, count, salt += 100);
  });
}

TEST_P(EveryCollective, DoesNotDependOnDelays) {
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    in_group(GetParam(),
             [](Comm& comm) {
               for (int repeat = 0; repeat < 4; ++repeat) {
                 exercise(comm, 3, repeat);
                 exercise(comm, 1025, repeat);
               }
             },
             {.seed = seed, .most_us = 60});
  }
}

INSTANTIATE_TEST_SUITE_P(Members, EveryCollective, testing::Values(1, 2, 3, 4, 5, 8));

// The same buffers over and over: a member that is late must not find the next call's data.
TEST(EveryCollective, LetsBuffersBeUsedAgainAtOnce) {
  constexpr int n = 4;
  for (const int count : {5, 2000}) {
    in_group(n,
             [count](Comm& comm) {
               const int me = comm.index();
               std::vector<std::int32_t> a(n * count), b(n * count);
               for (int call = 0; call < 60; ++call) {
                 std::fill(a.begin(), a.end(), call + 1000 * me);
                 comm.shift(a.data(), b.data(), count, DType::int32);
                 ASSERT_EQ(b[count - 1], call + 1000 * ((me + n - 1) % n));
                 comm.all_to_all(a.data(), b.data(), count, DType::int32);
                 for (int k = 0; k < n; ++k) ASSERT_EQ(b[k * count], call + 1000 * k);
                 comm.reduce_scatter(a.data(), a.data() + me * count, count, DType::int32,
                                     ReduceOp::sum);
                 ASSERT_EQ(a[me * count + count - 1], n * call + 6000);
                 comm.all_gather(a.data() + me * count, a.data(), count, DType::int32);
                 for (int k = 0; k < n; ++k) ASSERT_EQ(a[k * count], n * call + 6000);
                 comm.broadcast(b.data(), count, DType::int32, call % n);
                 comm.all_reduce(a.data(), n * count, DType::int32, ReduceOp::max);
                 ASSERT_EQ(a.back(), n * call + 6000);
               }
             },
             {.seed = 5, .most_us = 30});
  }
}

TEST(EveryCollective, RunsInGroupsThatAreCutIntoParts) {
  const Mesh mesh = Mesh::parse("dp2.tp4");
  Group pairs = group_of(Axis::tp);
  pairs.part = 2;
  ThreadWorld world(mesh.world());
  on_ranks(mesh.world(), [&](int rank) {
    const auto pair = world.comm(name_of(pairs), mesh.members(pairs, rank), rank);
    const auto all = world.comm("tp", mesh.members(group_of(Axis::tp), rank), rank);
    EXPECT_EQ(pair->size(), 2);
    EXPECT_EQ(pair->index(), mesh.index_in(pairs, rank));
    for (const int count : {4, 3000}) {
      exercise(*pair, count, rank / 2);
      exercise(*all, count, rank / 4);
    }
  });
}

TEST(EveryCollective, CountsItsFullVector) {
  using Kind = std::function<void(Comm&, float*, float*)>;
  const auto carried = [](int n, const Kind& call) {
    CommCount count;
    in_group(n, [&](Comm& comm) {
      std::vector<float> a(60), b(60);
      call(comm, a.data(), b.data());
      if (comm.index() == 0) count = comm.carried();
    });
    return std::array{count.calls, count.elements, count.bytes};
  };
  constexpr DType type = DType::fp32;
  using Count = std::array<std::int64_t, 3>;
  for (const int n : {1, 3}) {
    const Count whole = {1, 10 * n, 40 * n}, one = {1, 10, 40};
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float*) { c.all_reduce(a, 10, type, {}); }), one);
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float* b) { c.all_gather(a, b, 10, type); }), whole);
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float* b) { c.reduce_scatter(a, b, 10, type, {}); }),
              whole);
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float* b) { c.all_to_all(a, b, 10, type); }), whole);
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float* b) { c.shift(a, b, 10, type); }), one);
    EXPECT_EQ(carried(n, [](Comm& c, float* a, float*) { c.broadcast(a, 10, type, 0); }), one);
  }
  EXPECT_EQ(carried(2,
                    [](Comm& c, float* a, float* b) {
                      const std::vector<std::int64_t> first = {1, 4}, second = {2, 8};
                      const std::vector<std::int64_t> from_first = {1, 2}, from_second = {4, 8};
                      c.index() == 0 ? c.all_to_all_v(a, first, b, from_first, type)
                                     : c.all_to_all_v(a, second, b, from_second, type);
                    }),
            (Count{1, 5, 20}));
}

TEST(EveryCollective, SumsOfInt32WrapAround) {
  in_group(3, [](Comm& comm) {
    std::int32_t x = std::numeric_limits<std::int32_t>::max();
    comm.all_reduce(&x, 1, DType::int32, ReduceOp::sum);
    EXPECT_EQ(x, std::numeric_limits<std::int32_t>::max() - 2);  // 3 (2^31 - 1) - 2^32
  });
}

// A running sum in bf16 would stick at 256.
TEST(EveryCollective, SumsOf16BitTypesAreRoundedOnce) {
  in_group(5, [](Comm& comm) {
    Bf16 x(comm.index() == 0 ? 256.0f : 1.0f);
    comm.all_reduce(&x, 1, DType::bf16, ReduceOp::sum);
    EXPECT_EQ(static_cast<float>(x), 260.0f);
  });
}

// Runs `call` on ranks 5, 3 and 7 and returns what each was told.
std::vector<std::string> told(const std::function<void(Comm&)>& call) {
  ThreadWorld world(8);
  std::vector<std::string> messages(3);
  on_ranks(3, [&](int index) {
    const auto comm = world.comm("dp", {5, 3, 7}, std::vector<int>{5, 3, 7}[index]);
    messages[index] = message_of([&] { call(*comm); });
    std::int32_t one = 1;  // the group can still be used
    comm->all_reduce(&one, 1, DType::int32, ReduceOp::sum);
    EXPECT_EQ(one, 3);
  });
  return messages;
}

TEST(Mismatch, IsToldToEveryMemberWithWhatTwoOfThemCalled) {
  const auto all = [](const std::string& message) {
    return std::vector<std::string>(3, "group dp: " + message);
  };
  std::vector<std::vector<double>> buffers(6, std::vector<double>(6000));
  const auto a = [&](Comm& c) { return buffers[2 * c.index()].data(); };
  const auto b = [&](Comm& c) { return buffers[2 * c.index() + 1].data(); };
  const auto fp32 = DType::fp32;
  EXPECT_EQ(told([&](Comm& c) {
              c.index() == 1 ? c.shift(a(c), b(c), 4, fp32) : c.all_gather(a(c), b(c), 4, fp32);
            }),
            all("all_gather of 4 fp32 each on rank 5 meets shift of 4 fp32 on rank 3"));
  EXPECT_EQ(told([&](Comm& c) { c.all_gather(a(c), b(c), c.index() == 2 ? 1500 : 4, fp32); }),
            all("all_gather of 4 fp32 each on rank 5 meets all_gather of 1500 fp32 each on rank "
                "7"));
  EXPECT_EQ(told([&](Comm& c) {
              c.reduce_scatter(a(c), b(c), 4, fp32, c.index() == 1 ? ReduceOp::max : ReduceOp::sum);
            }),
            all("reduce_scatter of 4 fp32 each sum on rank 5 meets reduce_scatter of 4 fp32 each "
                "max on rank 3"));
  EXPECT_EQ(
      told([&](Comm& c) { c.all_to_all(a(c), b(c), 4, c.index() == 1 ? DType::bf16 : fp32); }),
      all("all_to_all of 4 fp32 each on rank 5 meets all_to_all of 4 bf16 each on rank 3"));
  EXPECT_EQ(told([&](Comm& c) { c.shift(a(c), b(c), c.index() == 1 ? 5 : 4, fp32); }),
            all("shift of 4 fp32 on rank 5 meets shift of 5 fp32 on rank 3"));
  EXPECT_EQ(told([&](Comm& c) { c.broadcast(a(c), 4, fp32, c.index() == 0 ? 0 : 1); }),
            all("broadcast of 4 fp32 from member 0 on rank 5 meets broadcast of 4 fp32 from member "
                "1 on rank 3"));
  EXPECT_EQ(told([&](Comm& c) {
              const std::vector<std::int64_t> counts = {1, 1, 1};
              c.all_to_all_v(a(c), counts, b(c), counts, c.index() == 1 ? DType::fp64 : fp32);
            }),
            all("all_to_all_v of fp32 on rank 5 meets all_to_all_v of fp64 on rank 3"));
}

TEST(Mismatch, OfOnePartOfAnAllToAllVIsToldToItsTwoMembers) {
  const std::string message =
      "group dp: all_to_all_v sends 3 elements from rank 3 to rank 7, which wants 4";
  EXPECT_EQ(told([](Comm& c) {
              std::vector<float> a(20, 1.0f), b(20, 2.0f);
              std::vector<std::int64_t> sent(3, 3), wanted(3, 3);
              if (c.index() == 2) wanted[1] = 4;
              c.all_to_all_v(a.data(), sent, b.data(), wanted, DType::fp32);
            }),
            (std::vector<std::string>{"no Error", message, message}));
}

TEST(Mismatch, OfArgumentsWithTheGroupIsRefused) {
  in_group(1, [](Comm& comm) {
    float x = 0;
    const std::vector<std::int64_t> one = {1}, two = {1, 1}, negative = {-1};
    EXPECT_EQ(message_of([&] { comm.all_gather(&x, &x, -1, DType::fp32); }),
              "all_gather wants a count of 0 or more, not -1");
    EXPECT_EQ(message_of([&] { comm.broadcast(&x, 1, DType::fp32, 1); }),
              "group g: broadcast from member 1 of 1");
    EXPECT_EQ(message_of([&] { comm.all_to_all_v(&x, one, &x, two, DType::fp32); }),
              "group g: all_to_all_v has 2 counts to receive, one for each of 1 members wanted");
    EXPECT_EQ(message_of([&] { comm.all_to_all_v(&x, negative, &x, one, DType::fp32); }),
              "all_to_all_v wants a count of 0 or more, not -1");
  });
}

TEST(Barrier, LetsNobodyPassBeforeAllHaveCome) {
  std::atomic<int> arrived{0};
  in_group(5, [&](Comm& comm) {
    for (int round = 1; round <= 200; ++round) {
      dawdle(comm.index(), round);
      ++arrived;
      comm.barrier();
      EXPECT_GE(arrived, 5 * round);
      comm.barrier();
    }
  });
}

TEST(SendRecv, PingPongKeepsOrderAndSizes) {
  in_group(2, [](Comm& comm) {
    std::vector<int> data(4000);
    for (int round = 0; round < 500; ++round) {
      const std::int64_t bytes = (round * 37 % 4000) * 4;
      if (comm.index() == 0) {
        std::iota(data.begin(), data.end(), round);
        comm.send(data.data(), bytes, 1);
        comm.recv(data.data(), bytes, 1);
        for (int i = 0; i < bytes / 4; ++i) ASSERT_EQ(data[i], 2 * (round + i));
      } else {
        comm.recv(data.data(), bytes, 0);
        for (int i = 0; i < bytes / 4; ++i) data[i] *= 2;
        comm.send(data.data(), bytes, 0);
      }
    }
  });
}

TEST(SendRecv, ATokenGoesRoundARing) {
  constexpr int n = 5;
  in_group(n, [](Comm& comm) {
    const int next = (comm.index() + 1) % n, previous = (comm.index() + n - 1) % n;
    std::int64_t token = 0;
    for (int round = 0; round < 100; ++round) {
      if (comm.index() > 0) comm.recv(&token, sizeof token, previous);
      ++token;
      comm.send(&token, sizeof token, next);
      if (comm.index() == 0) comm.recv(&token, sizeof token, previous);
    }
    EXPECT_EQ(token, comm.index() == 0 ? 100 * n : 99 * n + comm.index() + 1);
  });
}

TEST(SendRecv, BothDirectionsOfAPairAreIndependent) {
  ThreadWorld world(2);
  const auto left = world.comm("pp", {0, 1}, 0), right = world.comm("pp", {0, 1}, 1);
  on_ranks(4, [&](int thread) {
    Comm& comm = thread % 2 == 0 ? *left : *right;
    for (int message = 0; message < 1000; ++message) {
      int value = message;
      if (thread < 2) comm.send(&value, sizeof value, 1 - comm.index());
      if (thread >= 2) comm.recv(&value, sizeof value, 1 - comm.index());
      ASSERT_EQ(value, message);
    }
  });
}

TEST(SendRecv, SizesThatDifferThrowOnBothSidesAndLeaveThePairUsable) {
  in_group(2, [](Comm& comm) {
    std::vector<char> data(64, static_cast<char>(comm.index()));
    EXPECT_EQ(message_of([&] {
                comm.index() == 0 ? comm.send(&data[0], 64, 1) : comm.recv(&data[0], 8, 0);
              }),
              "group g: send of 64 bytes on rank 0 meets a receive of 8 bytes on rank 1");
    EXPECT_EQ(data[0], comm.index());
    comm.index() == 0 ? comm.send(&data[0], 64, 1) : comm.recv(&data[0], 64, 0);
    EXPECT_EQ(data[63], 0);
  });
}

TEST(SendRecv, RefusesAPeerThatIsNotThere) {
  in_group(2, [](Comm& comm) {
    EXPECT_EQ(message_of([&] { comm.send(nullptr, 0, 2); }),
              cat("group g: member ", comm.index(), " of 2 cannot exchange with 2"));
    EXPECT_NE(message_of([&] { comm.recv(nullptr, 0, comm.index()); }), "no Error");
  });
}

// One member of three waits in `call`; whether the abort comes before, at or after its start is
// left to chance.
void expect_abort_wakes(const std::function<void(Comm&)>& call) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    ThreadWorld world(3);
    std::thread waiter([&] {
      const auto comm = world.comm("g", {0, 1, 2}, 1);
      for (int again = 0; again < 2; ++again) {
        try {
          call(*comm);
          ADD_FAILURE() << "came back";
        } catch (const Aborted& aborted) {
          EXPECT_STREQ(aborted.what(), "rank 2 fell over");
        }
      }
    });
    dawdle(repeat, 0);
    world.abort("rank 2 fell over");
    world.abort("rank 0 fell over");
    waiter.join();
    EXPECT_TRUE(world.aborted());
  }
}

TEST(Abort, WakesAllReduce) {
  for (const int count : {1, 5000}) {
    expect_abort_wakes([count](Comm& comm) {
      std::vector<float> data(count);
      comm.all_reduce(data.data(), count, DType::fp32, ReduceOp::sum);
    });
  }
}

TEST(Abort, WakesEveryCollective) {
  for (const int count : {1, 5000}) {
    using Kind = std::function<void(Comm&, float*, float*)>;
    const std::vector<std::int64_t> parts(3, count);
    const std::vector<Kind> kinds = {
        [&](Comm& c, float* a, float* b) { c.all_gather(a, b, count, DType::fp32); },
        [&](Comm& c, float* a, float* b) {
          c.reduce_scatter(a, b, count, DType::fp32, ReduceOp::sum);
        },
        [&](Comm& c, float* a, float* b) { c.all_to_all(a, b, count, DType::fp32); },
        [&](Comm& c, float* a, float* b) { c.all_to_all_v(a, parts, b, parts, DType::fp32); },
        [&](Comm& c, float* a, float* b) { c.shift(a, b, count, DType::fp32); },
        [&](Comm& c, float* a, float*) { c.broadcast(a, count, DType::fp32, 1); }};
    for (const Kind& kind : kinds) {
      expect_abort_wakes([&](Comm& comm) {
        std::vector<float> a(3 * count), b(3 * count);
        kind(comm, a.data(), b.data());
      });
    }
  }
}

TEST(Abort, WakesBarrier) {
  expect_abort_wakes([](Comm& comm) { comm.barrier(); });
}

TEST(Abort, WakesSend) {
  expect_abort_wakes([](Comm& comm) { comm.send("x", 1, 0); });
}

TEST(Abort, WakesRecv) {
  char x = 0;
  expect_abort_wakes([&x](Comm& comm) { comm.recv(&x, 1, 0); });
}

// Buffers die with the call that throws: a member that reduced into the buffer of one that has left
// would be caught by the sanitizers.
TEST(Abort, NeverLeavesAPeerInABufferThatIsGone) {
  for (int repeat = 0; repeat < 100; ++repeat) {
    ThreadWorld world(4);
    on_ranks(4, [&](int rank) {
      const auto comm = world.comm("g", first_ranks(4), rank);
      const auto pair = world.comm("pair", {rank & ~1, rank | 1}, rank);
      EXPECT_EQ(message_of([&] {
                  for (int call = 0;; ++call) {
                    if (rank == 3 && call == repeat % 10) world.abort("enough");
                    std::vector<float> data(2000 + 4 * call, 1.0f);
                    comm->all_reduce(data.data(), 2000 + 4 * call, DType::fp32, ReduceOp::sum);
                    ASSERT_EQ(data.back(), 4.0f);
                    if (rank % 2 == 0) pair->send(data.data(), 8000, 1);
                    if (rank % 2 == 1) pair->recv(data.data(), 8000, 0);
                  }
                }),
                "enough");
    });
  }
}

// As above for all kinds: whoever comes first into a call may be the one that leaves it early.
TEST(Abort, NeverLeavesAPeerInTheMiddleOfACollective) {
  for (int repeat = 0; repeat < 60; ++repeat) {
    ThreadWorld world(4);
    on_ranks(4, [&](int rank) {
      const auto comm = world.comm("g", first_ranks(4), rank);
      EXPECT_EQ(message_of([&] {
                  for (int call = 0;; ++call) {
                    if (rank == repeat % 4 && call == repeat % 5) world.abort("enough");
                    Exercise<float>{*comm, call % 2 == 0 ? 2000 : 3, call}.all_kinds();
                  }
                }),
                "enough");
    });
  }
}

// The sender scribbles over its buffer as soon as it may.
TEST(Abort, DeliversAMessageToBothSidesOrToNeither) {
  for (int repeat = 0; repeat < 100; ++repeat) {
    ThreadWorld world(3);
    std::atomic<bool> receiving{false};
    std::vector<char> sent(1 << 20, 1), got(1 << 20);
    std::string send_error, recv_error;
    on_ranks(3, [&](int rank) {
      const auto comm = world.comm("g", first_ranks(3), rank);
      if (rank == 0) {
        send_error = message_of([&] { comm->send(sent.data(), 1 << 20, 1); });
        std::fill(sent.begin(), sent.end(), 2);
      }
      if (rank == 1) {
        receiving = true;
        recv_error = message_of([&] { comm->recv(got.data(), 1 << 20, 0); });
      }
      if (rank == 2) {
        while (!receiving) std::this_thread::yield();
        dawdle(repeat, 1);
        world.abort("enough");
      }
    });
    EXPECT_EQ(send_error, recv_error);
    EXPECT_EQ(std::count(got.begin(), got.end(), 1), recv_error == "no Error" ? 1 << 20 : 0);
  }
}

TEST(ThreadWorld, LetsCommsOutliveIt) {
  auto world = std::make_unique<ThreadWorld>(2);
  const auto left = world->comm("g", {0, 1}, 0), right = world->comm("g", {0, 1}, 1);
  world.reset();
  on_ranks(2, [&](int rank) { (rank == 0 ? left : right)->barrier(); });
}

TEST(ThreadWorld, RefusesGroupsThatCannotBe) {
  EXPECT_EQ(message_of([] { ThreadWorld world(1, {.most_us = -1}); }),
            "delays of at most -1 us: give 0 or more");
  EXPECT_EQ(message_of([] { ThreadWorld world(0); }), "a world wants at least one rank, not 0");
  ThreadWorld world(2);
  EXPECT_EQ(message_of([&] { world.comm("g", {0, 2}, 0); }), "group g: rank 2 is not one of 2");
  EXPECT_EQ(message_of([&] {
              world.comm("g", {0, 0}, 0);
            }),
            "group g: rank 0 is a member more than once");
  EXPECT_EQ(message_of([&] { world.comm("g", {0}, 1); }), "group g: rank 1 is not a member");
  const auto comm = world.comm("g", {0, 1}, 0);
  EXPECT_EQ(message_of([&] {
              world.comm("g", {0, 1}, 0);
            }),
            "group g: rank 0 has its Comm already");
}

}  // namespace
}  // namespace mb
