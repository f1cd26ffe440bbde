#include "parallel/exec/rank_memory.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "parallel/plan/arena.h"
#include "workloads/base/error.h"
#include "workloads/base/half.h"

namespace mb {
namespace {

constexpr std::byte kPoison{0xff};  // NaN in every floating-point type, -1 in int32

// Where the arena places the next tensor, at the earliest.
std::int64_t end_of(std::int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// f(begin, end) for parts of [0, n), each on a core: a billion normal numbers take one core a
// minute.
template <class F>
void in_parts(std::int64_t n, F f) {
  constexpr std::int64_t kWorthAThread = 1 << 18;
  const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::int64_t parts = std::clamp<std::int64_t>(n / kWorthAThread, 1, cores);
  std::vector<std::jthread> others;
  for (std::int64_t part = 1; part < parts; ++part)
    others.emplace_back([=] { f(n * part / parts, n * (part + 1) / parts); });
  f(0, n / parts);
}

}  // namespace

RankMemory::RankMemory(const Plan& plan, int rank, Device& device, const InitOptions& init,
                       bool poison)
    : plan_(plan), program_(plan.program_of(rank)), rank_(rank), device_(device) {
  for (const bool host : {false, true}) {
    const std::int64_t bytes = host ? program_.host_bytes : program_.arena_bytes;
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    spaces_[host] =
        static_cast<std::byte*>(host ? device.allocate_host(size) : device.allocate(size));
    if (poison) fill_with_poison(spaces_[host], bytes);
  }
  initialise(init, poison);
}

std::vector<double> RankMemory::read(TensorId id) const {
  const Tensor& tensor = program_.tensors[id];
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
  device_.copy_to_host(bytes.data(), address(id), bytes.size());
  std::vector<double> values(static_cast<std::size_t>(tensor.elements));
  const auto convert = [&]<class T>(T) {
    const T* from = reinterpret_cast<const T*>(bytes.data());
    std::copy(from, from + values.size(), values.begin());
  };
  switch (tensor.dtype) {
    case DType::fp64:
      convert(double{});
      break;
    case DType::fp32:
      convert(float{});
      break;
    case DType::int32:
      convert(std::int32_t{});
      break;
    case DType::bf16:
      convert(Bf16{});
      break;
    case DType::fp16:
      convert(Fp16{});
      break;
    default:
      throw Error(cat("tensors of ", name_of(tensor.dtype), " cannot be read"));
  }
  return values;
}

void RankMemory::initialise(const InitOptions& init, bool poison) {
  for (TensorId t = 0; t < static_cast<TensorId>(program_.tensors.size()); ++t) {
    const Tensor& tensor = program_.tensors[t];
    const bool stays_poisoned = poison && tensor.memory != MemoryClass::moment;
    if (tensor.persistent && tensor.base == kNone && !stays_poisoned)
      device_.fill(address(t), std::byte{0}, static_cast<std::size_t>(tensor.bytes));
  }
  const int shard = plan_.mesh.coordinate(rank_, Axis::tp);
  const int expert_shard = plan_.mesh.coordinate(rank_, Axis::ep);
  constexpr std::int64_t kAtOnce = 1 << 22;  // of a parameter, that may have a billion elements
  std::vector<double> values;
  for (const Parameter& parameter : program_.parameters) {
    const Bucket& bucket = program_.buckets[parameter.bucket];
    const std::int64_t elements = parameter.spec.local_elements();
    for (std::int64_t first = 0; first < elements; first += kAtOnce) {
      values.resize(static_cast<std::size_t>(std::min(kAtOnce, elements - first)));
      in_parts(static_cast<std::int64_t>(values.size()), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t global = parameter.spec.global_index(shard, expert_shard, first + i);
          values[i] = global < 0 ? 0.0 : initial_value(parameter.spec, init, global);
        }
      });
      const std::int64_t offset = parameter.offset + first;
      fill(bucket, bucket.value, bucket.whole_value, offset, values);
      if (bucket.main != kNone) fill(bucket, bucket.main, bucket.ways == 1, offset, values);
    }
  }
  if (poison) poison_slices_of_others();
}

