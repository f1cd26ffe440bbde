// Holds what a mesh computed to the same model on one rank in fp64.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "parallel/exec/executor.h"
#include "parallel/strategy/strategy.h"
#include "workloads/model/config.h"
#include "workloads/model/data.h"

namespace mb {

// Unsharded tensors by parameter name, row-major.
using Unsharded = std::map<std::string, std::vector<double>>;

// Puts a value of every parameter together from what its owners hold, times `scale`. Throws Error
// if two ranks that own the same element differ in any bit, if a pad row is not zero, or if no rank
// owns an element.
enum class Held : std::uint8_t {
  value,  // of main parameters where there are any
  gradient
};
Unsharded gather(const Plan& plan, const Executor& executor, Held which, double scale = 1);
// The gradients of the last step, divided by its valid tokens and not clipped.
Unsharded gather_gradients(const Plan& plan, const Executor& executor, const Training& training);

struct LargestError {
  double relative = 0;  // norm of the difference over norm of the reference
  std::string tensor;   // where
};
// Over all tensors. A tensor whose reference is nearly zero is measured against `floor` times the
// norm of all together.
LargestError largest_error(const Unsharded& values, const Unsharded& reference,
                           double floor = 1e-3);

// The same step without any parallelism or option that leaves numbers as they are, in fp64.
StepOptions on_one_rank(const StepOptions& options, std::int64_t global_batch);
// What a relative error may be: 1e-12 in fp64, 1e-5 in fp32, 5e-2 in bf16 and 1e-2 in fp16.
double tolerance_of(DType dtype);

struct Verification {
  bool ok = false;
  double loss_error = 0, norm_error = 0;  // relative
  LargestError gradient;
  double tolerance = 0;
  std::string by;  // what it was held to
};
// Runs the first step on one rank in fp64 and compares loss, gradient norm and every gradient.
// `gradients` and `training` are of the mesh's first step. With 16 bits the tolerance is twice the
// error of one rank in the same dtype, else tolerance_of; where fp32 products round their operands
// to TF32, whose mantissa is that of fp16, it is fp16's.
Verification verify_first_step(const ModelConfig& model, const StepOptions& options,
                               std::int64_t global_batch, const TokenSource& source,
                               const InitOptions& init, const Unsharded& gradients,
                               const Training& training, bool tf32 = false);

}  // namespace mb
