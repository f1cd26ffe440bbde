// How a step's blocks are shared out: which pipeline stage has which layers, and what every rank of
// a mesh holds of a block.
#pragma once

#include <vector>

#include "parallel/mesh/mesh.h"
#include "parallel/strategy/strategy.h"

namespace mb {

Placement placement_of(const StepOptions& options);
// True if some backward is parted into input and weight gradients.
bool splits_backward(const StepOptions& options);
// Stages of a pipeline rank, and all that a schedule is a function of.
PipelineShape pipeline_shape(const Mesh& mesh, const StepOptions& options);
std::vector<std::vector<Slot>> slots_of_step(const Mesh& mesh, const StepOptions& options);
// Layers of every stage of the model, of which there are pp * chunks. Layers that divide evenly
// are, unless options.layout says otherwise; else a stage takes its next layer while it has least
// work, the head counting with its FLOPs.
std::vector<int> stage_layers(const ModelConfig& model, const Mesh& mesh,
                              const StepOptions& options);
BlockShape block_shape(const Mesh& mesh, const StepOptions& options);

}  // namespace mb
