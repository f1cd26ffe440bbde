// The flat layout of a pipeline rank's parameters: from the last to the first, as the backward
// finishes their gradients, end to end in buckets that data ranks reduce, and with ZeRO own slices
// of, as a whole (Rajbhandari et al., ZeRO, 2020; padding as in Megatron-LM's distributed
// optimizer). Parameters whose gradients are summed over different ranks never share a bucket.
#include <algorithm>
#include <map>
#include <tuple>

#include "parallel/strategy/layout.h"
#include "parallel/strategy/stage.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

struct Owner {
  int chunk = 0, block = 0, uses = 0;
  bool early = false;  // its gradient comes with the input gradients of a split backward
};

bool comes_early(const Block& block, int parameter) {
  for (const BlockStep& step : block.backward) {
    for (int t : step.gradients) {
      if (!step.weight_half && block.tensors[t].parameter == parameter) return true;
    }
  }
  return false;
}

class Layout {
 public:
  Layout(Stage& stage, Interner& interner)
      : stage_(stage),
        program_(stage.builder.program()),
        interner_(interner),
        parts_halves_(stage.options.zero >= 2 && splits_backward(stage.options)) {}

  void lay_out(const std::vector<std::vector<Block>>& blocks) {
    declare(blocks);
    for (int p = static_cast<int>(program_.parameters.size()) - 1; p >= 0; --p) assign(p);
    stage_.place.resize(program_.parameters.size());
    stage_.values.assign(program_.parameters.size(), kNone);
    stage_.gradients.assign(program_.parameters.size(), kNone);
    for (int b = 0; b < static_cast<int>(program_.buckets.size()); ++b) finish(b);
  }

 private:
  // Expert, partial, tied, early; chunk, ZeRO-3 block.
  using Kind = std::tuple<bool, bool, bool, bool, int, int>;

  // Each name once, with the block that has it first.
  void declare(const std::vector<std::vector<Block>>& blocks) {
    for (int chunk = 0; chunk < static_cast<int>(blocks.size()); ++chunk) {
      for (int b = 0; b < static_cast<int>(blocks[chunk].size()); ++b) {
        const Block& block = blocks[chunk][b];
        for (int p = 0; p < static_cast<int>(block.parameters.size()); ++p) {
          const ParameterSpec& spec = block.parameters[p];
          const auto [known, is_new] =
              by_name_.try_emplace(spec.name, static_cast<int>(owners_.size()));
          if (is_new) {
            program_.parameters.push_back({spec});
            // Where ranks keep no whole gradient, the one of a micro-batch lives until all of its
            // bucket is there: from I to W for as long as a schedule puts W off.
            owners_.push_back({chunk, b, 0, parts_halves_ && comes_early(block, p)});
            stage_.names.push_back(interner_.name(spec.name));
            stage_.gradient_names.push_back(interner_.name("d." + spec.name));
          }
          ++owners_[known->second].uses;
        }
      }
    }
  }

  bool is_tied_copy(const ParameterSpec& spec) const {
    return stage_.model.tied && spec.name == "embedding.weight" &&
           owners_[by_name_.at(spec.name)].uses == 1 && stage_.ranks * stage_.chunks > 1;
  }

  void assign(int p) {
    Parameter& parameter = program_.parameters[p];
    const ParameterSpec& spec = parameter.spec;
    const Owner& owner = owners_[p];
    const bool tied = is_tied_copy(spec);
    const int block = stage_.options.zero == 3 ? owner.block : 0;
    const Kind kind{spec.experts > 1, spec.partial_gradient, tied, owner.early, owner.chunk, block};
    const std::int64_t limit =
        stage_.options.bucket_bytes / size_of(main_dtype(stage_.options.dtype));
    const auto open = open_.find(kind);
    const std::int64_t own = spec.local_elements();
    // With ZeRO-3 a block is gathered at once, so that its parameters stay together, but for one
    // that another block has too.
    const bool zero3 = stage_.options.zero == 3, alone = zero3 && owner.uses > 1;
    const bool fits = open != open_.end() && !alone &&
                      (zero3 || program_.buckets[open->second].elements + own <= limit);
    const int b = fits ? open->second : static_cast<int>(program_.buckets.size());
    if (!fits) {
      Bucket bucket{.name = interner_.name(cat("bucket ", b)),
                    .owners = stage_.mesh.spanned(spec.experts > 1 ? kExpertOwners : kDataOwners)};
      program_.buckets.push_back(std::move(bucket));
      stage_.facts.push_back({.expert = spec.experts > 1,
                              .partial = spec.partial_gradient,
                              .tied = tied,
                              .early = owner.early});
      if (!alone) open_.insert_or_assign(kind, b);
    }
    Bucket& bucket = program_.buckets[b];
    parameter.bucket = b;
    parameter.offset = bucket.elements;
    for (const ParameterSpec::Run& run : spec.runs()) {
      // The copy on the last stage holds the same gradient as the first stage's: counted once.
      const bool counted_elsewhere = tied && !stage_.is_first(owner.chunk);
      bucket.segments.push_back({bucket.elements + run.begin, bucket.elements + run.end, spec.decay,
                                 counted_elsewhere ? 0 : run.copies});
    }
    bucket.elements += own;
    stage_.facts[b].parameters.push_back(p);
  }

