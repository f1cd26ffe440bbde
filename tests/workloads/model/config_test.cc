#include "workloads/model/config.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/error.h"

namespace mb {
namespace {

ModelConfig with(std::string_view name,
                 std::vector<std::pair<std::string_view, std::string_view>> settings) {
  ModelConfig model = find_model(name);
  for (const auto& [field, value] : settings) set_field(model, field, value);
  return model;
}

TEST(PublishedModels, AllFitTogetherAndHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const ModelConfig& model : published_models()) {
    EXPECT_NO_THROW(check_model(model)) << model.name;
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
  }
}

TEST(PublishedModels, HeadsFillTheWidthExceptInQwen3) {
  for (const ModelConfig& model : published_models()) {
    if (model.name == "qwen3-32b") continue;
    EXPECT_EQ(model.heads * model.head_dim, model.hidden) << model.name;
  }
  const ModelConfig qwen = find_model("qwen3-32b");
  EXPECT_EQ(qwen.heads * qwen.head_dim, 8192);
}

TEST(FindModel, SuggestsTheNearestName) {
  const std::string message = message_of([] { find_model("gpt2-mediun"); });
  EXPECT_EQ(
      message.find("model=gpt2-mediun is not known; did you mean 'gpt2-medium'? Known: gpt-tiny,"),
      0)
      << message;
}

TEST(SetField, SetsEveryKindOfField) {
  const ModelConfig model = with("gpt-tiny", {{"model.layers", "3"},
                                              {"arch", "llama"},
                                              {"norm", "post"},
                                              {"tied", "false"},
                                              {"norm_epsilon", "1e-6"},
                                              {"init_std", "0.01"},
                                              {"name", "mine"}});
  EXPECT_EQ(model.layers, 3);
  EXPECT_EQ(model.arch, Arch::llama);
  EXPECT_EQ(model.norm, NormPlace::post);
  EXPECT_FALSE(model.tied);
  EXPECT_EQ(model.norm_epsilon, 1e-6f);
  EXPECT_EQ(model.init_std, 0.01);
  EXPECT_EQ(model.name, "mine");
  EXPECT_EQ(model.ffn, 128);
}

TEST(SetField, UsualSizesFollowHiddenAndHeadsInEitherOrder) {
  for (const ModelConfig& model : {with("gpt-tiny", {{"hidden", "90"}, {"heads", "9"}}),
                                   with("gpt-tiny", {{"heads", "9"}, {"hidden", "90"}})}) {
    EXPECT_EQ(model.head_dim, 10);
    EXPECT_EQ(model.kv_heads, 9);
    EXPECT_EQ(model.ffn, 360);
    EXPECT_NO_THROW(check_model(model));
  }
}

TEST(SetField, SizesThatWereSetApartStay) {
  const ModelConfig model =
      with("gpt-tiny", {{"ffn", "96"}, {"head_dim", "16"}, {"kv_heads", "2"}, {"hidden", "48"}});
  EXPECT_EQ(model.ffn, 96);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.kv_heads, 2);
  EXPECT_EQ(with("llama-tiny", {{"hidden", "64"}}).ffn, 88);
}

TEST(SetField, TellsWhatWouldDo) {
  const auto message = [](std::string_view field, std::string_view value) {
    return message_of([&] { with("gpt2", {{field, value}}); });
  };
  EXPECT_EQ(message("layers", "12.5"),
            "model.layers=12.5: not a whole number; give digits only, such as 24");
  EXPECT_EQ(message("model.layers", "0"), "model.layers=0: give a whole number of at least 1");
  EXPECT_EQ(message("tied", "yes"), "model.tied=yes: give true or false");
  EXPECT_EQ(message("arch", "gpt3"), "model.arch=gpt3: give gpt or llama");
  EXPECT_EQ(message("norm", "Pre"), "model.norm=Pre: give pre or post");
  EXPECT_EQ(message("init_std", "-1"), "model.init_std=-1: give a number above 0");
  EXPECT_EQ(message("rotary_base", "1e60"), "model.rotary_base=1e60: outside the range of fp32");
}

TEST(SetField, OffersTheNearestFieldAndLeavesTheModelAlone) {
  ModelConfig model = find_model("gpt2");
  const std::string message = message_of([&] { set_field(model, "model.hiden", "8"); });
  EXPECT_EQ(message.find("model.hiden is not known; did you mean 'hidden'? Known: name, arch,"), 0)
      << message;
  EXPECT_EQ(model, find_model("gpt2"));
}

TEST(CheckModel, RefusesSizesThatDoNotFit) {
  const auto message = [](ModelConfig model) { return message_of([&] { check_model(model); }); };
  EXPECT_EQ(message(with("gpt-tiny", {{"hidden", "33"}})),
            "model.hidden=33 is not a multiple of model.heads=4; change one, or set "
            "model.head_dim to another size");
  EXPECT_EQ(message(with("gpt-tiny", {{"kv_heads", "3"}})),
            "model.kv_heads=3 does not divide model.heads=4");
  EXPECT_EQ(message(with("llama-tiny", {{"head_dim", "7"}})),
            "model.head_dim=7: rotary positions turn pairs and want an even one");
  EXPECT_EQ(message(with("gpt-tiny", {{"vocabulary", "2147483648"}})),
            "model.vocabulary=2147483648: give a whole number of at least 1 and at most 268435456");
  EXPECT_EQ(message(ModelConfig{}),
            "model.layers=0: give a whole number of at least 1 and at most 32767");
}

TEST(ModelJson, RoundTripsEveryPublishedModel) {
  for (const ModelConfig& model : published_models()) {
    EXPECT_EQ(model_from_json(to_json(model), "test"), model) << model.name;
  }
}

TEST(ModelJson, WritesFloatsWithTheirShortestDigits) {
  EXPECT_NE(to_json(find_model("gpt2")).find("\"norm_epsilon\": 1e-05,"), std::string::npos);
}

TEST(ModelJson, FieldsLeftOutHaveTheirUsualValue) {
  const ModelConfig model = model_from_json(
      R"({"layers": 2, "hidden": 32, "heads": 4, "vocabulary": 97, "sequence": 16})", "m.json");
  EXPECT_EQ(model, with("gpt-tiny", {{"name", "m.json"}}));
}

TEST(ModelJson, ErrorsStartWithTheOrigin) {
  const auto message = [](std::string_view text) {
    return message_of([&] { model_from_json(text, "m.json"); });
  };
  EXPECT_EQ(message("[1]"), "m.json: want one object, {\"layers\": 24, ...}");
  EXPECT_EQ(message(R"({"layers": 2.5})"),
            "m.json: layers=2.5: not a whole number; give digits only, such as 24");
  EXPECT_EQ(message(R"({"layer": 2})").find("m.json: model.layer is not known; did you mean"), 0);
  EXPECT_EQ(message(R"({"layers": 2})"),
            "m.json: model.hidden=0: give a whole number of at least 1 and at most 268435456");
  EXPECT_EQ(message("{").find("m.json: "), 0);
}

TEST(PaddedVocabulary, IsAMultipleTimesTheTensorRanks) {
  EXPECT_EQ(padded_vocabulary(find_model("gpt2"), 1), 50304);
  EXPECT_EQ(padded_vocabulary(find_model("gpt2"), 8), 51200);
  EXPECT_EQ(padded_vocabulary(find_model("gpt-tiny"), 1), 97);
  EXPECT_EQ(padded_vocabulary(find_model("gpt-tiny"), 4), 100);
}

}  // namespace
}  // namespace mb
