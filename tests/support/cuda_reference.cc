// Operations of tests by the kernels of GPUs.
#include <gtest/gtest.h>

#include <memory>

#include "tests/support/devices.h"
#include "tests/support/reference.h"
#include "workloads/base/cuda_check.h"
#include "workloads/ops/cuda_ops.h"

namespace mb::testing {
namespace {

// An operand in device memory.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes > 0) check(cudaMalloc(&at_, bytes), "cudaMalloc");
  }
  ~Buffer() { cudaFree(at_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* at() const { return at_; }
  void put(const Bytes& bytes, cudaStream_t stream) const {
    check(cudaMemcpyAsync(at_, bytes.data(), bytes_, cudaMemcpyHostToDevice, stream), "copy");
  }
  void get(Bytes& bytes, cudaStream_t stream) const {
    check(cudaMemcpyAsync(bytes.data(), at_, bytes_, cudaMemcpyDeviceToHost, stream), "copy");
  }

 private:
  void* at_ = nullptr;
  std::size_t bytes_;
};

// One stream for all operations, whose workspace is poisoned once.
struct Stream {
  cudaStream_t stream = nullptr;
  std::unique_ptr<cuda::StreamOps> ops;
  Stream() {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    ops = std::make_unique<cuda::StreamOps>(stream, cuda::StreamOptions{});
  }
};
const Stream& the_stream() {
  static const auto& made = *new Stream;  // as long as the devices
  return made;
}

}  // namespace

std::string Backend::text() const { return cat("GPU, ", name_of(dtype)); }

std::vector<Backend> backends() {
  return {{nullptr, false, DType::fp64}, {nullptr, false, DType::fp32}};
}

void run_operation(const Backend&, const Op& op, const OpContext& context,
                   std::vector<Bytes>& reads, std::vector<Bytes>& writes) {
  const auto& [stream, ops] = the_stream();
  {
    std::vector<std::unique_ptr<Buffer>> in, out;
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const Bytes& bytes : reads) {
      in.push_back(std::make_unique<Buffer>(bytes.size()));
      in.back()->put(bytes, stream);
      from.push_back(in.back()->at());
    }
    for (const Bytes& bytes : writes) {
      out.push_back(std::make_unique<Buffer>(bytes.size()));
      out.back()->put(bytes, stream);
      to.push_back(out.back()->at());
    }
    ops->prepare(op);
    ops->run(op, context, from, to);
    for (std::size_t i = 0; i < writes.size(); ++i) out[i]->get(writes[i], stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  EXPECT_EQ(test::device_faults(), std::vector<std::string>{});
}

}  // namespace mb::testing
