// The end of a step: gradient norm, the step's scalars summed over the world, the update of every
// parameter.
#include "parallel/strategy/stage.h"

namespace mb {

void emit_optimizer(Stage& stage) {
  const std::vector<ParameterTensors>& parameters = stage.builder.program().parameters;
  const auto label = [&](std::uint16_t site) { return stage.label(Pass::optimizer, site); };
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    // The copy of a tied embedding on the last stage holds the same gradient as the first stage's:
    // counted once.
    if (stage.model.tied && !stage.first() && parameters[p].spec.name == "embedding.weight")
      continue;
    stage.builder.emit(Stream::compute, label(stage.sites.norm), Compute{stage.ops.sum_squares[p]},
                       {parameters[p].gradient, stage.scalars}, {stage.scalars});
  }
  if (stage.mesh.world() > 1) {
    stage.builder.emit(Stream::dp, label(stage.sites.scalars),
                       Collective{CollectiveKind::all_reduce, ReduceOp::sum, kWorld},
                       {stage.step_sums}, {stage.step_sums});
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const ParameterTensors& t = parameters[p];
    if (t.m == kNone) {
      stage.builder.emit(Stream::compute, label(stage.sites.optimizer),
                         Compute{stage.ops.update[p]}, {t.gradient, stage.scalars, t.value},
                         {t.value});
    } else {
      stage.builder.emit(Stream::compute, label(stage.sites.optimizer),
                         Compute{stage.ops.update[p]},
                         {t.gradient, stage.scalars, t.value, t.m, t.v}, {t.value, t.m, t.v});
    }
  }
}

}  // namespace mb
