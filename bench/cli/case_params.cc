#include "bench/cli/case_params.h"

#include "parallel/strategy/layout.h"
#include "workloads/model/counts.h"

namespace mb {

std::map<std::string, Fact> params_of(const Case& c) {
  std::map<std::string, Fact> params;
  for (const CaseKey& key : case_keys()) {
    const bool of_sim = key.name == "machine" || key.name == "stack" || key.name == "straggler" ||
                        key.name == "slow_nic" || key.name == "jitter",
               of_cuda = key.name == "profile" || key.name == "graph";
    if ((!of_sim || c.mode == Mode::sim) && (!of_cuda || on_cuda(c.mode)))
      params[std::string(key.name)] = key.get(c);
  }
  params["parameters"] = parameter_count(c.model);
  const PipelineShape shape = pipeline_shape(c.mesh, c.options);
  params["micro_batches"] = static_cast<std::int64_t>(shape.micro_batches);
  params["chunks"] = static_cast<std::int64_t>(shape.chunks);
  params["group"] = static_cast<std::int64_t>(shape.group_or_ranks());
  params["zero"] = static_cast<std::int64_t>(c.options.zero);
  params["dropout"] = c.options.dropout;
  params["first_loss_scale"] = c.options.loss_scale;
  return params;
}

RowHead head_of(const Case& c) {
  RowHead head{.case_line = to_text(c), .params = params_of(c), .seed = c.seed};
  if (c.mode == Mode::sim)
    head.extra_hard["simulated_machine"] = hash_text(to_json(c.machine) + to_json(c.stack));
  return head;
}

}  // namespace mb
