// Every collective of a Comm against a serial one, for every element type and reduction: the bits,
// the fences around buffers, and buffers that are spoilt as soon as a call is over.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "parallel/comm/comm.h"
#include "workloads/base/half.h"
#include "workloads/base/rng.h"

namespace mb::test {

template <class T>
constexpr DType type_of() {
  if constexpr (std::is_same_v<T, float>) return DType::fp32;
  if constexpr (std::is_same_v<T, double>) return DType::fp64;
  if constexpr (std::is_same_v<T, Bf16>) return DType::bf16;
  if constexpr (std::is_same_v<T, Fp16>) return DType::fp16;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::int32;
  if constexpr (std::is_same_v<T, std::int8_t>) return DType::int8;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::uint8;
  if constexpr (std::is_same_v<T, std::uint32_t>) return DType::uint32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::int64;
  if constexpr (std::is_same_v<T, std::uint64_t>) return DType::uint64;
}

// What members bring: numbers of very different sizes, so that another order of additions shows in
// the bits, or small whole ones, whose sums and products are the same in any order and fit every
// type: integers that overflow are a library's own affair.
enum class Numbers { mixed, whole };

// Element `i` of what `member` brings to call `salt`.
template <class T>
T draw(Numbers numbers, int salt, int member, std::int64_t i) {
  if (numbers == Numbers::whole)
    return static_cast<T>(std::is_unsigned_v<T>
                              ? static_cast<int>(random_bits(salt, member, i) % 2)
                              : static_cast<int>(random_bits(salt, member, i) % 3) - 1);
  const double value = (random_uniform(salt, member, i) - 0.5) * (i % 3 == 0 ? 1000 : 1);
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::int64_t>(value * 1e4));
  return static_cast<T>(static_cast<Main<T>>(value));
}

template <class T>
T combine(T a, T b, ReduceOp op) {
  const auto modulo = [](auto x) {
    if constexpr (std::is_integral_v<T>) return static_cast<std::uint64_t>(x);
    if constexpr (!std::is_integral_v<T>) return x;
  };
  switch (op) {
    case ReduceOp::prod:
      return static_cast<T>(modulo(a) * modulo(b));
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::sum:
    case ReduceOp::avg:
      return static_cast<T>(modulo(a) + modulo(b));
  }
  return a;
}

template <class T>
T serial(Numbers numbers, int members, int salt, std::int64_t i, ReduceOp op) {
  auto result = static_cast<Main<T>>(draw<T>(numbers, salt, 0, i));
  for (int member = 1; member < members; ++member)
    result = combine(result, static_cast<Main<T>>(draw<T>(numbers, salt, member, i)), op);
  if (op == ReduceOp::avg && members > 1)
    result = static_cast<Main<T>>(result / static_cast<Main<T>>(members));
  return static_cast<T>(result);
}

// Elements with a fence on both sides, `skew` bytes behind a cache line.
template <class T>
class Fenced {
 public:
  explicit Fenced(std::int64_t count, int skew = 0)
      : count_(count), bytes_(count * sizeof(T) + 3 * fence, mark) {
    const auto start = reinterpret_cast<std::uintptr_t>(bytes_.data());
    first_ = bytes_.data() + fence + (-start % fence) + skew;
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  ~Fenced() {
    const auto whole = [](const unsigned char* from, const unsigned char* to) {
      return std::all_of(from, to, [](unsigned char byte) { return byte == mark; });
    };
    EXPECT_TRUE(whole(bytes_.data(), first_)) << "written before the buffer";
    EXPECT_TRUE(whole(first_ + count_ * sizeof(T), bytes_.data() + bytes_.size()))
        << "written behind the buffer";
  }
  T* data() { return reinterpret_cast<T*>(first_); }
  template <class Value>
  void fill(Value value) {
    for (std::int64_t i = 0; i < count_; ++i) data()[i] = value(i);
  }
  void spoil() { std::memset(first_, 0x55, count_ * sizeof(T)); }
  // All elements of a small buffer; of a large one, those near its ends and some of the rest.
  template <class Value>
  void expect(const char* what, Value value) {
    constexpr std::int64_t all = 20000;
    for (std::int64_t i = 0; i < count_; i += i < all || i > count_ - all ? 1 : 37) {
      const T wanted = value(i);
      if (std::memcmp(data() + i, &wanted, sizeof(T)) == 0) continue;
      ADD_FAILURE() << what << ": element " << i << " of " << count_ << " is "
                    << +static_cast<double>(data()[i]) << ", not " << +static_cast<double>(wanted)
                    << ", of " << name_of(type_of<T>());
      return;
    }
  }

 private:
  static constexpr std::int64_t fence = 64;
  static constexpr unsigned char mark = 0xa5;
  std::int64_t count_;
  std::vector<unsigned char> bytes_;
  unsigned char* first_;
};

// Elements from one member to another in an all_to_all_v: none, a few, or up to `most`.
inline std::int64_t part_size(int salt, int sender, int receiver, std::int64_t most) {
  const std::uint64_t bits = random_bits(salt, sender, receiver);
  return bits % 3 == 0 ? 0 : static_cast<std::int64_t>(bits / 3 % (most + 1));
}

// One call of a kind that checks its result on this member. Some buffers are `skew` bytes behind a
// cache line, a multiple of the size of T.
template <class T>
struct Exercise {
  Comm& comm;
  std::int64_t count;
  int salt;
  Numbers numbers = Numbers::mixed;
  int skew = 0;
  const int n = comm.size(), me = comm.index(), root = salt % n;
  static constexpr DType type = type_of<T>();

