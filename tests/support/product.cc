#include "tests/support/product.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "bench/cli/case.h"
#include "parallel/plan/text.h"
#include "parallel/schedule/schedule.h"
#include "tests/support/pairwise.h"
#include "workloads/base/error.h"

namespace mb::test {
namespace {

enum Factor {
  model,
  schedule,
  dp,
  rdp,
  tp,
  pp,
  cp,
  ep,
  count,
  layout,
  number,
  micro_batch,
  others
};

// The first value of each together is one rank.
std::vector<std::vector<std::string>> choices(const std::vector<std::string>& numbers) {
  std::vector<std::vector<std::string>> values(others);
  values[model] = {"gpt-tiny",   "gpt-tiny model.tied=false",       "gpt-tiny model.norm=post",
                   "llama-tiny", "llama-tiny model.tied=true",      "llama-tiny model.kv_heads=1",
                   "moe-tiny",   "moe-tiny model.capacity_factor=1"};
  values[schedule] = {"1f1b",
                      "gpipe",
                      "zb-h1",
                      "zb-v",
                      "dualpipe-v",
                      "interleaved chunks=1",
                      "interleaved chunks=2",
                      "interleaved chunks=3",
                      "interleaved chunks=2 group=p+1",
                      "interleaved-zb chunks=1",
                      "interleaved-zb chunks=2",
                      "interleaved-zb chunks=3",
                      "@user"};
  values[dp] = {"", ".dp2", ".dp4"};
  values[rdp] = {"", ".rdp2"};
  values[tp] = {"", ".tp2", ".tp4"};
  values[pp] = {"pp1", "pp2", "pp4"};
  values[cp] = {"", ".cp2", ".cp4", ".cp2 context=ulysses", ".cp4 context=ulysses"};
  values[ep] = {"", ".ep2", ".ep4"};
  values[count] = {"p-1", "p", "p+1", "2p"};
  values[layout] = {"even", "automatic", "given", "empty ends"};
  values[number] = numbers;
  values[micro_batch] = {"micro_batch=1", "micro_batch=2"};
  const std::vector<std::vector<std::string>> more = {
      {"", "zero=1", "zero=2", "zero=3", "zero=3 reshard=off"},
      {"", "sequence_parallel=on"},
      {"", "tensor_chunks=2"},
      {"", "order=pp-rdp-dp-ep-cp-tp"},
      {"", "recompute=attention", "recompute=full", "recompute=full recompute_layers=1-2",
       "recompute=attention recompute_micro_batches=1"},
      {"", "dropout=0.2"},
      {"", "offload=optimizer", "offload=activations", "offload=all"},
      {"", "overlap=none", "overlap=gather,sends", "overlap=reduce,sends", "overlap=reduce,gather"},
      {"bucket=20000", "bucket=1", "bucket=25MiB"}};
  values.insert(values.end(), more.begin(), more.end());
  return values;
}

// A schedule that no name has: backwards from the last micro-batch to the first, those of odd ones
// split. Returns its file.
std::string user_schedule(int ranks, int micro_batches) {
  const std::string path = cat(MB_SCRATCH_DIR, "/schedule_", ranks, "_", micro_batches, ".txt");
  static std::set<std::string> written;
  if (!written.insert(path).second) return path;
  std::vector<Slot> order;
  for (int m = 0; m < micro_batches; ++m) order.push_back({Pass::forward, m});
  for (int m = micro_batches - 1; m >= 0; --m)
    order.push_back({m % 2 ? Pass::input_grad : Pass::backward, m});
  for (int m = 1; m < micro_batches; m += 2) order.push_back({Pass::weight_grad, m});
  const std::string own = cat(path, '.', getpid());  // another process may write the same
  std::ofstream(own) << schedule_text(std::vector(ranks, order), Placement::linear);
  std::filesystem::rename(own, path);
  return path;
}

// Layers of every stage.
std::vector<int> layers_of(const std::string& kind, int stages) {
  std::vector<int> layers(stages, stages > 2 ? 1 : 2);
  if (kind == "automatic") layers.back() += std::max(1, stages / 2);
  if (kind == "given") layers.front() += 1;
  if (kind == "empty ends") {
    for (int s = 1; s + 1 < stages; s += 2) layers[s] = 2;
    layers.front() = 0;
    if (stages > 2) layers.back() = 0;
  }
  return layers;
}

class Words {
 public:
  explicit Words(const std::vector<std::string>& numbers) : values_(choices(numbers)) {}

  std::vector<int> counts() const {
    std::vector<int> counts;
    for (const auto& values : values_) counts.push_back(static_cast<int>(values.size()));
    return counts;
  }

  std::string of(const Row& row) const {
    const auto value = [&](int factor) { return values_[factor][row[factor]]; };
    const int ranks = std::stoi(value(pp).substr(2));
    const int micro_batches =
        std::max(1, std::array{ranks - 1, ranks, ranks + 1, 2 * ranks}[row[count]]);
    const std::string order = value(schedule);
    const bool v = order == "zb-v" || order == "dualpipe-v";
    const auto chunks = order.find("chunks=");
    const int stages = ranks * (v ? 2 : chunks == std::string::npos ? 1 : order[chunks + 7] - '0');
    const std::vector<int> layers = layers_of(value(layout), stages);

    std::string mesh = value(pp);
    for (const int axis : {dp, rdp, tp, ep}) mesh += value(axis);
    const std::string context = value(cp);  // the axis, then perhaps a word
    const auto blank = std::min(context.find(' '), context.size());
    mesh += context.substr(0, blank);
    std::string words =
        cat("model=", value(model),
            " model.init_std=0.1 model.layers=", std::accumulate(layers.begin(), layers.end(), 0),
            " mesh=", mesh, context.substr(blank), ' ', value(number));
    if (order == "@user") {
      words += cat(" schedule=@", user_schedule(ranks, micro_batches));
    } else if (order.ends_with("p+1")) {
      words += cat(" schedule=", order.substr(0, order.size() - 3), ranks + 1);
    } else {
      words += cat(" schedule=", order);
    }
    if (value(layout) == "given" || value(layout) == "empty ends") {
      for (int s = 0; s < stages; ++s) words += cat(s == 0 ? " layout=" : ",", layers[s]);
    }
    for (int factor = micro_batch; factor < static_cast<int>(row.size()); ++factor) {
      if (!value(factor).empty()) words += cat(' ', value(factor));
    }
    return cat(words, " global_batch=",
               Mesh::parse(mesh).data_size() * micro_batches * (value(micro_batch).back() - '0'));
  }

 private:
  std::vector<std::vector<std::string>> values_;
};

// Whether it is a case, of few enough ranks. In 16 bits a router's choices may be others than in
// fp64.
bool is_legal(const std::string& words) {
  try {
    const Case c = parse_case(split_words(words));
    return c.mesh.world() <= 8 && (c.model.experts == 1 || size_of(c.options.dtype) > 2);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

Product product_of_choices(const std::vector<std::string>& numbers, int seed) {
  const Words words(numbers);
  const Pairwise design = pairwise(
      words.counts(), [&](const Row& row) { return is_legal(words.of(row)); }, seed);
  Product product{
      .pairs = design.pairs, .impossible = design.impossible, .refused = design.refused};
  for (const Row& row : design.rows) product.cases.push_back(words.of(row));
  return product;
}

}  // namespace mb::test
