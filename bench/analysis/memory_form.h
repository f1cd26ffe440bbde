// Closed form of a rank's memory by class, from model, mesh, options and schedule alone.
//
// It knows nothing of the Plan, so that the Plan's liveness and what allocators count can be held
// against it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "bench/analysis/step_shape.h"
#include "parallel/plan/liveness.h"

namespace mb {

// How a class's closed form relates to the Plan.
enum class FormKind : std::uint8_t {
  exact,    // to the byte
  near,     // messages between stages come on top, and with recomputation or offload a layer's own
  at_most,  // sums that end early give their memory back earlier
  none
};
std::string_view name_of(FormKind kind);
struct MemoryTerm {
  FormKind kind = FormKind::exact;
  std::optional<std::int64_t> bytes = 0;
  std::string_view source;  // of the formula, or why there is none
};
struct MemoryForm {
  std::array<MemoryTerm, kMemoryClasses> classes;
  MemoryTerm host;  // the second memory space
  const MemoryTerm& of(MemoryClass memory) const { return classes[static_cast<int>(memory)]; }
};

// Of every rank that is `rank` in the pipeline. Each class's own largest; they do not all occur at
// once.
//
// parameter, gradient, main_parameter, moment: elements of flat buckets (state_form.h) at their
//   dtype, of those over d owners a slice where ZeRO divides them (Rajbhandari et al., 2020).
// activation: what blocks keep (activation_form.h), summed over the micro-batches that the schedule
//   has between forward and the end of their backward, plus what one layer recomputes. With
//   offloaded activations the device has those of two neighbouring layers, the host the rest.
// gathered: of ZeRO-3, the block at work and the one that is gathered ahead; with reshard=off, all.
// bucket: gradients of one micro-batch on their way to owners, and their copies in reduce_dtype.
MemoryForm memory_form(const StepShape& shape, int rank);

// Chunks whose activations `rank` keeps at once (schedule/closed_form.h); nullopt where its
// schedule has no closed form.
std::optional<std::int64_t> chunks_in_flight(const StepShape& shape, int rank);

}  // namespace mb
