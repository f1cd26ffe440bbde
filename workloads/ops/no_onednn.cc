// Stub of onednn.cc for builds without oneDNN.
#include "workloads/base/error.h"
#include "workloads/ops/matmul.h"

namespace mb {
namespace {

constexpr const char* kHint = "this build has no oneDNN; set MB_ONEDNN=ON and install libdnnl-dev";

}  // namespace

bool onednn_available() { return false; }
std::string onednn_version() { throw Error(kHint); }
void onednn_matmul(const MatmulShape&, const float*, const float*, const float*, float*) {
  throw Error(kHint);
}
bool onednn_has_bf16() { return false; }
void onednn_matmul_bf16(const MatmulShape&, const Bf16*, const Bf16*, const Bf16*, void*, bool) {
  throw Error(kHint);
}

}  // namespace mb
