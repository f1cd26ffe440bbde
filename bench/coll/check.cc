#include "bench/coll/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "workloads/base/error.h"
#include "workloads/base/half.h"
#include "workloads/base/rng.h"

namespace mb {
namespace {

constexpr std::int64_t kPeriod = 8191, kStride = 5063;
constexpr int kSamples = 4;  // of each segment, its two ends among them
constexpr std::byte kPoison{0xa5};

std::int64_t phase_of(int member, std::int64_t index) {
  return (index + kStride * member) % kPeriod;
}

template <class Fn>
void with_type(DType type, Fn fn) {
  switch (type) {
    case DType::fp32:
      return fn(float{});
    case DType::fp64:
      return fn(double{});
    case DType::bf16:
      return fn(Bf16{});
    case DType::fp16:
      return fn(Fp16{});
    case DType::int32:
      return fn(std::int32_t{});
    case DType::int8:
      return fn(std::int8_t{});
    case DType::uint8:
      return fn(std::uint8_t{});
    case DType::uint32:
      return fn(std::uint32_t{});
    case DType::int64:
      return fn(std::int64_t{});
    case DType::uint64:
      return fn(std::uint64_t{});
  }
}

// Up to where every whole number is exact.
template <class T>
constexpr double exact_limit() {
  if constexpr (std::is_same_v<T, Bf16>) return 256;
  if constexpr (std::is_same_v<T, Fp16>) return 2048;
  if constexpr (std::is_same_v<T, float>) return 0x1p24;
  if constexpr (std::is_same_v<T, double>) return 0x1p53;
  if constexpr (std::is_integral_v<T>) return static_cast<double>(std::numeric_limits<T>::max());
}

// A whole number of 0 to `most`; below 1, a 1 now and then, so that n of them stay in bounds.
double small_whole(std::uint64_t bits, double most) {
  const double uniform = static_cast<double>(bits >> 11) * 0x1p-53;
  return most >= 1 ? std::floor(uniform * (std::min(most, 0x1p20) + 1)) : uniform < most / 4;
}

template <class T>
T input_value(std::uint64_t bits, const CollCall& call) {
  const double n = call.members, limit = exact_limit<T>();
  const bool sums = call.redop == ReduceOp::sum, means = call.redop == ReduceOp::avg;
  if (!reduces(call.operation) || call.redop == ReduceOp::min || call.redop == ReduceOp::max ||
      (sums && std::is_integral_v<T>)) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(bits);
    return static_cast<T>(static_cast<Main<T>>(small_whole(bits, limit)));
  }
  if (call.redop == ReduceOp::prod) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(bits | 1);  // odd ones never reach 0
    return static_cast<T>(Main<T>(1 + small_whole(bits, std::min(0.999, 16 / n))));
  }
  // Multiples of n, so that the mean is whole, where there is room for them.
  const bool scale = means && (std::has_single_bit(unsigned(call.members)) && !std::is_integral_v<T>
                                   ? n <= limit
                                   : n * n <= limit);
  const double most = scale && !std::has_single_bit(unsigned(call.members)) ? limit / n / n
                      : scale && std::is_integral_v<T>                      ? limit / n / n
                                                                            : limit / n;
  const double whole = small_whole(bits, most) * (scale ? n : 1);
  return static_cast<T>(static_cast<Main<T>>(whole));
}

// Member after member, integers modulo 2 to the number of their bits.
template <class T>
T reduced_value(const T* table, std::int64_t index, const CollCall& call) {
  using Wide = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;
  const auto value = [&](int k) { return table[phase_of(k, index)]; };
  T best = value(0);
  Wide sum = static_cast<Wide>(static_cast<Main<T>>(best)), product = sum;
  for (int k = 1; k < call.members; ++k) {
    const T next = value(k);
    sum += static_cast<Wide>(static_cast<Main<T>>(next));
    product *= static_cast<Wide>(static_cast<Main<T>>(next));
    const bool better =
        call.redop == ReduceOp::min ? Main<T>(next) < Main<T>(best) : Main<T>(next) > Main<T>(best);
    if (better) best = next;
  }
  switch (call.redop) {
    case ReduceOp::sum:
      return static_cast<T>(static_cast<Main<T>>(sum));
    case ReduceOp::prod:
      return static_cast<T>(static_cast<Main<T>>(product));
    case ReduceOp::avg:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<std::int64_t>(sum) / call.members);
      return static_cast<T>(static_cast<Main<T>>(sum) / static_cast<Main<T>>(call.members));
    default:
      return best;
  }
}

