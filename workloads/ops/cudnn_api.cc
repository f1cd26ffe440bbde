#include "workloads/ops/cudnn_api.h"

#include <dlfcn.h>

#include "workloads/base/error.h"

namespace mb::cuda {
namespace {

template <class Function>
bool load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Cudnn load_cudnn() {
  const std::string file = cat("libcudnn.so.", CUDNN_MAJOR);
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return {nullptr, cat("cuDNN is not there: ", dlerror())};
  static CudnnApi api;
  const bool whole = load(library, "cudnnGetVersion", api.version) &&
                     load(library, "cudnnGetErrorString", api.error_string) &&
                     load(library, "cudnnCreate", api.create) &&
                     load(library, "cudnnDestroy", api.destroy) &&
                     load(library, "cudnnSetStream", api.set_stream) &&
                     load(library, "cudnnBackendCreateDescriptor", api.create_descriptor) &&
                     load(library, "cudnnBackendDestroyDescriptor", api.destroy_descriptor) &&
                     load(library, "cudnnBackendSetAttribute", api.set_attribute) &&
                     load(library, "cudnnBackendGetAttribute", api.get_attribute) &&
                     load(library, "cudnnBackendFinalize", api.finalize) &&
                     load(library, "cudnnBackendExecute", api.execute);
  if (!whole) return {nullptr, cat(file, " lacks a function of its interface: ", dlerror())};
  return {&api, ""};
}

}  // namespace

const Cudnn& cudnn() {
  static const Cudnn found = load_cudnn();
  return found;
}

}  // namespace mb::cuda
