// The table of published models.
#include <array>

#include "workloads/model/config.h"

namespace mb {
namespace {

struct Shape {
  std::string_view name;
  std::int64_t layers, hidden, heads;
};

// GPT with full multi-head attention, ffn = 4 hidden, tied head.
ModelConfig gpt(const Shape& shape, std::int64_t vocabulary, std::int64_t sequence) {
  ModelConfig model;
  model.name = shape.name;
  model.layers = shape.layers;
  model.hidden = shape.hidden;
  model.heads = model.kv_heads = shape.heads;
  model.head_dim = shape.hidden / shape.heads;
  model.ffn = 4 * shape.hidden;
  model.vocabulary = vocabulary;
  model.sequence = sequence;
  return model;
}

// GPT-2's vocabulary, padded to a multiple of 128 as Megatron-LM's --make-vocab-size-divisible-by
// does by default.
ModelConfig gpt_50257(const Shape& shape, std::int64_t sequence) {
  ModelConfig model = gpt(shape, 50257, sequence);
  model.vocabulary_multiple = 128;
  return model;
}

struct LlamaShape {
  Shape shape;
  std::int64_t kv_heads, ffn;
};

ModelConfig llama(const LlamaShape& row, std::int64_t vocabulary, std::int64_t sequence,
                  float rotary_base) {
  ModelConfig model = gpt(row.shape, vocabulary, sequence);
  model.arch = Arch::llama;
  model.kv_heads = row.kv_heads;
  model.ffn = row.ffn;
  model.tied = false;
  model.rotary_base = rotary_base;
  return model;
}

// Radford et al. 2019, table 2, with the sizes of the released weights (github.com/openai/gpt-2).
constexpr std::array kGpt2 = {Shape{"gpt2", 12, 768, 12}, Shape{"gpt2-medium", 24, 1024, 16},
                              Shape{"gpt2-large", 36, 1280, 20}, Shape{"gpt2-xl", 48, 1600, 25}};

// Brown et al. 2020, table 2.1, but for two rows whose printed widths do not fit together: 1.3B has
// 16 heads of 128 (not 24) and 13B a width of 40 * 128 = 5120 (not 5140).
constexpr std::array kGpt3 = {Shape{"gpt3-125m", 12, 768, 12},  Shape{"gpt3-350m", 24, 1024, 16},
                              Shape{"gpt3-760m", 24, 1536, 16}, Shape{"gpt3-1.3b", 24, 2048, 16},
                              Shape{"gpt3-2.7b", 32, 2560, 32}, Shape{"gpt3-6.7b", 32, 4096, 32},
                              Shape{"gpt3-13b", 40, 5120, 40},  Shape{"gpt3-175b", 96, 12288, 96}};

// Narayanan et al., SC 2021, table 1; also examples/academic_paper_scripts/sc21/run_table_1.sh of
// github.com/NVIDIA/Megatron-LM.
constexpr std::array kSc21 = {
    Shape{"sc21-1.7b", 24, 2304, 24},    Shape{"sc21-3.6b", 30, 3072, 32},
    Shape{"sc21-7.5b", 36, 4096, 32},    Shape{"sc21-18b", 40, 6144, 48},
    Shape{"sc21-39b", 48, 8192, 64},     Shape{"sc21-76b", 60, 10240, 80},
    Shape{"sc21-145b", 80, 12288, 96},   Shape{"sc21-310b", 96, 16384, 128},
    Shape{"sc21-530b", 105, 20480, 128}, Shape{"sc21-1t", 128, 25600, 160}};

// Touvron et al. 2023 (Llama 2), and config.json of the released weights.
constexpr std::array kLlama2 = {LlamaShape{{"llama2-7b", 32, 4096, 32}, 32, 11008},
                                LlamaShape{{"llama2-13b", 40, 5120, 40}, 40, 13824},
                                LlamaShape{{"llama2-70b", 80, 8192, 64}, 8, 28672}};

// Llama Team 2024 (The Llama 3 Herd of Models), table 3; sequences of 8192 as in most of its
// pre-training.
constexpr std::array kLlama3 = {LlamaShape{{"llama3-8b", 32, 4096, 32}, 8, 14336},
                                LlamaShape{{"llama3-70b", 80, 8192, 64}, 8, 28672},
                                LlamaShape{{"llama3-405b", 126, 16384, 128}, 8, 53248}};

// config.json of the released Llama 3.2 weights; tied, and here without its rotary scaling.
constexpr std::array kLlama32 = {LlamaShape{{"llama3.2-1b", 16, 2048, 32}, 8, 8192},
                                 LlamaShape{{"llama3.2-3b", 28, 3072, 24}, 8, 8192}};

// config.json of Qwen/Qwen3-32B; pre-trained at 4096 (Qwen3 Technical Report 2025, section 3.2).
// Heads are wider than hidden / heads. Its norms of q and k are left out.
ModelConfig qwen3_32b() {
  ModelConfig model = llama({{"qwen3-32b", 64, 5120, 64}, 8, 25600}, 151936, 4096, 1e6f);
  model.head_dim = 128;
  model.norm_epsilon = 1e-6f;
  return model;
}

// Jiang et al. 2024 (Mixtral of Experts), table 1; with sequences of 4,096 of the 32,768 that it
// takes.
ModelConfig mixtral_8x7b() {
  ModelConfig model = llama({{"mixtral-8x7b", 32, 4096, 32}, 8, 14336}, 32000, 4096, 1e6f);
  model.experts = 8;
  model.experts_per_token = 2;
  return model;
}

// Shapes that a CPU trains in seconds. gpt-10m is nanoGPT's config/train_shakespeare_char.py.
void add_small(std::vector<ModelConfig>& models) {
  models.push_back(gpt({"gpt-tiny", 2, 32, 4}, 97, 16));
  models.push_back(llama({{"llama-tiny", 2, 32, 4}, 2, 88}, 97, 16, 10000.0f));
  ModelConfig moe = models.back();
  moe.name = "moe-tiny";
  moe.experts = 4;
  moe.experts_per_token = 2;
  models.push_back(moe);
  models.push_back(gpt({"gpt-1m", 4, 128, 4}, 256, 128));
  models.push_back(llama({{"llama-1m", 4, 128, 8}, 4, 344}, 256, 128, 10000.0f));
  models.push_back(gpt({"gpt-10m", 6, 384, 6}, 256, 256));
}

std::vector<ModelConfig> make_table() {
  std::vector<ModelConfig> models;
  add_small(models);
  for (const Shape& shape : kGpt2) models.push_back(gpt_50257(shape, 1024));
  for (const Shape& shape : kGpt3) models.push_back(gpt_50257(shape, 2048));
  for (const Shape& shape : kSc21) models.push_back(gpt(shape, 51200, 2048));
  // The 24-layer shape of SC21, and a textbook 100B model of 64 layers: 12 layers hidden^2 = 1e11.
  models.push_back(gpt({"gpt-24l", 24, 2304, 24}, 51200, 2048));
  models.push_back(gpt({"gpt-100b", 64, 11264, 88}, 51200, 2048));
  for (const LlamaShape& row : kLlama2) models.push_back(llama(row, 32000, 4096, 10000.0f));
  for (const LlamaShape& row : kLlama3) models.push_back(llama(row, 128256, 8192, 500000.0f));
  for (const LlamaShape& row : kLlama32) {
    models.push_back(llama(row, 128256, 8192, 500000.0f));
    models.back().tied = true;
  }
  models.push_back(qwen3_32b());
  models.push_back(mixtral_8x7b());
  return models;
}

}  // namespace

const std::vector<ModelConfig>& published_models() {
  static const std::vector<ModelConfig> models = make_table();
  return models;
}

}  // namespace mb
