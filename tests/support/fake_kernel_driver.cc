// What cuDNN calls of libcuda.so.1 while it makes a plan, for tests: kernels are compiled by NVRTC
// and taken here as if they were loaded. There is no device, and nothing can run.
extern "C" {

int cuInit(unsigned) { return 100; }  // CUDA_ERROR_NO_DEVICE, which NVRTC asks for
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = 0, 0; }
int cuGetErrorString(int, const char** text) { return *text = "of a stand-in", 0; }
int cuGetErrorName(int, const char** text) { return *text = "of a stand-in", 0; }

// Handles that nobody follows.
int cuLibraryLoadData(void** handle) { return *handle = handle, 0; }
int cuLibraryGetModule(void** handle) { return *handle = handle, 0; }
int cuLibraryGetKernel(void** handle) { return *handle = handle, 0; }
int cuKernelGetFunction(void** handle) { return *handle = handle, 0; }
int cuModuleGetFunction(void** handle) { return *handle = handle, 0; }
int cuModuleLoadData(void** handle) { return *handle = handle, 0; }

int cuCtxGetCurrent() { return 0; }
int cuCtxGetLimit() { return 0; }
int cuCtxPopCurrent() { return 0; }
int cuCtxPushCurrent() { return 0; }
int cuDeviceGet() { return 0; }
int cuFuncSetAttribute() { return 0; }
int cuFuncSetCacheConfig() { return 0; }
int cuKernelGetAttribute() { return 0; }
int cuKernelSetAttribute() { return 0; }
int cuLaunchCooperativeKernel() { return 0; }
int cuLaunchKernel() { return 0; }
int cuLaunchKernelEx() { return 0; }
int cuLibraryLoadFromFile() { return 0; }
int cuLibraryUnload() { return 0; }
int cuLinkAddData() { return 0; }
int cuLinkComplete() { return 0; }
int cuLinkCreate() { return 0; }
int cuLinkDestroy() { return 0; }
int cuModuleUnload() { return 0; }
int cuOccupancyMaxPotentialClusterSize() { return 0; }
int cuStreamGetCtx() { return 0; }

}  // extern "C"
