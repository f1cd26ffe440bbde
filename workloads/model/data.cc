#include "workloads/model/data.h"

#include <algorithm>
#include <vector>

#include "workloads/base/error.h"

namespace mb {
namespace {

class Batches : public BatchSource {
 public:
  Batches(const TokenSource& source, std::int64_t global_batch, int data_size)
      : source_(source), global_batch_(global_batch), share_(global_batch / data_size) {}

  void load(std::int64_t step, int data_index, int micro_batch, std::int64_t batch,
            std::int64_t sequence, std::int32_t* tokens, std::int32_t* labels) const override {
    const std::int64_t first = micro_batch * batch;
    require(first + batch <= share_, "micro-batch ", micro_batch, " of ", batch,
            " sequences ends past the ", share_, " sequences that a data rank has in a step");
    std::vector<std::int32_t> sample(static_cast<std::size_t>(sequence) + 1);
    for (std::int64_t row = 0; row < batch; ++row) {
      source_.sample(step * global_batch_ + data_index * share_ + first + row, sequence,
                     sample.data());
      if (tokens) tokens = std::copy_n(sample.begin(), sequence, tokens);
      if (labels) labels = std::copy_n(sample.begin() + 1, sequence, labels);
    }
  }

 private:
  const TokenSource& source_;
  std::int64_t global_batch_;
  std::int64_t share_;  // sequences of a data rank per step
};

}  // namespace

std::unique_ptr<BatchSource> make_batches(const TokenSource& source, std::int64_t global_batch,
                                          int data_size) {
  require(data_size >= 1 && global_batch >= 1 && global_batch % data_size == 0, "global batch ",
          global_batch, " does not divide over ", data_size,
          " data ranks; give a positive multiple of that");
  return std::make_unique<Batches>(source, global_batch, data_size);
}

}  // namespace mb
