// Calls every collective of a Comm and compares what it gives with a serial reference, bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
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

// Element `i` of what `member` brings to call `salt`: any bits of an integer; for floating point,
// from small to large, so that another order of additions shows in the bits.
template <class T>
T draw(int salt, int member, std::int64_t i) {
  std::uint64_t bits = (static_cast<std::uint64_t>(salt) << 40) + member * 0x9e3779b97f4a7c15u + i;
  bits *= 0xff51afd7ed558ccdu;
  bits ^= bits >> 32;
  if constexpr (std::is_integral_v<T>) return static_cast<T>(bits);
  if constexpr (!std::is_integral_v<T>) {
    const double value = static_cast<double>(bits & 0xfffff) / (1 << 20) - 0.5;
    return static_cast<T>(static_cast<Main<T>>(value * (i % 3 == 0 ? 1000 : 1)));
  }
}

// Two contributions, as the interface defines it: integers modulo 2 to their bits.
template <class Value>
Value combine(Value a, Value b, ReduceOp op) {
  if (op == ReduceOp::max) return std::max(a, b);
  if (op == ReduceOp::min) return std::min(a, b);
  if constexpr (std::is_integral_v<Value>) {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    return static_cast<Value>(op == ReduceOp::prod ? x * y : x + y);
  }
  if constexpr (!std::is_integral_v<Value>) return op == ReduceOp::prod ? a * b : a + b;
}

