#include "bench/cli/case_params.h"

#include "bench/cli/ranks.h"
#include "parallel/comm/launcher.h"
#include "parallel/comm/nccl_world.h"
#include "parallel/strategy/layout.h"
#include "workloads/model/counts.h"

namespace mb {
namespace {

// "4" of "Open MPI v4.1.4, ..." and of "4.1.4".
std::string major_of(const std::string& version) {
  const std::size_t first = version.find_first_of("0123456789");
  if (first == std::string::npos) return "";
  return version.substr(first, version.find_first_not_of("0123456789", first) - first);
}

}  // namespace

std::map<std::string, Fact> params_of(const Case& c) {
  std::map<std::string, Fact> params;
  for (const CaseKey& key : case_keys()) {
    const bool of_sim = key.name == "machine" || key.name == "stack",
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
  // Before a launch, as of meshbench check, nobody knows which MPI it will be.
  if (on_mpi(c.mode) && launcher())
    head.extra_hard["mpi"] =
        cat(mpi_world().library(), ' ', major_of(mpi_world().library_version()));
  if (on_nccl(c.mode)) head.extra_hard["nccl"] = major_of(nccl_versions().library);
  return head;
}

}  // namespace mb