template <class T>
void make_tables(const CollCall& call, std::uint64_t seed, T* table, T* reduced) {
  const std::uint64_t key = random_key(seed, stream_of("collective"));
  for (std::int64_t i = 0; i < kPeriod; ++i)
    table[i] = input_value<T>(random_bits(key, static_cast<std::uint64_t>(i)), call);
  std::copy(table, table + kPeriod, table + kPeriod);
  if (!reduces(call.operation)) return;
  for (std::int64_t i = 0; i < kPeriod; ++i) reduced[i] = reduced_value(table, i, call);
  std::copy(reduced, reduced + kPeriod, reduced + kPeriod);
}

std::uint64_t bits_at(const std::byte* element, int bytes) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element, bytes);
  return bits;
}

}  // namespace

std::string element_text(std::uint64_t bits, DType type) {
  std::string text = fmt::format("0x{:0{}x}", bits, 2 * size_of(type));
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    T value;
    std::memcpy(&value, &bits, sizeof value);
    text += fmt::format(" ({})", +static_cast<Main<T>>(value));
  });
  return text;
}

Checker::Checker(const CollCall& call, int member, bool in_place, std::uint64_t seed)
    : call_(call), member_(member), in_place_(in_place), seed_(seed), bytes_(size_of(call.type)) {
  table_.resize(2 * kPeriod * bytes_);
  if (reduces(call.operation)) reduced_.resize(2 * kPeriod * bytes_);
  with_type(call.type, [&](auto zero) {
    using T = decltype(zero);
    make_tables(call, seed, reinterpret_cast<T*>(table_.data()),
                reinterpret_cast<T*>(reduced_.data()));
  });
  segments_ = segments();
}

std::vector<Checker::Segment> Checker::segments() const {
  const int n = call_.members;
  const std::int64_t c = call_.count;
  const bool root = member_ == call_.root;
  std::vector<Segment> runs;
  switch (call_.operation) {
    case Operation::all_reduce:
      return {{0, c, -1, 0}};
    case Operation::reduce:
      return root ? std::vector<Segment>{{0, c, -1, 0}} : runs;
    case Operation::reduce_scatter:
      return {{0, c, -1, member_ * c}};
    case Operation::broadcast:
      return {{0, c, call_.root, 0}};
    case Operation::scatter:
      return {{0, c, call_.root, member_ * c}};
    case Operation::shift:
      return {{0, c, (member_ + n - 1) % n, 0}};
    case Operation::ping_pong:
    case Operation::both_ways:
      if (member_ < participants(call_.operation, n)) runs = {{0, c, member_ ^ 1, 0}};
      return runs;
    case Operation::all_gather:
    case Operation::gather:
      for (int k = 0; k < n && (root || call_.operation == Operation::all_gather); ++k)
        runs.push_back({k * c, c, k, 0});
      return runs;
    case Operation::all_to_all:
      for (int k = 0; k < n; ++k) runs.push_back({k * c, c, k, member_ * c});
      return runs;
    case Operation::all_to_all_v: {
      std::int64_t begin = 0;
      for (int k = 0; k < n; ++k) {
        std::int64_t from = 0;
        for (int p = 0; p < member_; ++p) from += call_.sends(k)[p];
        runs.push_back({begin, call_.sends(k)[member_], k, from});
        begin += runs.back().count;
      }
      return runs;
    }
    case Operation::barrier:
      return runs;
  }
  return runs;
}

const std::byte* Checker::expected(const Segment& segment, std::int64_t i) const {
  const bool reduced = segment.source < 0;
  return (reduced ? reduced_ : table_).data() +
         phase_of(reduced ? 0 : segment.source, segment.from + i) * bytes_;
}

void Checker::copy_run(void* to, const std::vector<std::byte>& table, std::int64_t phase,
                       std::int64_t count) const {
  auto* at = static_cast<std::byte*>(to);
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t run = std::min(kPeriod, count - done);
    std::memcpy(at + done * bytes_, table.data() + (phase + done) % kPeriod * bytes_, run * bytes_);
    done += run;
  }
}

