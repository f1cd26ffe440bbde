#include "workloads/model/parameter.h"

#include "workloads/base/rng.h"

namespace mb {

std::int64_t ParameterSpec::local_rows() const {
  return split == Split::rows ? padded_rows / ways : padded_rows;
}
std::int64_t ParameterSpec::local_columns() const {
  return split == Split::columns ? columns / ways : columns;
}

std::int64_t ParameterSpec::global_index(int shard, std::int64_t local) const {
  std::int64_t row = local / local_columns(), column = local % local_columns();
  if (split == Split::columns) column += shard * local_columns();
  if (split == Split::rows && blocks.empty()) row += shard * local_rows();
  if (split == Split::rows && !blocks.empty()) {
    std::int64_t start = 0;
    for (std::int64_t block : blocks) {
      const std::int64_t part = block / ways;
      if (row < part) {
        row += start + shard * part;
        break;
      }
      row -= part;
      start += block;
    }
  }
  return row < rows ? row * columns + column : -1;
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
