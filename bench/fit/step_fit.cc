#include "bench/fit/step_fit.h"

#include <algorithm>
#include <cmath>

#include "bench/fit/collective_fit.h"
#include "parallel/exec/predict.h"
#include "workloads/base/error.h"
#include "workloads/base/suggest.h"

namespace mb {
namespace {

constexpr std::size_t kMostConstants = 3;
constexpr double kLeastSpread = 0.02;  // of a stack: no few rows promise less
// Another constant has to take a tenth off the error of rows that it has not seen, where there is
// one to speak of.
constexpr double kWorthIt = 0.9, kGoodEnough = 0.005;

struct Candidate {
  Constant constant;
  double& (*of)(Stack&);
};
const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> table = {
      {{"compute_share", 0.7, 0.02, 2}, [](Stack& s) -> double& { return s.compute_share; }},
      {{"host_us", 10, 0.05, 1000}, [](Stack& s) -> double& { return s.host_us; }},
      {{"comm_share", 0.7, 0.02, 2}, [](Stack& s) -> double& { return s.comm_share; }},
      {{"memory_share", 0.7, 0.02, 2}, [](Stack& s) -> double& { return s.memory_share; }}};
  return table;
}

class StepModel {
 public:
  StepModel(std::span<const MeasuredStep> steps, const Machine& machine, const Stack& stack)
      : steps_(steps), machine_(machine), stack_(stack) {}

  double seconds(const std::vector<const Candidate*>& chosen, std::span<const double> values,
                 std::size_t row) const {
    Stack stack = stack_;
    for (std::size_t c = 0; c < chosen.size(); ++c) chosen[c]->of(stack) = values[c];
    const MeasuredStep& s = steps_[row];
    return predict(s.model, s.mesh, s.options, machine_, stack).step_s;
  }
  // Whether ten times of it changes a step.
  bool matters(const Candidate& candidate) const {
    for (std::size_t row = 0; row < steps_.size(); ++row) {
      const double low = candidate.constant.start, high = 10 * low;
      const double a = seconds({&candidate}, {&low, 1}, row),
                   b = seconds({&candidate}, {&high, 1}, row);
      if (std::abs(a / b - 1) > 1e-4) return true;
    }
    return false;
  }
  ConstantsFit fit(const std::vector<const Candidate*>& chosen, HoldOut hold_out) const {
    std::vector<Constant> constants;
    std::vector<double> measured;
    for (const Candidate* candidate : chosen) constants.push_back(candidate->constant);
    for (const MeasuredStep& step : steps_) measured.push_back(step.seconds);
    return fit_constants(
        constants, measured,
        [&](std::span<const double> values, std::size_t row) {
          return seconds(chosen, values, row);
        },
        hold_out);
  }

 private:
  std::span<const MeasuredStep> steps_;
  const Machine& machine_;
  Stack stack_;
};

}  // namespace

StepsFit fit_steps(std::span<const MeasuredStep> steps, const Machine& machine, Stack& stack) {
  StepsFit result{.rows = static_cast<int>(steps.size()), .source = sources_of(steps)};
  if (steps.empty()) return result;
  if (steps.size() < rows_wanted(1)) {
    result.refused.push_back(cat("compute_share: ", steps.size(),
                                 " measured steps; one constant "
                                 "takes ",
                                 rows_wanted(1), ", two take ", rows_wanted(2), " and three ",
                                 rows_wanted(3)));
    return result;
  }
  const StepModel model(steps, machine, stack);
  std::vector<const Candidate*> open, chosen;
  for (const Candidate& candidate : candidates()) {
    if (model.matters(candidate)) {
      open.push_back(&candidate);
    } else {
      result.refused.push_back(candidate.constant.name + ": changes none of the measured steps");
    }
  }
  while (!open.empty() && chosen.size() < kMostConstants &&
         steps.size() >= rows_wanted(chosen.size() + 1)) {
    if (result.fit && result.fit->held_out < kGoodEnough) break;
    const Candidate* added = nullptr;
    double least = INFINITY;
    for (const Candidate* candidate : open) {
      auto tried = chosen;
      tried.push_back(candidate);
      const double error = model.fit(tried, HoldOut::no).error;
      if (error < least) least = error, added = candidate;
    }
    auto more = chosen;
    more.push_back(added);
    const ConstantsFit best = model.fit(more, HoldOut::yes);
    if (result.fit && best.held_out > kWorthIt * result.fit->held_out) break;
    result.fit = best;
    chosen = more;
    std::erase(open, added);
  }
  if (!result.fit) return result;
  for (std::size_t c = 0; c < chosen.size(); ++c) {
    result.names.push_back(chosen[c]->constant.name);
    chosen[c]->of(stack) = result.fit->values[c];
  }
  stack.log_sigma = std::max(kLeastSpread, result.fit->log_sigma);
  stack.source = cat(join(result.names), " from ", steps.size(), " steps of ", result.source);
  return result;
}

}  // namespace mb
