// cuDNN's graph interface, loaded at run time: a program runs where there is none.
#pragma once

#include <cudnn_graph.h>

#include <string>

namespace mb::cuda {

// The functions that are called. Of one major version's library: that of the header.
struct CudnnApi {
  decltype(&cudnnGetVersion) version;
  decltype(&cudnnGetErrorString) error_string;
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendGetAttribute) get_attribute;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};

// The library of this machine, or nullptr and why there is none.
struct Cudnn {
  const CudnnApi* api = nullptr;
  std::string reason;
};
const Cudnn& cudnn();

}  // namespace mb::cuda