  T drawn(int member, std::int64_t i, int call = 0) const {
    return draw<T>(numbers, salt + call, member, i);
  }
  auto mine() const {
    return [this](std::int64_t i) { return drawn(me, i); };
  }
  auto of_members() const {
    return [this](std::int64_t i) { return drawn(static_cast<int>(i / count), i % count); };
  }
  auto reduced(ReduceOp op, std::int64_t first = 0) const {
    return [=, this](std::int64_t i) { return serial<T>(numbers, n, salt, first + i, op); };
  }

  void all_reduce(ReduceOp op) {
    Fenced<T> data(count, skew), to(count);
    data.fill(mine());
    comm.all_reduce(data.data(), to.data(), count, type, op);
    to.expect("all_reduce", reduced(op));
    data.expect("input of all_reduce", mine());
    comm.all_reduce(data.data(), count, type, op);
    data.expect("all_reduce in place", reduced(op));
    data.spoil();
  }

  void reduce(ReduceOp op) {
    Fenced<T> data(count, skew), to(count);
    data.fill(mine());
    comm.reduce(data.data(), me == root ? to.data() : nullptr, count, type, op, root);
    data.expect("input of reduce", mine());
    if (me == root) to.expect("reduce", reduced(op));
    comm.reduce(data.data(), me == root ? data.data() : nullptr, count, type, op, root);
    if (me == root) data.expect("reduce in place", reduced(op));
    data.spoil();
  }

  void all_gather() {
    Fenced<T> from(count), to(n * count, skew), whole(n * count, skew);
    from.fill(mine());
    comm.all_gather(from.data(), to.data(), count, type);
    from.spoil();
    to.expect("all_gather", of_members());
    for (std::int64_t i = 0; i < count; ++i) whole.data()[me * count + i] = drawn(me, i);
    comm.all_gather(whole.data() + me * count, whole.data(), count, type);
    whole.expect("all_gather in place", of_members());
    whole.spoil();
  }

  void reduce_scatter(ReduceOp op) {
    Fenced<T> from(n * count, skew), to(count);
    from.fill(mine());
    comm.reduce_scatter(from.data(), to.data(), count, type, op);
    from.expect("input of reduce_scatter", mine());
    from.spoil();
    to.expect("reduce_scatter", reduced(op, me * count));
    from.fill(mine());
    comm.reduce_scatter(from.data(), from.data() + me * count, count, type, op);
    from.expect("reduce_scatter in place", [&](std::int64_t i) {
      return i / count == me ? serial<T>(numbers, n, salt, i, op) : drawn(me, i);
    });
    from.spoil();
  }

  void all_to_all() {
    Fenced<T> from(n * count), to(n * count, skew);
    from.fill(mine());
    comm.all_to_all(from.data(), to.data(), count, type);
    from.spoil();
    to.expect("all_to_all", [&](std::int64_t i) {
      return drawn(static_cast<int>(i / count), me * count + i % count);
    });
  }

  // Element i of the part from s to r is that of drawn(s, i, r).
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
      for (std::int64_t i = 0; i < sent[k]; ++i) *at++ = drawn(me, i, k);
      for (std::int64_t i = 0; i < wanted[k]; ++i) expected.push_back(drawn(k, i, me));
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
    to.expect("shift", [&](std::int64_t i) { return drawn((me + n - 1) % n, i); });
  }

  // To the member after the next, from the one before the last.
  void send_recv() {
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
    const int before = (me + 2 * n - 2) % n;
    Fenced<T> from(count), to(count, skew);
    from.fill(mine());
    comm.send_recv(from.data(), bytes, (me + 2) % n, to.data(), bytes, before);
    from.spoil();
    to.expect("send_recv", [&](std::int64_t i) { return drawn(before, i); });
  }

  void broadcast() {
    const auto of_root = [&](std::int64_t i) { return drawn(root, i); };
    Fenced<T> data(count, skew), to(count);
    if (me == root) data.fill(mine());
    comm.broadcast(me == root ? data.data() : nullptr, to.data(), count, type, root);
    to.expect("broadcast", of_root);
    comm.broadcast(data.data(), count, type, root);
    data.expect("broadcast in place", of_root);
    data.spoil();
  }

