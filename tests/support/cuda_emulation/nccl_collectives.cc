// What emulated collectives compute. A test double; see emulation.h.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tests/support/cuda_emulation/nccl_state.h"
#include "workloads/base/error.h"
#include "workloads/base/half.h"

namespace mb::cuda_emulation {
namespace {

template <class T>
T combine(T a, T b, ncclRedOp_t op) {
  using M = Main<T>;
  if (op == ncclMax) return std::max<M>(a, b);
  if (op == ncclMin) return std::min<M>(a, b);
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    const auto x = static_cast<U>(a), y = static_cast<U>(b);
    return static_cast<T>(op == ncclProd ? static_cast<U>(x * y) : static_cast<U>(x + y));
  } else {
    return static_cast<T>(op == ncclProd ? static_cast<M>(a) * static_cast<M>(b)
                                         : static_cast<M>(a) + static_cast<M>(b));
  }
}

// Element i of all members, as a ring does it: from the member after the one that owns the part,
// rounded at every hop. So neither the order of a serial sum nor its rounding.
template <class T>
T reduce(const std::vector<const T*>& from, std::size_t i, std::size_t owner, ncclRedOp_t op) {
  const std::size_t n = from.size();
  T sum = from[(owner + 1) % n][i];
  for (std::size_t hop = 2; hop <= n; ++hop) sum = combine<T>(sum, from[(owner + hop) % n][i], op);
  if (op != ncclAvg) return sum;
  using M = Main<T>;
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::common_type_t<T, int>;
    return static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(n));
  } else {
    return static_cast<T>(static_cast<M>(sum) / static_cast<M>(n));
  }
}

template <class T>
std::vector<T> reduced(const std::map<int, NcclOperation>& members, std::size_t count) {
  std::vector<const T*> from;
  for (const auto& [member, operation] : members)
    from.push_back(static_cast<const T*>(operation.from));
  std::vector<T> result(count);
  const std::size_t n = from.size(), part = std::max<std::size_t>((count + n - 1) / n, 1);
  for (std::size_t i = 0; i < count; ++i)
    result[i] = reduce(from, i, i / part, members.begin()->second.op);
  return result;
}

template <class T>
void carry_out_as(const std::map<int, NcclOperation>& members) {
  const NcclOperation& first = members.begin()->second;
  const std::size_t count = first.count, n = members.size();
  const auto copy = [](void* to, const T* from, std::size_t elements) {
    if (elements > 0) std::memmove(to, from, elements * sizeof(T));
  };
  switch (first.kind) {
    case NcclKind::all_reduce:
    case NcclKind::reduce: {
      const std::vector<T> result = reduced<T>(members, count);
      for (const auto& [member, operation] : members) {
        if (first.kind == NcclKind::all_reduce || member == first.root)
          copy(operation.to, result.data(), count);
      }
      return;
    }
    case NcclKind::reduce_scatter: {
      const std::vector<T> result = reduced<T>(members, n * count);
      for (const auto& [member, operation] : members)
        copy(operation.to, result.data() + static_cast<std::size_t>(member) * count, count);
      return;
    }
    case NcclKind::broadcast: {
      const auto* from = static_cast<const T*>(members.at(first.root).from);
      for (const auto& [member, operation] : members) copy(operation.to, from, count);
      return;
    }
    case NcclKind::all_gather: {
      std::vector<T> all(n * count);
      for (const auto& [member, operation] : members)
        copy(all.data() + static_cast<std::size_t>(member) * count,
             static_cast<const T*>(operation.from), count);
      for (const auto& [member, operation] : members) copy(operation.to, all.data(), n * count);
      return;
    }
    case NcclKind::send:
    case NcclKind::recv:
      return;
  }
}

}  // namespace

void carry_out(const std::map<int, NcclOperation>& members) {
  switch (members.begin()->second.type) {
    case ncclInt8:
      return carry_out_as<std::int8_t>(members);
    case ncclUint8:
      return carry_out_as<std::uint8_t>(members);
    case ncclInt32:
      return carry_out_as<std::int32_t>(members);
    case ncclUint32:
      return carry_out_as<std::uint32_t>(members);
    case ncclInt64:
      return carry_out_as<std::int64_t>(members);
    case ncclUint64:
      return carry_out_as<std::uint64_t>(members);
    case ncclFloat16:
      return carry_out_as<Fp16>(members);
    case ncclFloat32:
      return carry_out_as<float>(members);
    case ncclFloat64:
      return carry_out_as<double>(members);
    case ncclBfloat16:
      return carry_out_as<Bf16>(members);
    default:
      throw Error(
          cat("the emulation has no NCCL type ", static_cast<int>(members.begin()->second.type)));
  }
}

}  // namespace mb::cuda_emulation
