#include "tests/support/cuda_emulation/cudnn_program.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "tests/support/cuda_emulation/state.h"
#include "workloads/base/error.h"
#include "workloads/base/half.h"

namespace mb::cuda_emulation {
namespace {

using Kind = CudnnOperation::Kind;
using Dims = std::array<std::int64_t, 4>;

// A tensor in full, row-major.
struct Values {
  Dims dims;
  std::vector<float> at;
  explicit Values(const Dims& shape = {1, 1, 1, 1})
      : dims(shape), at(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3])) {}
  // Where `place` of a tensor of `of` stands in this one, some of whose dimensions are fewer: one
  // serves as many as it is fewer by.
  std::size_t index(const Dims& place, const Dims& of) const {
    std::int64_t result = 0;
    for (int d = 0; d < 4; ++d) result = result * dims[d] + place[d] / (of[d] / dims[d]);
    return static_cast<std::size_t>(result);
  }
  float of(const Dims& place, const Dims& shape) const { return at[index(place, shape)]; }
};

template <class F>
void for_each(const Dims& dims, F f) {
  Dims i{};
  for (i[0] = 0; i[0] < dims[0]; ++i[0])
    for (i[1] = 0; i[1] < dims[1]; ++i[1])
      for (i[2] = 0; i[2] < dims[2]; ++i[2])
        for (i[3] = 0; i[3] < dims[3]; ++i[3]) f(i);
}

float rounded(float x, cudnnDataType_t type) {
  if (type == CUDNN_DATA_BFLOAT16) return float(Bf16(x));
  if (type == CUDNN_DATA_HALF) return float(Fp16(x));
  return x;
}

std::size_t bytes_of(cudnnDataType_t type) { return type == CUDNN_DATA_FLOAT ? 4 : 2; }
std::int64_t offset(const CudnnTensor& t, const Dims& place) {
  std::int64_t at = 0;
  for (int d = 0; d < 4; ++d) at += place[d] * t.strides[d];
  return at;
}
std::size_t extent(const CudnnTensor& t) {
  Dims last = t.dims;
  for (std::int64_t& d : last) --d;
  return static_cast<std::size_t>(offset(t, last) + 1) * bytes_of(t.type);
}

Values load(const CudnnTensor& t, const void* data) {
  Values values(t.dims);
  for_each(t.dims, [&](const Dims& i) {
    float& to = values.at[values.index(i, t.dims)];
    const std::int64_t at = offset(t, i);
    to = t.type == CUDNN_DATA_FLOAT      ? static_cast<const float*>(data)[at]
         : t.type == CUDNN_DATA_BFLOAT16 ? float(static_cast<const Bf16*>(data)[at])
                                         : float(static_cast<const Fp16*>(data)[at]);
  });
  return values;
}
void store(const CudnnTensor& t, const Values& values, void* data) {
  for_each(t.dims, [&](const Dims& i) {
    const float x = values.of(i, t.dims);
    const std::int64_t at = offset(t, i);
    if (t.type == CUDNN_DATA_FLOAT) {
      static_cast<float*>(data)[at] = x;
    } else if (t.type == CUDNN_DATA_BFLOAT16) {
      static_cast<Bf16*>(data)[at] = x;
    } else {
      static_cast<Fp16*>(data)[at] = x;
    }
  });
}

bool is_known(int mode) {
  static const std::set<int> known = {CUDNN_POINTWISE_ADD,       CUDNN_POINTWISE_SUB,
                                      CUDNN_POINTWISE_MUL,       CUDNN_POINTWISE_DIV,
                                      CUDNN_POINTWISE_EXP,       CUDNN_POINTWISE_LOG,
                                      CUDNN_POINTWISE_IDENTITY,  CUDNN_POINTWISE_CMP_GE,
                                      CUDNN_POINTWISE_GEN_INDEX, CUDNN_POINTWISE_BINARY_SELECT};
  return known.contains(mode);
}
float apply(int mode, float x, float b, float condition, float place) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b ? 1 : 0;
    case CUDNN_POINTWISE_GEN_INDEX:
      return place;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return condition != 0 ? x : b;
    default:
      return x;
  }
}

