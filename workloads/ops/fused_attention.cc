#include "workloads/ops/fused_attention.h"

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "workloads/base/cuda_memory.h"
#include "workloads/ops/cudnn_attention.h"

namespace mb::cuda {
namespace {

constexpr std::size_t kFirstVersion = 90600;  // that clears the sums of dq itself
// Up to this one, gradients are wrong at the end of sequences that are no multiple of 128.
constexpr std::size_t kLastThatPads = 91500;

std::string version_text(std::size_t version) {
  return cat(version / 10000, '.', version % 10000 / 100, '.', version % 100);
}

// Why cuDNN is not even asked; empty if it is.
std::string refusal(const Cudnn& library, const AttentionShape& shape) {
  if (!library.api) return library.reason;
  const std::size_t version = library.api->version();
  if (version < kFirstVersion)
    return cat("cuDNN ", version_text(version), " is older than ", version_text(kFirstVersion));
  if (shape.head_dim % 8 != 0) return cat("heads of ", shape.head_dim, " are no multiple of 8");
  if (shape.gradient && version <= kLastThatPads && shape.sequence % 128 != 0)
    return cat("sequences of ", shape.sequence, " are no multiple of 128, as cuDNN ",
               version_text(version), " wants");
  return "";
}

struct Ready {
  CudnnPlan plan;
  std::vector<CudnnGraph::Tensor> tensors;  // operands, workspace, numbers
  std::vector<std::size_t> workspace_bytes;
  std::array<float, 3> numbers;
};

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

struct FusedAttention::State {
  cudaStream_t stream;
  cudnnHandle_t handle = nullptr;
  std::map<AttentionShape, std::unique_ptr<const Ready>> plans;  // null where there is none
  Memory workspace;
  std::size_t workspace_bytes = 0;

  explicit State(cudaStream_t on) : stream(on) {}
  ~State() {
    plans.clear();
    if (handle) cudnn().api->destroy(handle);
  }

  // Throws Error where the library has no kernels.
  Ready make(const CudnnApi& api, const AttentionShape& shape) {
    if (!handle) {
      check(api, api.create(&handle), "cudnnCreate");
      check(api, api.set_stream(handle, stream), "cudnnSetStream");
    }
    AttentionGraph graph = attention_graph(api, shape);
    Ready made{CudnnPlan(api, handle, std::move(graph.graph)),
               graph.operands,
               {},
               attention_numbers(shape)};
    for (const auto* more : {&graph.workspace, &graph.numbers})
      made.tensors.insert(made.tensors.end(), more->begin(), more->end());
    for (const std::int64_t bytes : graph.workspace_bytes)
      made.workspace_bytes.push_back(aligned(static_cast<std::size_t>(bytes)));
    return made;
  }

  // Nothing may be using the workspace.
  void make_room(const Ready& ready) {
    std::size_t bytes = static_cast<std::size_t>(ready.plan.workspace_bytes());
    for (const std::size_t part : ready.workspace_bytes) bytes += part;
    if (bytes <= workspace_bytes) return;
    workspace = {};
    workspace_bytes = 0;
    workspace = Memory(bytes, "workspace of fused attention");
    workspace_bytes = bytes;
  }

  void run(const AttentionShape& shape, std::vector<void*> operands) {
    const Ready& ready = *plans.at(shape);
    auto* room = static_cast<std::byte*>(workspace.at());
    for (const std::size_t bytes : ready.workspace_bytes) {
      operands.push_back(room);
      room += bytes;
    }
    std::array<float, 3> numbers = ready.numbers;
    for (std::size_t i = 0; operands.size() < ready.tensors.size(); ++i)
      operands.push_back(&numbers[i]);
    ready.plan.run(handle, ready.tensors, operands, room);
  }
};

FusedAttention::FusedAttention(cudaStream_t stream) : state_(std::make_unique<State>(stream)) {}
FusedAttention::~FusedAttention() = default;

bool FusedAttention::prepare(const AttentionShape& shape) {
  const auto known = state_->plans.find(shape);
  if (known != state_->plans.end()) return known->second != nullptr;
  std::unique_ptr<const Ready>& plan = state_->plans[shape];
  std::string reason = refusal(cudnn(), shape);
  if (reason.empty()) {
    try {
      plan = std::make_unique<const Ready>(state_->make(*cudnn().api, shape));
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      reason = error.what();
    }
  }
  if (plan) state_->make_room(*plan);
  note_attention(plan ? cat("cuDNN ", version_text(cudnn().api->version()))
                      : cat("tiles of products: ", reason));
  return plan != nullptr;
}

bool FusedAttention::ready(const AttentionShape& shape) const {
  const auto known = state_->plans.find(shape);
  return known != state_->plans.end() && known->second != nullptr;
}

void FusedAttention::forward(const AttentionShape& shape, const void* q, const void* k,
                             const void* v, void* out, void* lse) const {
  state_->run(shape, {const_cast<void*>(q), const_cast<void*>(k), const_cast<void*>(v), out, lse});
}
void FusedAttention::gradient(const AttentionShape& shape, const void* dout, const void* q,
                              const void* k, const void* v, const void* out, const void* lse,
                              void* dq, void* dk, void* dv) const {
  state_->run(shape,
              {const_cast<void*>(dout), const_cast<void*>(q), const_cast<void*>(k),
               const_cast<void*>(v), const_cast<void*>(out), const_cast<void*>(lse), dq, dk, dv});
}

}  // namespace mb::cuda
