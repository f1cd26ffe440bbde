// Reference values for tests of operations, and a way to run an operation on every backend.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "workloads/ops/cpu_isa.h"

namespace mb::testing {

// Uniform in [-1, 1), as noise() of tests/reference/make_ops_fixtures.py; times `scale`.
std::vector<double> noise(std::uint32_t seed, std::int64_t count, double scale = 1);

// One case of a file that make_ops_fixtures.py has written.
struct Case {
  std::string name;
  std::map<std::string, std::int64_t> sizes;
  std::map<std::string, std::vector<double>> tensors;
};
// The cases called `name` in tests/reference/`file`. Throws Error if there is none.
std::vector<Case> load_cases(const std::string& file, const std::string& name);

using Bytes = std::vector<char>;

// A way to compute: instruction set, fp32 matmul and element type.
struct Backend {
  const CpuKernels* kernels;  // null: of a GPU
  bool onednn;
  DType dtype;
  std::string text() const;
};
// All that this machine has in fp32 and fp64. The first is fp64 on the baseline instruction set:
// the reference.
std::vector<Backend> backends();
// The same in bf16 and fp16.
std::vector<Backend> half_backends();
// Runs an operation on operands as they lie in memory. This and backends() are those of the library
// that a test is linked with: of CPUs, or of emulated GPUs.
void run_operation(const Backend& backend, const Op& op, const OpContext& context,
                   std::vector<Bytes>& reads, std::vector<Bytes>& writes);

// Values of an operand, and what its type is, perhaps by that of the operation.
enum class Element { same, main, int32, fp64 };
struct Operand {
  std::vector<double> values;
  Element element = Element::same;
};
Operand indices(std::vector<double> values);
Operand scalars(std::vector<double> values);
// Those of a step with this loss scale, nothing summed yet.
Operand with_loss_scale(double loss_scale);
Operand in_main(Operand operand);
Operand zeros(std::int64_t count);
// Not a number, so that what a kernel must overwrite shows.
Operand garbage(std::int64_t count);

// Runs an operation and returns what it wrote. Operands in both lists of op.h stand in `writes`
// alone, with their values before.
std::vector<std::vector<double>> run_on(const Backend& backend, const OpKind& kind,
                                        const OpContext& context, const std::vector<Operand>& reads,
                                        const std::vector<Operand>& writes);

// The values that `dtype` has next to these.
std::vector<double> rounded(const std::vector<double>& values, DType dtype);

// Fails the test unless |actual - expected| <= tolerance * max(1, |expected|) everywhere.
void expect_close(const std::vector<double>& actual, const std::vector<double>& expected,
                  double tolerance, const std::string& what);
// 1e-11 for fp64, 1e-5 for fp32, times `factor`.
double tolerance(const Backend& backend, double factor = 1);

}  // namespace mb::testing
