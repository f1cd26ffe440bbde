// A double of what `meshbench doctor` calls of libcuda, NVML and NCCL: two devices, of which the
// first reaches the second, but not the other way. FAKE_DRIVER_ERROR is what cuInit returns.
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {

int cuInit(unsigned) {
  const char* error = std::getenv("FAKE_DRIVER_ERROR");
  return error ? std::atoi(error) : 0;
}
int cuGetErrorString(int code, const char** text) {
  *text = code == 803 ? "system has unsupported display driver / cuda driver combination" : nullptr;
  return *text ? 0 : 1;
}
int cuDriverGetVersion(int* version) { return *version = 12080, 0; }
int cuDeviceGetCount(int* count) { return *count = 2, 0; }
int cuDeviceGetName(char* name, int bytes, int device) {
  return std::snprintf(name, bytes, "Fake %d", device), 0;
}
int cuDeviceGetPCIBusId(char* address, int bytes, int device) {
  return std::snprintf(address, bytes, "0000:%s:00.0", device == 0 ? "1A" : "1B"), 0;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) { return *bytes = std::size_t{80} << 30, 0; }
int cuDeviceGetAttribute(int* value, int which, int) {
  switch (which) {
    case 32:
      return *value = 1, 0;
    case 75:
      return *value = 9, 0;
    case 76:
      return *value = 0, 0;
    default:
      return 1;
  }
}
int cuDeviceCanAccessPeer(int* can, int device, int) { return *can = device == 0, 0; }

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
// The handle is where the address is of.
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  static char first, second;
  *device = std::strstr(address, ":1a:") ? &first : &second;
  return std::strstr(address, ":1b:") ? 6 : 0;  // the second is not found
}
int nvmlDeviceGetPersistenceMode(void*, int* on) { return *on = 1, 0; }
struct Memory {
  unsigned long long total, free, used;
};
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  return *memory = {80ull << 30, 79ull << 30, 1ull << 30}, 0;
}
int nvmlDeviceGetClockInfo(void*, int kind, unsigned* mhz) { return *mhz = 300 + kind, 0; }
int nvmlDeviceGetMaxClockInfo(void*, int kind, unsigned* mhz) { return *mhz = 1900 + kind, 0; }
int nvmlDeviceGetNvLinkState(void*, unsigned link, int* up) {
  return *up = link < 4, link < 6 ? 0 : 2;
}

int ncclGetVersion(int* version) { return *version = 22809, 0; }

}  // extern "C"
