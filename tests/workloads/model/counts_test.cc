#include "workloads/model/counts.h"

#include <gtest/gtest.h>

#include <map>

namespace mb {
namespace {

// Parameters in billions as their authors tell them; github.com/openai/gpt-2 for GPT-2, table 2.1
// of Brown et al. for GPT-3, table 1 of Narayanan et al., model cards of the released weights.
// Where table 1 prints 1.7, its own equation (2) gives 1.65.
const std::map<std::string, double> kPublishedBillions = {
    {"gpt2", 0.124},      {"gpt2-medium", 0.355}, {"gpt2-large", 0.774}, {"gpt2-xl", 1.558},
    {"gpt3-125m", 0.125}, {"gpt3-350m", 0.350},   {"gpt3-760m", 0.760},  {"gpt3-1.3b", 1.3},
    {"gpt3-2.7b", 2.7},   {"gpt3-6.7b", 6.7},     {"gpt3-13b", 13},      {"gpt3-175b", 175},
    {"sc21-1.7b", 1.65},  {"sc21-3.6b", 3.6},     {"sc21-7.5b", 7.5},    {"sc21-18b", 18.4},
    {"sc21-39b", 39.1},   {"sc21-76b", 76.1},     {"sc21-145b", 145.6},  {"sc21-310b", 310.1},
    {"sc21-530b", 529.6}, {"sc21-1t", 1008.0},    {"gpt-24l", 1.65},     {"gpt-100b", 100},
    {"llama2-7b", 6.74},  {"llama2-13b", 13.0},   {"llama2-70b", 69.0},  {"llama3-8b", 8.03},
    {"llama3-70b", 70.6}, {"llama3-405b", 406},   {"llama3.2-1b", 1.24}, {"llama3.2-3b", 3.21},
    {"qwen3-32b", 32.8},  {"mixtral-8x7b", 46.7}, {"gpt-10m", 0.01065}};

TEST(ParameterCount, IsWithinTwoPercentOfThePublishedOne) {
  for (const auto& [name, billions] : kPublishedBillions) {
    const double count = static_cast<double>(parameter_count(find_model(name)));
    EXPECT_NEAR(count, billions * 1e9, 0.02 * billions * 1e9) << name;
  }
}

TEST(ParameterCount, EveryLargeModelHasAPublishedOne) {
  for (const ModelConfig& model : published_models()) {
    if (parameter_count(model) < 10'000'000) continue;
    EXPECT_TRUE(kPublishedBillions.contains(model.name)) << model.name;
  }
}

TEST(ParameterCount, OfGpt2IsThatOfTheReleasedWeights) {
  EXPECT_EQ(parameter_count(find_model("gpt2")), 124439808);
}

TEST(ParameterCount, OfSmallModelsAddsUp) {
  // gpt-1m: 256 * 128 + 128 * 128 + 4 * (12 * 128^2 + 13 * 128) + 2 * 128.
  EXPECT_EQ(parameter_count(find_model("gpt-1m")), 842496);
  // llama-tiny: 2 * 97 * 32 + 2 * (32 * 64 + 32 * 32 + 3 * 32 * 88 + 2 * 32) + 32.
  EXPECT_EQ(parameter_count(find_model("llama-tiny")), 29408);
}

TEST(ParameterCount, PostNormHasNoFinalNormAndAnUntiedHeadItsOwnTable) {
  const std::int64_t base = parameter_count(find_model("gpt-tiny"));
  ModelConfig post = find_model("gpt-tiny");
  post.norm = NormPlace::post;
  EXPECT_EQ(parameter_count(post), base - 2 * 32);
  ModelConfig untied = find_model("gpt-tiny");
  untied.tied = false;
  EXPECT_EQ(parameter_count(untied), base + 97 * 32);
}

TEST(LayerParameterCount, OfGptIsTwelveHSquaredAndThirteenH) {
  for (const char* name : {"gpt-tiny", "gpt2", "sc21-530b"}) {
    const ModelConfig model = find_model(name);
    EXPECT_EQ(layer_parameter_count(model), 12 * model.hidden * model.hidden + 13 * model.hidden);
  }
}

TEST(ModelFlops, MegatronCountsThePaddedHeadAndHalfTheSquare) {
  const ModelConfig model = find_model("gpt2");
  const double per_token = 6.0 * (12 * 12.0 * 768 * 768 + 50304.0 * 768) + 12 * 6.0 * 1024 * 768;
  EXPECT_EQ(model_flops(model, 8, FlopConvention::megatron), 8 * 1024 * per_token);
}

TEST(ModelFlops, MegatronIsThreeQuartersOfTheRecomputingPaperFormulaButForTheSquare) {
  // Narayanan et al., equation (3): 96 B s l h^2 (1 + s / 6 h + V / 16 l h) with full recompute;
  // 72 of the 96 without, s / 12 h for the causal half, and the head was never recomputed.
  const ModelConfig m = find_model("sc21-145b");
  const double h = 12288, s = 2048, l = 80, v = 51200, batch = 4;
  const double expected = 72 * batch * s * l * h * h * (1 + s / (12 * h) + v / (12 * l * h));
  EXPECT_NEAR(model_flops(m, 4, FlopConvention::megatron) / expected, 1, 1e-12);
}

TEST(ModelFlops, PalmCountsAllParametersAndTheWholeSquare) {
  const ModelConfig gpt = find_model("gpt2");
  EXPECT_EQ(model_flops(gpt, 1, FlopConvention::palm),
            1024 * (6.0 * 124439808 + 12.0 * 12 * 768 * 1024));
}

TEST(ModelFlops, PalmLeavesOutAnUntiedInputTable) {
  const ModelConfig llama = find_model("llama2-7b");
  const double counted = static_cast<double>(parameter_count(llama) - 32000 * 4096);
  EXPECT_EQ(model_flops(llama, 1, FlopConvention::palm),
            4096 * (6 * counted + 12.0 * 32 * 4096 * 4096));
}

TEST(ModelFlops, AttentionIsAsWideAsTheHeadsNotTheModel) {
  ModelConfig model = find_model("qwen3-32b");
  const double wide = model_flops(model, 1, FlopConvention::megatron);
  model.head_dim = 64;
  const double narrow = model_flops(model, 1, FlopConvention::megatron);
  const double weights = 5120.0 * 64 * (2 * 64 + 2 * 8);
  EXPECT_EQ(wide - narrow, 4096 * 64 * (6 * weights + 6.0 * 4096 * 64 * 64));
}

}  // namespace
}  // namespace mb
