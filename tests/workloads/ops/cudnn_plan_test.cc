// That cuDNN itself has fused kernels for the graphs of attention: it compiles them for devices
// that are described and not there. Seconds a graph, most of them NVRTC's; ctest asks for one
// device, and `cudnn_plan_test` with LD_LIBRARY_PATH as in tests/CMakeLists.txt for all.
#include <gtest/gtest.h>

#include <string>

#include "workloads/base/error.h"
#include "workloads/ops/cudnn_attention.h"

namespace mb::cuda {
namespace {

// What cuDNN keeps of a device, as it reads it back.
std::string device_json(int version, int processors, int shared_bytes) {
  return cat(R"({"deviceName":"a device that is described","cudaDeviceId":0,"deviceVer":)", version,
             R"(,"driverVer":13000,"totalGlobalMem":80000000000)",
             R"(,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64])",
             R"(,"regsPerBlock":65536,"multiProcessorCount":)", processors,
             R"(,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":)",
             shared_bytes, R"(,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536)",
             R"(,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048)",
             R"(,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"smClockRateKHz":1980000)",
             R"(,"memClockRateKHz":2619000,"l2CacheSize":52428800})");
}

struct Device {
  const char* name;
  int version, processors, shared_bytes;
};

// Heads that share keys or do not, of 128 or 64, in both types.
std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> all;
  for (const bool gradient : {false, true}) {
    for (const auto& [type, kv_heads, head_dim] :
         {std::tuple{DType::bf16, 32, 128}, {DType::fp16, 8, 64}}) {
      AttentionShape s{type, gradient, 2, 32, kv_heads, head_dim, 2048, 0, 0, 0};
      s.out_row = s.heads * s.head_dim;
      s.q_row = s.kv_row = s.out_row + 2 * s.kv_heads * s.head_dim;
      all.push_back(s);
    }
  }
  return all;
}

class CudnnPlans : public testing::TestWithParam<Device> {};

TEST_P(CudnnPlans, AreThereForAttention) {
  const Cudnn& library = cudnn();
  if (!library.api) GTEST_SKIP() << library.reason;
  if (library.api->version() < 90800) GTEST_SKIP() << "this cuDNN takes no described devices";
  const auto& [name, version, processors, shared_bytes] = GetParam();
  const std::string json = device_json(version, processors, shared_bytes);
  CudnnDescriptor device(*library.api, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set_all(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                 static_cast<std::int64_t>(json.size()), json.data());
  device.finalize("a described device");
  for (const AttentionShape& shape : shapes()) {
    AttentionGraph graph = attention_graph(*library.api, shape);
    const CudnnPlan plan(*library.api, device, std::move(graph.graph));  // throws if there is none
    // No score comes to memory: there are 2^28 of them.
    EXPECT_LT(plan.workspace_bytes(), std::int64_t{1} << 27) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(, CudnnPlans,
                         testing::Values(Device{"Sm80", 800, 108, 166912},
                                         Device{"Sm90", 900, 132, 232448},
                                         Device{"Sm100", 1000, 148, 232448}),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace mb::cuda
