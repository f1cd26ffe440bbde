#include "workloads/model/parameter.h"

#include "workloads/base/rng.h"

namespace mb {
namespace {

// Different parts of a block over `ways` shards.
int parts_of(const RowBlock& block, int ways) { return block.parts ? block.parts : ways; }

}  // namespace

std::int64_t ParameterSpec::local_rows(const RowBlock& block) const {
  return block.rows / parts_of(block, ways);
}
std::int64_t ParameterSpec::local_rows() const {
  if (split != Split::rows) return padded_rows;
  if (blocks.empty()) return padded_rows / ways;
  std::int64_t sum = 0;
  for (const RowBlock& block : blocks) sum += local_rows(block);
  return sum;
}
std::int64_t ParameterSpec::local_columns() const {
  return split == Split::columns ? columns / ways : columns;
}

std::int64_t ParameterSpec::global_index(int shard, int expert_shard, std::int64_t local) const {
  const std::int64_t matrix = local_rows() * local_columns();
  const std::int64_t first_expert = expert_ways > 1 ? expert_shard * (experts / expert_ways) : 0;
  const std::int64_t expert = first_expert + local / matrix;
  local %= matrix;
  std::int64_t row = local / local_columns(), column = local % local_columns();
  if (split == Split::columns) column += shard * local_columns();
  if (split == Split::rows && blocks.empty()) row += shard * local_rows();
  if (split == Split::rows && !blocks.empty()) {
    std::int64_t start = 0;
    for (const RowBlock& block : blocks) {
      const std::int64_t part = local_rows(block);
      if (row < part) {
        row += start + shard / (ways / parts_of(block, ways)) * part;
        break;
      }
      row -= part;
      start += block.rows;
    }
  }
  return row < rows ? (expert * rows + row) * columns + column : -1;
}

std::vector<ParameterSpec::Run> ParameterSpec::runs() const {
  if (split == Split::none) return {{0, local_elements(), ways}};
  if (blocks.empty()) return {{0, local_elements(), 1}};
  std::vector<Run> runs;
  std::int64_t at = 0;
  for (std::int64_t expert = 0; expert < experts / expert_ways; ++expert) {
    for (const RowBlock& block : blocks) {
      const std::int64_t end = at + local_rows(block) * local_columns();
      const int copies = ways / parts_of(block, ways);
      if (!runs.empty() && runs.back().copies == copies) {
        runs.back().end = end;
      } else {
        runs.push_back({at, end, copies});
      }
      at = end;
    }
  }
  return runs;
}

double initial_value(const ParameterSpec& spec, const InitOptions& options,
                     std::int64_t global_index) {
  const auto normal = [&] {
    return random_normal(options.seed, stream_of(spec.name),
                         static_cast<std::uint64_t>(global_index));
  };
  if (spec.init == Init::normal) return spec.init_std * normal();
  return (spec.init == Init::ones ? 1.0 : 0.0) + (options.perturbed ? 0.1 * normal() : 0.0);
}

}  // namespace mb
