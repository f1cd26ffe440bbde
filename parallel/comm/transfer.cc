// Chooses the instruction set.
#include "parallel/comm/transfer.h"

#include "workloads/ops/cpu_isa.h"

namespace mb {

const TransferKernels& find_transfers(std::string_view isa) {
  const std::string_view found = find_kernels(isa).isa;
  for (const TransferKernels* kernels : {&avx512_transfers, &avx2_transfers}) {
    if (kernels->isa == found) return *kernels;
  }
  return base_transfers;
}

const TransferKernels& transfers() {
  static const TransferKernels& chosen = find_transfers(cpu_kernels().isa);
  return chosen;
}

}  // namespace mb