// Whether the step gathers the parameters before anything else uses them.
bool RankMemory::opens_with_gather(const Bucket& bucket) const {
  const auto is_value = [&](TensorId t) { return program_.root(t) == bucket.value; };
  for (const Instruction& instruction : program_.instructions) {
    const auto reads = program_.reads(instruction);
    if (std::any_of(reads.begin(), reads.end(), is_value))
      return std::holds_alternative<Collective>(instruction.action);
  }
  return false;
}
// Of parameters that the next step gathers.
void RankMemory::poison_slices_of_others() {
  for (const Bucket& bucket : program_.buckets) {
    if (bucket.ways == 1 || !bucket.whole_value || !opens_with_gather(bucket)) continue;
    const std::int64_t slice = program_.tensors[bucket.value].bytes / bucket.ways;
    const int own = plan_.mesh.index_in(bucket.owners, rank_);
    for (int owner = 0; owner < bucket.ways; ++owner) {
      if (owner != own)
        fill_with_poison(static_cast<std::byte*>(address(bucket.value)) + owner * slice, slice);
    }
  }
}

void RankMemory::fill_with_poison(void* at, std::int64_t bytes) {
  device_.fill(at, kPoison, static_cast<std::size_t>(bytes));
}

void RankMemory::bury(int stream, TensorId id) {
  const Tensor& tensor = program_.tensors[id];
  auto* at = static_cast<std::byte*>(address(id));
  const std::string_view name = plan_.names[tensor.name];
  device_.show(
      stream, at + tensor.bytes, static_cast<std::size_t>(end_of(tensor.bytes) - tensor.bytes),
      [name, bytes = tensor.bytes](std::span<const std::byte> guard) {
        require(std::all_of(guard.begin(), guard.end(), [](std::byte b) { return b == kPoison; }),
                "something has written past the end of ", name, ", of ", bytes, " bytes");
      });
  if (!tensor.persistent) device_.fill(stream, at, kPoison, static_cast<std::size_t>(tensor.bytes));
}
// What lives to the end of the list: other streams may use it until the step is over.
void RankMemory::bury_the_rest(const Lifetimes& lifetimes) {
  constexpr int stream = static_cast<int>(Stream::compute);
  const auto last = static_cast<InstructionId>(program_.instructions.size()) - 1;
  for (TensorId t : lifetimes.dead_after(last)) bury(stream, t);
  for (TensorId t = 0; t < static_cast<TensorId>(program_.tensors.size()); ++t) {
    if (program_.tensors[t].persistent && program_.tensors[t].base == kNone) bury(stream, t);
  }
  device_.synchronize();
  poison_slices_of_others();
}

// Values from `offset` of the bucket on, as far as `id`, the whole of it or this rank's slice,
// has them.
void RankMemory::fill(const Bucket& bucket, TensorId id, bool whole, std::int64_t offset,
                      const std::vector<double>& values) {
  const std::int64_t begin = whole ? 0 : plan_.mesh.index_in(bucket.owners, rank_) * bucket.slice();
  const std::int64_t end = begin + program_.tensors[id].elements;
  const std::int64_t from = std::max(begin, offset),
                     to = std::min(end, offset + static_cast<std::int64_t>(values.size()));
  if (from >= to) return;
  const std::span<const double> part(values.data() + (from - offset),
                                     static_cast<std::size_t>(to - from));
  const auto put = [&]<class T>(T) {
    std::vector<T> rounded(part.size());
    in_parts(static_cast<std::int64_t>(part.size()), [&](std::int64_t first, std::int64_t last) {
      std::transform(part.begin() + first, part.begin() + last, rounded.begin() + first,
                     [](double value) { return static_cast<T>(value); });
    });
    device_.copy_to_device(static_cast<T*>(address(id)) + (from - begin), rounded.data(),
                           rounded.size() * sizeof(T));
  };
  switch (program_.tensors[id].dtype) {
    case DType::fp64:
      return put(double{});
    case DType::bf16:
      return put(Bf16{});
    case DType::fp16:
      return put(Fp16{});
    default:
      return put(float{});
  }
}

}  // namespace mb
