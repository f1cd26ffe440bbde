#include "bench/doctor/gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "workloads/base/error.h"

namespace mb {
namespace {

// A library that may not be there, or may lack what is newer than it.
class Library {
 public:
  explicit Library(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_NOW)) {}
  ~Library() {
    if (handle_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool there() const { return handle_ != nullptr; }
  // What name(arguments...) returns, 0 where all is well; -1 where there is no such function.
  template <class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    void* found = handle_ ? dlsym(handle_, name) : nullptr;
    return found ? reinterpret_cast<int (*)(Arguments...)>(found)(arguments...) : -1;
  }

 private:
  void* handle_;
};

// Of cuda.h: CUdevice_attribute.
enum CudaAttribute { kEcc = 32, kMajor = 75, kMinor = 76 };
// Of nvml.h: nvmlClockType_t.
enum NvmlClock { kSm = 1, kMemory = 2 };
constexpr unsigned kMostLinks = 18;

using Address = std::array<char, 32>;

// NVML and CUDA write "0000:17:00.0" or "00000000:17:00.0" in capitals; the kernel the former.
std::string address_of(const Address& text) {
  std::string address = text.data();
  if (const std::size_t colon = address.find(':'); colon != std::string::npos && colon > 4)
    address.erase(0, colon - 4);
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return address;
}

int attribute(const Library& cuda, CudaAttribute which, int device) {
  int value = 0;
  cuda.call("cuDeviceGetAttribute", &value, static_cast<int>(which), device);
  return value;
}

std::string failure_text(const Library& cuda, int code) {
  const char* text = nullptr;
  if (cuda.call("cuGetErrorString", code, &text) == 0 && text) return cat(text, " (", code, ")");
  return cat("error ", code);
}

GpuFacts gpu_of(const Library& cuda, int device, int count) {
  GpuFacts gpu;
  std::array<char, 128> name{};
  cuda.call("cuDeviceGetName", name.data(), static_cast<int>(name.size()), device);
  Address address{};
  cuda.call("cuDeviceGetPCIBusId", address.data(), static_cast<int>(address.size()), device);
  std::size_t bytes = 0;
  cuda.call("cuDeviceTotalMem_v2", &bytes, device);
  gpu.name = name.data();
  gpu.address = address_of(address);
  gpu.memory_bytes = gpu.free_bytes = static_cast<std::int64_t>(bytes);
  gpu.major = attribute(cuda, kMajor, device);
  gpu.minor = attribute(cuda, kMinor, device);
  gpu.ecc = attribute(cuda, kEcc, device) != 0;
  for (int other = 0; other < count; ++other) {
    int reaches = other == device;
    if (other != device) cuda.call("cuDeviceCanAccessPeer", &reaches, device, other);
    gpu.peers.push_back(reaches != 0);
  }
  return gpu;
}

using NvmlDevice = void*;
struct NvmlMemory {  // nvmlMemory_t
  unsigned long long total, free, used;
};

std::optional<int> clock_of(const Library& nvml, const char* name, NvmlDevice device,
                            NvmlClock which) {
  unsigned mhz = 0;
  if (nvml.call(name, device, static_cast<int>(which), &mhz) != 0) return std::nullopt;
  return static_cast<int>(mhz);
}

// NVML numbers devices otherwise than CUDA_VISIBLE_DEVICES: by address.
void add_nvml(const Library& nvml, GpuFacts& gpu) {
  NvmlDevice device = nullptr;
  if (nvml.call("nvmlDeviceGetHandleByPciBusId_v2", gpu.address.c_str(), &device) != 0) return;
  int on = 0;
  if (nvml.call("nvmlDeviceGetPersistenceMode", device, &on) == 0) gpu.persistence = on != 0;
  if (NvmlMemory memory{}; nvml.call("nvmlDeviceGetMemoryInfo", device, &memory) == 0)
    gpu.free_bytes = static_cast<std::int64_t>(memory.free);
  gpu.clock_mhz = clock_of(nvml, "nvmlDeviceGetClockInfo", device, kSm);
  gpu.max_clock_mhz = clock_of(nvml, "nvmlDeviceGetMaxClockInfo", device, kSm);
  gpu.max_memory_clock_mhz = clock_of(nvml, "nvmlDeviceGetMaxClockInfo", device, kMemory);
  for (unsigned link = 0; link < kMostLinks; ++link) {
    int up = 0;
    if (nvml.call("nvmlDeviceGetNvLinkState", device, link, &up) != 0) break;
    gpu.links = gpu.links.value_or(0) + (up != 0);
  }
}

}  // namespace

GpuLibraryFacts read_gpus(const GpuLibraries& libraries) {
  GpuLibraryFacts facts;
  if (int code = 0; Library(libraries.nccl).call("ncclGetVersion", &code) == 0) facts.nccl = code;
  const Library cuda(libraries.cuda), nvml(libraries.nvml);
  facts.driver_library = cuda.there();
  if (!cuda.there()) return facts;
  if (int version = 0; cuda.call("cuDriverGetVersion", &version) == 0) facts.cuda = version;
  int count = 0;
  int code = cuda.call("cuInit", 0u);
  if (code == 0) code = cuda.call("cuDeviceGetCount", &count);
  if (code != 0) facts.failure = failure_text(cuda, code);
  for (int device = 0; device < count; ++device) facts.gpus.push_back(gpu_of(cuda, device, count));
  facts.nvml = nvml.call("nvmlInit_v2") == 0;
  if (!facts.nvml) return facts;
  for (GpuFacts& gpu : facts.gpus) add_nvml(nvml, gpu);
  nvml.call("nvmlShutdown");
  return facts;
}

}  // namespace mb
