// What a rank sends and reduces in a step, as closed forms of model, mesh, options and layout.
//
// They know nothing of the Plan, so that the Plan and what communicators count can be held against
// them number by number. For a pipeline rank with L layers, m micro-batches, n = s b h / cp
// elements between layers, t tensor, c context and e expert ranks, calls of one step:
//
//   tp   layer      2 L m all-reduces of n each way (Shoeybi et al., Megatron-LM, 2019, section 3).
//                   With sequence parallelism 2 gathers and 2 scatters each way, and 2 gathers to
//                   have the inputs of weight gradients again (Korthikanti et al., 2022, section
//                   4.2.2). Beside matmuls that are cut into k runs of rows: k of n / k each
//        embedding  m all-reduces of n; or m scatters and, of its gradient, m gathers
//        head       m all-reduces of n; or 2 m gathers and m scatters
//        loss       m maxima of s b / c and m sums of twice that
//        replicated parameters: the gradients of those whose ranks see a part of the tokens, once
//   tp/k shared key/value heads: their gradients, with those of their bucket
//   cp   layer      ring: (c-1) L m shifts of keys and values forward; backward (c-1) L m again
//                   and c L m of their gradients (Liu et al., 2023). Ulysses: 2 L m all-to-alls
//                   each way, of queries, keys and values and of the result (Jacobs et al., 2023)
//        router balance: L m sums of routing statistics, forward
//   ep   layer      2 L m all-to-alls each way (Lepikhin et al., GShard, 2021), of the tokens'
//                   choices or of all experts' capacity; expert counts before those that drop none
//   pp   m messages of n (n / t with sequence parallelism) each way over every boundary between
//        two ranks: the two halves of a V meet on one
//   dp   gradients  one all-reduce a bucket; with ZeRO reduce-scatters, of stage 2 and 3 in every
//                   micro-batch. parameters: all-gathers, once, or of stage 3 in every pass of a
//                   block that reads them unless they are kept (Rajbhandari et al., 2020)
//   rdp  gradients  each owner's slice, once
//   embedding       a table that both ends of the pipeline hold, once; world: the step's sums, once
//
// Of a layer that is recomputed, what the backward, or a recomputed result, reads is brought back:
// fully, every exchange of the forward but the feed-forward's last sum, whose result is the layer's
// own where norms come first; where they come last, the last norm's backward reads it. The
// attention core alone brings back the ring's shifts, or Ulysses' exchange of its result.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "bench/analysis/step_shape.h"
#include "parallel/comm/collective.h"
#include "parallel/comm/comm.h"
#include "parallel/mesh/mesh.h"

namespace mb {

// What a communication is for.
enum class Site : std::uint8_t {
  embedding,
  layer_forward,
  layer_backward,
  layer_inputs,  // gathered again for weight gradients
  layer_replay,  // of recomputation
  router_balance,
  expert_counts,
  head,
  loss,
  activations,
  gradients,
  parameters,
  replicated_parameters,
  shared_heads,
  tied_embedding,
  step_sums
};
std::string_view name_of(Site site);  // "layer forward"

struct TrafficKey {
  Group group;
  Site site = Site::layer_forward;
  std::optional<CollectiveKind> kind;  // nullopt: sends between pipeline ranks
  auto operator<=>(const TrafficKey&) const = default;
};
std::string_view kind_name(const TrafficKey& key);  // "all_reduce", "send"

// Of one rank in one step. Elements and bytes are those of full vectors, as nccl-tests takes sizes;
// of an all_to_all_v, whose sizes follow the tokens, of the mean rank of the pipeline rank.
using Traffic = std::map<TrafficKey, CommCount>;

Traffic ledger(const StepShape& shape, int pipeline_rank);

// Bytes that a rank puts on the wire if rings carry the collectives (see busbw_factor): 2 (g-1)/g
// of an all-reduce, (g-1)/g of a gather, scatter or all-to-all over g ranks, all of a message.
double wire_bytes(const Mesh& mesh, const TrafficKey& key, std::int64_t bytes);
// Of gradients and parameters over data ranks and their replicas.
double data_wire_bytes(const Mesh& mesh, const Traffic& traffic);

}  // namespace mb