  void gather() {
    Fenced<T> from(count, skew), to(n * count);
    from.fill(mine());
    comm.gather(from.data(), me == root ? to.data() : nullptr, count, type, root);
    from.spoil();
    if (me != root) {
      from.fill(mine());
      return comm.gather(from.data(), nullptr, count, type, root);
    }
    to.expect("gather", of_members());
    for (int k = 0; k < n; ++k) {
      if (k != root) std::memset(to.data() + k * count, 0x55, count * sizeof(T));
    }
    comm.gather(to.data() + root * count, to.data(), count, type, root);
    to.expect("gather in place", of_members());
  }

  void scatter() {
    const auto of_root = [&](std::int64_t i) { return drawn(root, me * count + i); };
    Fenced<T> from(n * count, skew), to(count);
    if (me == root) from.fill(mine());
    comm.scatter(me == root ? from.data() : nullptr, to.data(), count, type, root);
    to.expect("scatter", of_root);
    to.spoil();
    if (me == root) {
      comm.scatter(from.data(), from.data() + root * count, count, type, root);
      return from.expect("scatter in place", mine());
    }
    comm.scatter(nullptr, to.data(), count, type, root);
    to.expect("scatter of a root in place", of_root);
  }

  void of_whole_vectors(ReduceOp op) {
    all_reduce(op);
    reduce(op);
    shift();
    send_recv();
    broadcast();
  }
  void of_parts(ReduceOp op) {
    reduce_scatter(op);
    all_gather();
    all_to_all();
    all_to_all_v();
    gather();
    scatter();
  }
  void all_kinds() {
    for (const ReduceOp op : {ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
      SCOPED_TRACE(std::string(name_of(op)));
      all_reduce(op);
      reduce(op);
      reduce_scatter(op);
    }
    of_whole_vectors(ReduceOp::sum);
    of_parts(ReduceOp::sum);
  }
};

// Calls fn(T{}) for each type of elements.
template <class Fn>
void for_each_type(Fn fn) {
  fn(float{});
  fn(double{});
  fn(Bf16{});
  fn(Fp16{});
  fn(std::int32_t{});
  fn(std::int8_t{});
  fn(std::uint8_t{});
  fn(std::uint32_t{});
  fn(std::int64_t{});
  fn(std::uint64_t{});
}

// Every kind by every type, each with numbers of its own.
inline void exercise(Comm& comm, std::int64_t count, int salt, Numbers numbers = Numbers::mixed) {
  for_each_type([&](auto zero) {
    Exercise<decltype(zero)>{comm, count, salt, numbers}.all_kinds();
    salt += 10;
  });
}

// The same with one reduction for each type, another one at the next `salt`.
inline void exercise_pairwise(Comm& comm, std::int64_t count, int salt) {
  for_each_type([&](auto zero) {
    ++salt;
    Exercise<decltype(zero)> one{comm, count, salt, Numbers::mixed, salt % 4 * 8};
    one.of_whole_vectors(static_cast<ReduceOp>(salt % 5));
    one.of_parts(static_cast<ReduceOp>(salt % 5));
  });
}

// The same buffers over and over: a member that is late must not find the next call's data.
inline void reuse_buffers(Comm& comm, int count) {
  const int me = comm.index(), n = comm.size(), sum = n * (n - 1) / 2;
  std::vector<std::int32_t> a(n * count), b(n * count);
  for (int call = 0; call < 60; ++call) {
    std::fill(a.begin(), a.end(), call + 1000 * me);
    comm.shift(a.data(), b.data(), count, DType::int32);
    ASSERT_EQ(b[count - 1], call + 1000 * ((me + n - 1) % n));
    comm.all_to_all(a.data(), b.data(), count, DType::int32);
    for (int k = 0; k < n; ++k) ASSERT_EQ(b[k * count], call + 1000 * k);
    comm.reduce_scatter(a.data(), a.data() + me * count, count, DType::int32, ReduceOp::sum);
    ASSERT_EQ(a[me * count + count - 1], n * call + 1000 * sum);
    comm.all_gather(a.data() + me * count, a.data(), count, DType::int32);
    for (int k = 0; k < n; ++k) ASSERT_EQ(a[k * count], n * call + 1000 * sum);
    comm.broadcast(b.data(), count, DType::int32, call % n);
    comm.all_reduce(a.data(), n * count, DType::int32, ReduceOp::max);
    ASSERT_EQ(a.back(), n * call + 1000 * sum);
    comm.barrier();
  }
}

// Messages of changing sizes between two members keep their order and bytes.
inline void ping_pong(Comm& comm, int rounds) {
  std::vector<int> data(4000);
  for (int round = 0; round < rounds; ++round) {
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
}

}  // namespace mb::test
