#include "bench/choose/closed_form.h"

#include "bench/choose/step_form.h"
#include "bench/choose/step_parts.h"
#include "parallel/strategy/layout.h"

namespace mb {

EstimateError error_of(const Mesh& mesh, const StepOptions& options, const Stack& stack) {
  EstimateError error;
  const auto add = [&](double share) { error.form += share, error.walk += share; };
  const int ranks = mesh.size(Axis::pp), m = options.micro_batches;
  const bool unsettled = ranks > 1 && m < 4 * ranks;
  if (unsettled) add(0.07);
  if (ranks > 1 && m <= ranks) error.form += 0.16, error.walk += 0.07;
  if (stack.host_us > 0) add(0.06);
  if (options.zero >= 2) add(unsettled ? 0.33 : 0.13);
  if (options.zero >= 2 && splits_backward(options)) error.walk += 0.10;
  if (mesh.size(Axis::cp) > 1) add(0.03);
  if (options.schedule == "dualpipe-v") add(0.05);
  if (options.offload_activations) add(0.10), error.memory += 0.30;
  if (options.offload_optimizer) add(0.15);
  if (options.zero == 3) error.memory += options.offload_optimizer ? 0.14 : 0.06;
  // What a stack keeps beside the Plan is not counted; these gradients take less.
  if (stack.deepspeed_gradients) error.memory += 0.35;
  return error;
}

ClosedForm::ClosedForm(const ModelConfig& model, const Machine& machine, const Stack& stack)
    : shared_(std::make_shared<SharedParts>()),
      parts_(std::make_unique<StepParts>(model, machine, stack, shared_)) {}
ClosedForm::ClosedForm(const ClosedForm& other)
    : shared_(other.shared_),
      parts_(std::make_unique<StepParts>(other.parts_->model(), other.parts_->machine(),
                                         other.parts_->stack(), shared_)) {}
ClosedForm::~ClosedForm() = default;

Estimate ClosedForm::estimate(const Mesh& mesh, const StepOptions& options) {
  parts_->set_mesh(mesh);
  const StepForm step(*parts_, options);
  return {step.formula_s(), step.memory_bytes()};
}

double ClosedForm::walked_s(const Mesh& mesh, const StepOptions& options) {
  parts_->set_mesh(mesh);
  return StepForm(*parts_, options).walked_s();
}

}  // namespace mb
