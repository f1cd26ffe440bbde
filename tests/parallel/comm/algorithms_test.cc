#include "parallel/comm/algorithms.h"

#include <gtest/gtest.h>

#include <cstring>

#include "parallel/comm/reduce.h"
#include "tests/support/error.h"
#include "tests/support/rank_threads.h"

namespace mb {
namespace {

using test::first_ranks;

constexpr std::array kAll = {Algorithm::direct, Algorithm::ring, Algorithm::halving_doubling,
                             Algorithm::tree, Algorithm::two_level};
constexpr std::array kOps = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                             ReduceOp::avg};

// Small whole numbers, so that floating-point sums, products and roundings are exact.
int number(int member, std::int64_t i, ReduceOp op) {
  const auto mixed = static_cast<int>((i * 7 + member * 3) % 5);
  return op == ReduceOp::prod ? 1 + mixed % 2 : mixed - 1;
}

template <class T>
std::vector<T> input(int member, std::int64_t count, ReduceOp op = ReduceOp::sum) {
  std::vector<T> values(count);
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(number(member, i, op));
  return values;
}

// One element after the other, member after member.
template <class T>
std::vector<T> reduced(int members, std::int64_t count, ReduceOp op) {
  std::vector<T> out(count);
  for (std::int64_t i = 0; i < count; ++i) {
    long sum = 0, product = 1, least = 1L << 50, most = -100;
    for (int k = 0; k < members; ++k) {
      const long value = number(k, i, op);
      const long held = std::is_unsigned_v<T> && value < 0 ? 1L << 40 : value;
      sum += value, product *= value, least = std::min(least, held), most = std::max(most, held);
    }
    const long extreme = op == ReduceOp::min ? least : most;
    if (op == ReduceOp::sum) out[i] = static_cast<T>(sum);
    if (op == ReduceOp::prod) out[i] = static_cast<T>(product);
    if (op == ReduceOp::min || op == ReduceOp::max)
      out[i] = extreme == 1L << 40 ? static_cast<T>(-1) : static_cast<T>(extreme);
    if (op != ReduceOp::avg) continue;
    if constexpr (std::is_integral_v<T>) {
      // The sum modulo 2 to the number of bits, then divided towards zero.
      out[i] = static_cast<T>(static_cast<T>(sum) / static_cast<T>(members));
    } else {
      out[i] = T(static_cast<Main<T>>(sum) / static_cast<Main<T>>(members));
    }
  }
  return out;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Nodes of uneven size whose members do not follow each other.
std::vector<int> scattered(int n) {
  std::vector<int> nodes;
  for (int k = 0; k < n; ++k) nodes.push_back(k % 3 == 2 ? 7 : k % 2);
  return nodes;
}

template <class T>
void check_reductions(Comm& comm, std::int64_t count, DType type, ReduceOp op) {
  const int n = comm.size(), me = comm.index(), root = static_cast<int>(count) % n;
  const std::vector<T> expected = reduced<T>(n, count, op);
  std::vector<T> in = input<T>(me, count, op), out(count, static_cast<T>(9));
  comm.all_reduce(in.data(), out.data(), count, type, op);
  EXPECT_TRUE(same(out, expected)) << "all_reduce";
  EXPECT_TRUE(same(in, input<T>(me, count, op))) << "all_reduce changed its input";
  comm.all_reduce(in.data(), count, type, op);
  EXPECT_TRUE(same(in, expected)) << "all_reduce in place";

  in = input<T>(me, count, op);
  out.assign(count, static_cast<T>(9));
  comm.reduce(in.data(), me == root ? out.data() : nullptr, count, type, op, root);
  if (me == root) {
    EXPECT_TRUE(same(out, expected)) << "reduce";
  }
  EXPECT_TRUE(same(in, input<T>(me, count, op))) << "reduce changed its input";

  const std::vector<T> whole = reduced<T>(n, n * count, op);
  const std::vector<T> mine(whole.begin() + me * count, whole.begin() + (me + 1) * count);
  in = input<T>(me, n * count, op);
  comm.reduce_scatter(in.data(), out.data(), count, type, op);
  EXPECT_TRUE(same(out, mine)) << "reduce_scatter";
  EXPECT_TRUE(same(in, input<T>(me, n * count, op))) << "reduce_scatter changed its input";
  comm.reduce_scatter(in.data(), in.data() + me * count, count, type, op);
  std::vector<T> left = input<T>(me, n * count, op);
  std::copy(mine.begin(), mine.end(), left.begin() + me * count);
  EXPECT_TRUE(same(in, left)) << "reduce_scatter in place";
}

void check_moves(Comm& comm, std::int64_t count) {
  using T = std::int32_t;
  constexpr DType type = DType::int32;
  const int n = comm.size(), me = comm.index(), root = static_cast<int>(count + 1) % n;
  std::vector<T> all;
  for (int k = 0; k < n; ++k) {
    const std::vector<T> part = input<T>(k, count);
    all.insert(all.end(), part.begin(), part.end());
  }
  const std::vector<T> mine = input<T>(me, count);
  std::vector<T> out(n * count, 9), part(count, 9);

  comm.all_gather(mine.data(), out.data(), count, type);
  EXPECT_TRUE(same(out, all)) << "all_gather";
  out.assign(n * count, 9);
  std::copy(mine.begin(), mine.end(), out.begin() + me * count);
  comm.all_gather(out.data() + me * count, out.data(), count, type);
  EXPECT_TRUE(same(out, all)) << "all_gather in place";

  comm.broadcast(me == root ? mine.data() : nullptr, part.data(), count, type, root);
  EXPECT_TRUE(same(part, input<T>(root, count))) << "broadcast";

  out.assign(n * count, 9);
  comm.gather(mine.data(), me == root ? out.data() : nullptr, count, type, root);
  if (me == root) {
    EXPECT_TRUE(same(out, all)) << "gather";
  }
  part.assign(count, 9);
  comm.scatter(me == root ? all.data() : nullptr, part.data(), count, type, root);
  EXPECT_TRUE(same(part, mine)) << "scatter";

  // Member p gets part p of everybody.
  std::vector<T> sent(n * count);
  for (int p = 0; p < n; ++p) {
    for (std::int64_t i = 0; i < count; ++i) sent[p * count + i] = 100 * me + p;
  }
  comm.all_to_all(sent.data(), out.data(), count, type);
  for (int p = 0; p < n; ++p) {
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(out[p * count + i], 100 * p + me);
  }
  std::vector<std::int64_t> to(n), from(n);
  for (int p = 0; p < n; ++p) to[p] = (me + 2 * p) % 4, from[p] = (p + 2 * me) % 4;
  std::vector<T> parts, got(4 * n);
  for (int p = 0; p < n; ++p) parts.insert(parts.end(), to[p], 100 * me + p);
  comm.all_to_all_v(parts.data(), to, got.data(), from, type);
  for (int p = 0, at = 0; p < n; ++p) {
    for (int i = 0; i < from[p]; ++i, ++at) ASSERT_EQ(got[at], 100 * p + me);
  }
  comm.shift(mine.data(), part.data(), count, type);
  EXPECT_TRUE(same(part, input<T>((me + n - 1) % n, count))) << "shift";
  comm.barrier();
}

class Algorithms : public testing::TestWithParam<Algorithm> {
 protected:
  // `body` on all members of one group of `n` whose collectives go by the algorithm.
  static void in_group(int n, const std::function<void(Comm&)>& body) {
    ThreadWorld world(n);
    EXPECT_EQ(test::on_ranks(world,
                             [&](int rank) {
                               const auto comm = with_algorithm(
                                   world.comm("g", first_ranks(n), rank), GetParam(), scattered(n));
                               body(*comm);
                             }),
              "");
  }
};

TEST_P(Algorithms, ReduceAsOneMemberAfterTheOtherWould) {
  for (int n = 1; n <= 9; ++n) {
    in_group(n, [n](Comm& comm) {
      const std::array<std::int64_t, 6> counts = {0, 1, n - 1, n, n + 1, 10007};
      for (std::size_t c = 0; c < counts.size(); ++c) {
        for (int t = 0; t < kDTypes; ++t) {
          const auto type = static_cast<DType>(t);
          const ReduceOp op = kOps[(c + t) % kOps.size()];
          if (counts[c] != n + 1 && (n + t + static_cast<int>(c)) % 3 != 0) continue;
          SCOPED_TRACE(cat("n=", n, " count=", counts[c], ' ', name_of(type), ' ', name_of(op)));
          dispatch(type, ReduceOp::sum, [&](auto zero, auto) {
            check_reductions<decltype(zero)>(comm, counts[c], type, op);
          });
        }
      }
    });
  }
}

TEST_P(Algorithms, MovePartsToWhereTheyBelong) {
  for (int n = 1; n <= 9; ++n) {
    in_group(n, [n](Comm& comm) {
      for (const std::int64_t count : {0, 1, n - 1, n, n + 1, 10007}) {
        SCOPED_TRACE(cat("n=", n, " count=", count));
        check_moves(comm, count);
      }
    });
  }
}

// Vectors of several chunks, parts of unequal numbers of chunks.
TEST_P(Algorithms, PassLongVectorsInChunks) {
  for (const int n : {3, 4, 7}) {
    in_group(n, [](Comm& comm) {
      check_reductions<float>(comm, 300'001, DType::fp32, ReduceOp::sum);
      check_moves(comm, 200'003);
    });
  }
}

TEST_P(Algorithms, CountCollectivesAndNotTheirMessages) {
  in_group(5, [](Comm& comm) {
    std::vector<float> data(100), whole(500);
    comm.all_reduce(data.data(), 100, DType::fp32, ReduceOp::sum);
    EXPECT_EQ(comm.carried(), (CommCount{1, 100, 400}));
    comm.all_gather(data.data(), whole.data(), 100, DType::fp32);
    EXPECT_EQ(comm.carried(), (CommCount{2, 600, 2400}));
    comm.broadcast(data.data(), 100, DType::fp32, 1);
    EXPECT_EQ(comm.carried(), (CommCount{3, 700, 2800}));
    const int next = (comm.index() + 1) % 5, before = (comm.index() + 4) % 5;
    comm.send_recv(data.data(), 8, next, whole.data(), 8, before);
    EXPECT_EQ(comm.carried(), (CommCount{4, 700, 2808}));
  });
}

// Values whose sum depends on the order of additions.
TEST_P(Algorithms, LeaveTheSameBitsOnAllMembers) {
  for (const int n : {3, 6, 8}) {
    constexpr int count = 1001;
    std::vector<std::vector<float>> results(n);
    in_group(n, [&](Comm& comm) {
      std::vector<float> data(count);
      for (int i = 0; i < count; ++i)
        data[i] = 1.0f / static_cast<float>(1 + (i * 31 + comm.index() * 17) % 101);
      comm.all_reduce(data.data(), count, DType::fp32, ReduceOp::sum);
      results[comm.index()] = data;
    });
    for (int k = 1; k < n; ++k) EXPECT_TRUE(same(results[k], results[0])) << n << ' ' << k;
  }
}

TEST_P(Algorithms, RefuseWhatIsNotThere) {
  in_group(2, [](Comm& comm) {
    float data[2] = {};
    EXPECT_NE(
        message_of([&] { comm.all_reduce(data, -1, DType::fp32, ReduceOp::sum); }).find("not -1"),
        std::string::npos);
    EXPECT_NE(message_of([&] { comm.broadcast(data, 1, DType::fp32, 2); }).find("2 of 2"),
              std::string::npos);
  });
}

INSTANTIATE_TEST_SUITE_P(Each, Algorithms, testing::ValuesIn(kAll),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(DirectAlgorithm, ReducesInTheOrderOfMembersAndRoundsOnce) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
    ThreadWorld world(5);
    EXPECT_EQ(test::on_ranks(world,
                             [&](int rank) {
                               auto own = world.comm("own", first_ranks(5), rank);
                               const auto direct =
                                   with_algorithm(world.comm("direct", first_ranks(5), rank),
                                                  Algorithm::direct, {});
                               std::vector<Bf16> a(3001), b;
                               for (int i = 0; i < 3001; ++i)
                                 a[i] = Bf16(1.0f / static_cast<float>(1 + (i * 13 + rank) % 97));
                               b = a;
                               own->all_reduce(a.data(), 3001, DType::bf16, op);
                               direct->all_reduce(b.data(), 3001, DType::bf16, op);
                               EXPECT_TRUE(same(a, b));
                             }),
              "");
  }
}

TEST(WithAlgorithm, RefusesNativeAndNodesThatDoNotFit) {
  ThreadWorld world(1);
  const auto message = [&](const char* name, Algorithm algorithm, std::vector<int> nodes) {
    return message_of([&] { with_algorithm(world.comm(name, {0}, 0), algorithm, nodes); });
  };
  EXPECT_NE(message("a", Algorithm::native, {}).find("native"), std::string::npos);
  EXPECT_NE(message("b", Algorithm::two_level, {}).find("0 members"), std::string::npos);
  EXPECT_NE(message("c", Algorithm::ring, {0, 1}).find("2 members"), std::string::npos);
}

TEST(HasAlgorithm, IsTrueWhereItMakesSense) {
  EXPECT_TRUE(has_algorithm(CollectiveKind::shift, Algorithm::direct));
  EXPECT_FALSE(has_algorithm(CollectiveKind::all_to_all, Algorithm::ring));
  EXPECT_FALSE(has_algorithm(CollectiveKind::all_gather, Algorithm::tree));
  EXPECT_FALSE(has_algorithm(CollectiveKind::all_reduce, Algorithm::own));
  EXPECT_FALSE(has_algorithm(CollectiveKind::all_reduce, Algorithm::native));
}

}  // namespace
}  // namespace mb
