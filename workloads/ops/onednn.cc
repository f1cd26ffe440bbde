// Matrix products by oneDNN, each on the calling thread alone. See no_onednn.cc for builds without.
#include <omp.h>

#include <array>
#include <dnnl.hpp>
#include <memory>
#include <unordered_map>

#include "workloads/base/error.h"
#include "workloads/ops/matmul.h"
#include "workloads/ops/scratch.h"

namespace mb {
namespace {

using dnnl::memory;

template <class T>
constexpr auto kType = memory::data_type::f32;
template <>
constexpr auto kType<Bf16> = memory::data_type::bf16;

struct ShapeHash {
  std::size_t operator()(const MatmulShape& s) const {
    std::size_t hash = s.transpose_a + 2 * s.transpose_b + 4 * s.bias + 8 * s.accumulate;
    for (std::int64_t value : {s.m, s.n, s.k, s.lda, s.ldb, s.ldc}) {
      hash = (hash ^ static_cast<std::size_t>(value)) * 0x9e3779b97f4a7c15ull;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

template <class T>
memory::desc matrix(std::int64_t rows, std::int64_t columns, std::int64_t ld, bool transpose) {
  return {{rows, columns}, kType<T>, transpose ? memory::dims{1, ld} : memory::dims{ld, 1}};
}

// A primitive and its memory objects, whose pointers are set before each run. C is the type of c.
template <class T, class C>
class CachedMatmul {
 public:
  explicit CachedMatmul(const MatmulShape& s) {
    const memory::desc a = matrix<T>(s.m, s.k, s.lda, s.transpose_a);
    const memory::desc b = matrix<T>(s.k, s.n, s.ldb, s.transpose_b);
    const memory::desc c = matrix<C>(s.m, s.n, s.ldc, false);
    const memory::desc bias = matrix<T>(1, s.n, s.n, false);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const auto description =
        s.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const dnnl::matmul::primitive_desc chosen(description, attributes, cpu_engine());
    matmul_ = dnnl::matmul(chosen);
    scratch_bytes_ = chosen.scratchpad_desc().get_size();
    add(DNNL_ARG_SRC, a);
    add(DNNL_ARG_WEIGHTS, b);
    add(DNNL_ARG_DST, c);
    add(DNNL_ARG_SCRATCHPAD, chosen.scratchpad_desc());
    if (s.bias) add(DNNL_ARG_BIAS, bias);
  }

  void run(const dnnl::stream& stream, const T* a, const T* b, const T* bias, C* c) const {
    const std::array<const void*, 5> data = {a, b, c,
                                             thread_scratch(Scratch::onednn, scratch_bytes_), bias};
    for (int i = 0; i < count_; ++i) {
      memories_[i].set_data_handle(const_cast<void*>(data[i]), stream);
    }
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(matmul_.get(), stream.get(), count_, arguments_.data()),
        "could not run a matmul");
  }

 private:
  void add(int argument, const memory::desc& desc) {
    memories_[count_] = memory(desc, cpu_engine(), nullptr);
    arguments_[count_] = {argument, memories_[count_].get()};
    ++count_;
  }

  dnnl::matmul matmul_;
  std::size_t scratch_bytes_ = 0;
  int count_ = 0;
  std::array<memory, 5> memories_;
  std::array<dnnl_exec_arg_t, 5> arguments_{};
};

// The OpenMP setting is per thread: each rank's thread must set its own, or oneDNN starts a team.
template <class T, class C>
struct ThreadState {
  ThreadState() : stream(cpu_engine()) { omp_set_num_threads(1); }
  dnnl::stream stream;
  std::unordered_map<MatmulShape, CachedMatmul<T, C>, ShapeHash> matmuls;
};

// The largest of equal parts of n that is at most `limit` and a multiple of 64; n if there is none.
std::int64_t part_of(std::int64_t n, std::int64_t limit) {
  for (std::int64_t part = limit; part > 0; part -= 64) {
    if (n > limit && n % part == 0) return part;
  }
  return n;
}

// oneDNN 2.6 loses up to a quarter of its speed on wide b as stored, and a tenth on transposed a
// that is wide or long; in parts it does not. Limits tried on Zen 4: 128 gives 384 x 384 x 2048 113
// GFLOP/s, 384 gives 106, but the short products of attention (k = 64) are 1 to 3 % slower with
// 128.
template <class T, class C>
void multiply(const MatmulShape& s, const T* a, const T* b, const T* bias, C* c) try {
  thread_local ThreadState<T, C> state;
  MatmulShape part = s;
  if (s.transpose_a) part.m = part_of(s.m, s.k > 512 ? 128 : 384);
  if (!s.transpose_b) part.n = part_of(s.n, 768);
  auto found = state.matmuls.find(part);
  if (found == state.matmuls.end()) found = state.matmuls.try_emplace(part, part).first;
  for (std::int64_t j = 0; j < s.n; j += part.n) {
    for (std::int64_t i = 0; i < s.m; i += part.m) {
      found->second.run(state.stream, a + (s.transpose_a ? i : i * s.lda),
                        b + (s.transpose_b ? j * s.ldb : j), bias ? bias + j : nullptr,
                        c + i * s.ldc + j);
    }
  }
} catch (const dnnl::error& error) {
  throw Error(cat("oneDNN matmul ", s.m, "x", s.n, "x", s.k, ": ", error.what()));
}

}  // namespace

bool onednn_available() { return true; }

std::string onednn_version() {
  const dnnl::version_t* version = dnnl::version();
  return cat("oneDNN ", version->major, ".", version->minor, ".", version->patch);
}

bool onednn_has_bf16() {
  constexpr int kWanted = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & kWanted) == kWanted;
}

void onednn_matmul(const MatmulShape& shape, const float* a, const float* b, const float* bias,
                   float* c) {
  multiply(shape, a, b, bias, c);
}

void onednn_matmul_bf16(const MatmulShape& shape, const Bf16* a, const Bf16* b, const Bf16* bias,
                        void* c, bool to_main) {
  to_main ? multiply(shape, a, b, bias, static_cast<float*>(c))
          : multiply(shape, a, b, bias, static_cast<Bf16*>(c));
}

}  // namespace mb