void Checker::fill(void* in, void* out) const {
  const Operands o = operands(call_, member_, in_place_, in, out);
  const std::int64_t inputs = elements_in(call_, member_), outputs = elements_out(call_, member_);
  if (outputs > 0) std::memset(o.to, static_cast<int>(kPoison), outputs * bytes_);
  if (inputs > 0) copy_run(const_cast<void*>(o.from), table_, phase_of(member_, 0), inputs);
}

std::int64_t Checker::place(std::int64_t operation, int sample, std::int64_t count) const {
  if (sample == 0) return 0;
  if (sample == 1) return count - 1;
  return static_cast<std::int64_t>(random_bits(seed_, static_cast<std::uint64_t>(operation),
                                               static_cast<std::uint64_t>(sample)) %
                                   static_cast<std::uint64_t>(count));
}

void Checker::fill_some(std::int64_t operation, void* in, void* out) const {
  const Operands o = operands(call_, member_, in_place_, in, out);
  auto* to = static_cast<std::byte*>(o.to);
  if (puts_inputs_back()) {
    // Every member puts back what any looks at; where each has a part, the same place of each part.
    const std::int64_t c = call_.count,
                       parts = elements_in(call_, member_) / std::max(c, std::int64_t{1});
    for (int sample = 0; sample < kSamples && c > 0; ++sample) {
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t i = part * c + place(operation, sample, c);
        copy_run(static_cast<std::byte*>(const_cast<void*>(o.from)) + i * bytes_, table_,
                 phase_of(member_, i), 1);
      }
    }
    return;
  }
  for (const Segment& segment : segments_) {
    const bool is_input = in_place_ && segment.source == member_;
    for (int sample = 0; sample < kSamples && segment.count > 0 && !is_input; ++sample) {
      std::byte* element = to + (segment.begin + place(operation, sample, segment.count)) * bytes_;
      const std::byte* wanted = expected(segment, place(operation, sample, segment.count));
      for (int b = 0; b < bytes_; ++b) element[b] = ~wanted[b];
    }
  }
}

void Checker::note_wrong(std::int64_t operation, std::int64_t index, const std::byte* got,
                         const std::byte* wanted) {
  if (findings_.wrong++ > 0) return;
  findings_.operation = operation;
  findings_.index = index;
  findings_.got = bits_at(got, bytes_);
  findings_.expected = bits_at(wanted, bytes_);
}

void Checker::check_run(std::int64_t operation, const Segment& segment, const std::byte* out) {
  for (std::int64_t done = 0; done < segment.count;) {
    const std::int64_t run = std::min(kPeriod, segment.count - done);
    const std::byte *wanted = expected(segment, done), *got = out + (segment.begin + done) * bytes_;
    if (std::memcmp(got, wanted, run * bytes_) != 0) {
      for (std::int64_t i = 0; i < run; ++i) {
        if (std::memcmp(got + i * bytes_, wanted + i * bytes_, bytes_) != 0)
          note_wrong(operation, segment.begin + done + i, got + i * bytes_, wanted + i * bytes_);
      }
    }
    done += run;
  }
  findings_.checked += segment.count;
}

void Checker::check_all(std::int64_t operation, void* in, void* out) {
  const Operands o = operands(call_, member_, in_place_, in, out);
  for (const Segment& segment : segments_)
    check_run(operation, segment, static_cast<const std::byte*>(o.to));
  ++findings_.full;
}

void Checker::check_some(std::int64_t operation, void* in, void* out) {
  const Operands o = operands(call_, member_, in_place_, in, out);
  for (const Segment& segment : segments_) {
    for (int sample = 0; sample < kSamples && segment.count > 0; ++sample) {
      const std::int64_t i = place(operation, sample, segment.count);
      const std::byte *wanted = expected(segment, i),
                      *got = static_cast<const std::byte*>(o.to) + (segment.begin + i) * bytes_;
      if (std::memcmp(got, wanted, bytes_) != 0)
        note_wrong(operation, segment.begin + i, got, wanted);
      ++findings_.checked;
    }
  }
  ++findings_.sampled;
}

}  // namespace mb
