#include <mutex>

#include "workloads/ops/fused_attention.h"

namespace mb::cuda {
namespace {

struct Notes {
  std::mutex mutex;
  std::set<std::string> backends;
};
Notes& notes() {
  static Notes all;
  return all;
}

}  // namespace

std::set<std::string> attention_backends() {
  const std::lock_guard lock(notes().mutex);
  return notes().backends;
}
void note_attention(const std::string& backend) {
  const std::lock_guard lock(notes().mutex);
  notes().backends.insert(backend);
}

}  // namespace mb::cuda