template <class T>
T serial(int members, int salt, std::int64_t i, ReduceOp op) {
  auto result = static_cast<Main<T>>(draw<T>(salt, 0, i));
  for (int member = 1; member < members; ++member)
    result = combine(result, static_cast<Main<T>>(draw<T>(salt, member, i)), op);
  if (op == ReduceOp::avg) result = static_cast<Main<T>>(result / static_cast<Main<T>>(members));
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
    const auto whole = [](auto from, auto to) {
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
  unsigned char* first_;
};

// Elements from one member to another in an all_to_all_v: none, a few, or up to `most`.
inline std::int64_t part_size(int salt, int sender, int receiver, std::int64_t most) {
  const std::uint64_t bits = random_bits(salt, sender, receiver);
  return bits % 3 == 0 ? 0 : static_cast<std::int64_t>(bits / 3 % (most + 1));
}

// One call of a kind that checks its result on this member. Buffers are spoilt or die as soon as
// the call is over. `skew` is a multiple of the size of T.
template <class T>
struct Exercise {
  Comm& comm;
  std::int64_t count;
  int salt, skew = 0;
  const int n = comm.size(), me = comm.index(), root = salt % n;
  static constexpr DType type = type_of<T>();

  auto mine() const {
    return [this](std::int64_t i) { return draw<T>(salt, me, i); };
  }
  auto reduced(ReduceOp op, std::int64_t first = 0) const {
    return [=, this](std::int64_t i) { return serial<T>(n, salt, first + i, op); };
  }
  auto gathered() const {
    return [this](std::int64_t i) { return draw<T>(salt, static_cast<int>(i / count), i % count); };
  }
  auto of_root(std::int64_t first = 0) const {
    return [=, this](std::int64_t i) { return draw<T>(salt, root, first + i); };
  }

  void all_reduce(ReduceOp op) {
    Fenced<T> data(count, skew), from(count), to(count, skew);
    data.fill(mine());
    comm.all_reduce(data.data(), count, type, op);
    data.expect("all_reduce in place", reduced(op));
    data.spoil();
    from.fill(mine());
    comm.all_reduce(from.data(), to.data(), count, type, op);
    from.expect("input of all_reduce", mine());
    from.spoil();
    to.expect("all_reduce", reduced(op));
    to.spoil();
  }

  void reduce(ReduceOp op) {
    Fenced<T> from(count, skew), to(me == root ? count : 0);
    from.fill(mine());
    comm.reduce(from.data(), me == root ? to.data() : nullptr, count, type, op, root);
    from.expect("input of reduce", mine());
    if (me == root) to.expect("reduce", reduced(op));
    comm.reduce(from.data(), me == root ? from.data() : nullptr, count, type, op, root);
    if (me == root) from.expect("reduce in place", reduced(op));
    from.spoil();
  }

  void all_gather() {
    Fenced<T> from(count), to(n * count, skew), whole(n * count, skew);
    from.fill(mine());
    comm.all_gather(from.data(), to.data(), count, type);
    from.spoil();
    to.expect("all_gather", gathered());
    to.spoil();
    for (std::int64_t i = 0; i < count; ++i) whole.data()[me * count + i] = draw<T>(salt, me, i);
    comm.all_gather(whole.data() + me * count, whole.data(), count, type);
    whole.expect("all_gather in place", gathered());
    whole.spoil();
  }

  void gather() {
    Fenced<T> from(count, skew), to(me == root ? n * count : 0);
    from.fill(mine());
    comm.gather(from.data(), me == root ? to.data() : nullptr, count, type, root);
    if (me != root) from.spoil();
    if (me == root) to.expect("gather", gathered());
    to.spoil();
    if (me == root) std::memcpy(to.data() + me * count, from.data(), count * sizeof(T));
    from.fill(mine());
    comm.gather(me == root ? to.data() + me * count : from.data(), to.data(), count, type, root);
    from.spoil();
    if (me == root) to.expect("gather in place", gathered());
  }

  void scatter() {
    Fenced<T> from(me == root ? n * count : 0, skew), to(count);
    from.fill(mine());
    comm.scatter(from.data(), to.data(), count, type, root);
    to.expect("scatter", of_root(me * count));
    to.spoil();
    comm.scatter(from.data(), me == root ? from.data() + me * count : to.data(), count, type, root);
    if (me != root) to.expect("scatter in place", of_root(me * count));
    from.expect("input of scatter", mine());
    from.spoil();
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
      return i / count == me ? serial<T>(n, salt, i, op) : draw<T>(salt, me, i);
    });
    from.spoil();
  }

  void all_to_all() {
    Fenced<T> from(n * count), to(n * count, skew);
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
    Fenced<T> to(std::accumulate(wanted.begin(), wanted.end(), std::int64_t{0}), skew);
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
    Fenced<T> from(count, skew), to(count);
    from.fill(mine());
    comm.shift(from.data(), to.data(), count, type);
    from.spoil();
    to.expect("shift", [&](std::int64_t i) { return draw<T>(salt, (me + n - 1) % n, i); });
  }

  // To the member after the next, from the one before the last.
  void send_recv() {
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
    const int before = (me + 2 * n - 2) % n;
    Fenced<T> from(count), to(count, skew);
    from.fill(mine());
    comm.send_recv(from.data(), bytes, (me + 2) % n, to.data(), bytes, before);
    from.spoil();
    to.expect("send_recv", [&](std::int64_t i) { return draw<T>(salt, before, i); });
  }

  void broadcast() {
    Fenced<T> data(count, skew), from(me == root ? count : 0), to(count, skew);
    if (me == root) data.fill(mine());
    comm.broadcast(data.data(), count, type, root);
    data.expect("broadcast in place", of_root());
    data.spoil();
    if (me == root) from.fill(mine());
    comm.broadcast(me == root ? from.data() : nullptr, to.data(), count, type, root);
    from.spoil();
    to.expect("broadcast", of_root());
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
    gather();
    scatter();
    all_to_all();
    all_to_all_v();
  }
  void all_kinds(ReduceOp op) {
    of_whole_vectors(op);
    of_parts(op);
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

// All kinds and types, each type with another reduction.
inline void exercise(Comm& comm, std::int64_t count, int salt) {
  int turn = salt;
  for_each_type([&](auto zero) {
    ++turn;
    Exercise<decltype(zero)>{comm, count, turn, turn % 4 * 8}.all_kinds(
        static_cast<ReduceOp>(turn % 5));
  });
}

}  // namespace mb::test