Values compute(const CudnnOperation& op, const Dims& dims, const std::vector<const Values*>& in) {
  Values y(dims);
  switch (op.kind) {
    case Kind::pointwise:
      for_each(dims, [&](const Dims& i) {
        const auto operand = [&](std::size_t n) { return n < in.size() ? in[n]->of(i, dims) : 0; };
        y.at[y.index(i, dims)] = apply(op.mode, operand(0), operand(1), operand(2),
                                       static_cast<float>(i[static_cast<std::size_t>(op.axis)]));
      });
      break;
    case Kind::reduction: {
      const bool is_max = op.mode == CUDNN_REDUCE_TENSOR_MAX;
      std::fill(y.at.begin(), y.at.end(), is_max ? -INFINITY : 0.0f);
      for_each(in[0]->dims, [&](const Dims& i) {
        float& to = y.at[y.index(i, in[0]->dims)];
        const float x = in[0]->of(i, in[0]->dims);
        to = is_max ? std::max(to, x) : to + x;
      });
      break;
    }
    case Kind::matmul: {
      const Values &a = *in[0], &b = *in[1];
      for_each(dims, [&](const Dims& i) {
        double sum = 0;
        for (std::int64_t k = 0; k < a.dims[3]; ++k)
          sum += static_cast<double>(
                     a.of({i[0], i[1], i[2], k}, {dims[0], dims[1], dims[2], a.dims[3]})) *
                 b.of({i[0], i[1], k, i[3]}, {dims[0], dims[1], b.dims[2], dims[3]});
        y.at[y.index(i, dims)] = static_cast<float>(sum);
      });
      break;
    }
    case Kind::reshape:  // with the last two dimensions exchanged
      for_each(dims, [&](const Dims& i) {
        y.at[y.index(i, dims)] = in[0]->of({i[0], i[1], i[3], i[2]}, in[0]->dims);
      });
  }
  return y;
}

bool divides(const Dims& few, const Dims& many) {
  for (int d = 0; d < 4; ++d) {
    if (few[d] < 1 || many[d] % few[d] != 0) return false;
  }
  return true;
}

bool fits(const CudnnOperation& op, const Dims& out, const std::vector<Dims>& in) {
  switch (op.kind) {
    case Kind::pointwise:
      return std::all_of(in.begin(), in.end(), [&](const Dims& d) { return divides(d, out); });
    case Kind::reduction:
      return in.size() == 1 && divides(out, in[0]);
    case Kind::matmul:
      return in.size() == 2 && in[0][3] == in[1][2] && in[0][2] == out[2] && in[1][3] == out[3] &&
             in[0][0] == out[0] && in[1][0] == out[0] && out[1] % in[0][1] == 0 &&
             out[1] % in[1][1] == 0;
    case Kind::reshape:
      return in.size() == 1 && in[0] == Dims{out[0], out[1], out[3], out[2]};
  }
  return false;
}

}  // namespace

void check(const CudnnProgram& program) {
  std::set<std::int64_t> written;
  for (const CudnnOperation& op : program.operations) {
    std::vector<Dims> in;
    for (const std::int64_t id : op.in) {
      const CudnnTensor& tensor = program.tensors.at(id);
      require(!tensor.is_between || written.contains(id), "tensor ", id,
              " of a graph is read before it is written");
      in.push_back(tensor.dims);
    }
    require(op.kind != Kind::pointwise || is_known(op.mode), "pointwise mode ", op.mode,
            " is not known to the emulation");
    require(!in.empty() && fits(op, program.tensors.at(op.out).dims, in), "tensor ", op.out,
            " of a graph does not fit what it is made of");
    require(written.insert(op.out).second, "tensor ", op.out, " of a graph is written twice");
  }
}

void run(const CudnnProgram& program, const CudnnOperands& operands, int device) {
  std::map<std::int64_t, Values> values;
  for (const auto& [id, tensor] : program.tensors) {
    if (tensor.is_between) continue;
    if (tensor.is_scalar) {
      const auto given = operands.scalars.find(id);
      if (given == operands.scalars.end())
        return fault(device, cudaErrorInvalidValue, cat("cuDNN got no scalar ", id));
      values[id].at = {given->second};
      continue;
    }
    const auto given = operands.memory.find(id);
    if (given == operands.memory.end() || reinterpret_cast<std::uintptr_t>(given->second) % 16 != 0)
      return fault(device, cudaErrorMisalignedAddress,
                   cat("cuDNN got no aligned tensor ", id, " to work on"));
    if (!check_access(device, given->second, extent(tensor), "a tensor of cuDNN")) return;
  }
  for (const CudnnOperation& op : program.operations) {
    std::vector<const Values*> in;
    for (const std::int64_t id : op.in) {
      if (!values.contains(id)) values[id] = load(program.tensors.at(id), operands.memory.at(id));
      in.push_back(&values.at(id));
    }
    const CudnnTensor& out = program.tensors.at(op.out);
    Values made = compute(op, out.dims, in);
    for (float& x : made.at) x = rounded(x, out.type);
    if (!out.is_between) store(out, made, operands.memory.at(op.out));
    values[op.out] = std::move(made);
  }
}

}  // namespace mb::cuda_emulation