  void finish(int b) {
    Bucket& bucket = program_.buckets[b];
    Stage::BucketFacts& facts = stage_.facts[b];
    const StepOptions& options = stage_.options;
    ProgramBuilder& builder = stage_.builder;
    const DType dtype = options.dtype, main = main_dtype(dtype);
    const std::uint16_t value_name = interner_.name(cat("parameters ", b));
    bucket.ways = options.zero > 0 ? stage_.mesh.group_size(bucket.owners) : 1;
    bucket.elements = (bucket.elements + bucket.ways - 1) / bucket.ways * bucket.ways;
    bucket.whole_value = options.zero < 3 || bucket.ways == 1;
    bucket.whole_gradient = options.zero < 2 || bucket.ways == 1;
    const auto elements = [&](bool whole) { return whole ? bucket.elements : bucket.slice(); };
    bucket.value =
        builder.persistent(value_name, elements(bucket.whole_value), dtype, MemoryClass::parameter);
    bucket.gradient = builder.persistent(bucket.name, elements(bucket.whole_gradient), main,
                                         MemoryClass::gradient);
    const bool host = options.offload_optimizer;
    if (dtype != main)
      bucket.main = builder.persistent(interner_.name(cat("main ", b)), bucket.slice(), main,
                                       MemoryClass::main_parameter, host);
    if (options.optimizer.kind == Optimizer::adamw) {
      bucket.m = builder.persistent(interner_.name(cat("m ", b)), bucket.slice(), main,
                                    MemoryClass::moment, host);
      bucket.v = builder.persistent(interner_.name(cat("v ", b)), bucket.slice(), main,
                                    MemoryClass::moment, host);
    }
    facts.gathered = interner_.name(cat("gathered ", b));
    facts.gradient = interner_.name(cat("gradients ", b));
    facts.reduced = interner_.name(cat("reduced ", b));
    for (std::size_t i = 0; i < facts.parameters.size(); ++i) {
      const int p = facts.parameters[i];
      const Parameter& parameter = program_.parameters[p];
      const std::int64_t own = parameter.spec.local_elements();
      stage_.place[p] = static_cast<int>(i);
      if (bucket.whole_value)
        stage_.values[p] = builder.view(bucket.value, stage_.names[p], parameter.offset, own,
                                        MemoryClass::parameter);
      if (bucket.whole_gradient)
        stage_.gradients[p] = builder.view(bucket.gradient, stage_.gradient_names[p],
                                           parameter.offset, own, MemoryClass::gradient);
    }
    make_ops(bucket, facts);
  }

  void make_ops(const Bucket& bucket, Stage::BucketFacts& facts) {
    const StepOptions& options = stage_.options;
    const OptimizerOptions& o = options.optimizer;
    const FlatSlice slice{bucket.slice(), bucket.ways, facts.expert, bucket.segments};
    const auto op = [&](OpKind kind) { return interner_.op({std::move(kind), options.dtype}); };
    facts.norm = op(GradientNorm{slice, bucket.whole_gradient});
    facts.update = op(UpdateParameters{
        .slice = slice,
        .whole_gradient = bucket.whole_gradient,
        .whole_value = bucket.whole_value,
        .moments = o.kind == Optimizer::adamw,
        .learning_rate = o.learning_rate,
        .beta1 = o.beta1,
        .beta2 = o.beta2,
        .epsilon = o.epsilon,
        .weight_decay = o.weight_decay,
        .clip = o.clip,
    });
    const std::int64_t sum = bucket.whole_gradient ? bucket.elements : bucket.slice();
    facts.cast_to_main = op(Cast{sum, true});
    facts.cast_from_main = op(Cast{bucket.elements, false});
    facts.start_sum = op(Accumulate{bucket.slice(), false});
    facts.add = op(Accumulate{bucket.slice(), true});
  }

  Stage& stage_;
  Program& program_;
  Interner& interner_;
  bool parts_halves_;
  std::map<std::string, int> by_name_;
  std::vector<Owner> owners_;  // by parameter
  std::map<Kind, int> open_;   // buckets that take more
};

}  // namespace

void lay_out_parameters(Stage& stage, const std::vector<std::vector<Block>>& blocks,
                        Interner& interner) {
  Layout(stage, interner).lay_out(blocks);
}

}  // namespace mb
