// A stream of a device as its own library names it.
#pragma once

namespace mb {

struct NativeStream {
  int device = 0;          // of this process
  void* stream = nullptr;  // a cudaStream_t
};

}  // namespace mb
