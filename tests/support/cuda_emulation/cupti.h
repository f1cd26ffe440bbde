// A TEST DOUBLE of CUPTI's activity records for the emulated devices: what tests control about it.
#pragma once

#include <cstdint>

namespace mb::cuda_emulation {

struct CuptiSettings {
  // What cuptiSubscribe and cuptiActivityEnable return, a CUptiResult.
  int subscribe_status = 0, enable_status = 0;
  std::uint32_t version = 0;  // of the library; 0: that of the header
  // Every n-th record of work has no times, is dropped and counted, or lacks its link; 0: none.
  int zero_every = 0, drop_every = 0, unlink_every = 0;
};
// Also makes it watch the emulated devices; to be called after reset().
void reset_cupti(const CuptiSettings& settings = {});
// External correlation ids of this thread that nobody popped.
int pushes_left();

}  // namespace mb::cuda_emulation
