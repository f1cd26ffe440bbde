#include "tests/support/fixture.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/error.h"
#include "workloads/base/rng.h"
#include "workloads/model/counts.h"

namespace mb {
namespace {

const std::vector<std::string> kNames = {"model_gpt_pre_tied", "model_gpt_post_untied",
                                         "model_llama_untied", "model_moe", "model_moe_capacity"};

TEST(ModelFixtures, HoldAGradientForEveryParameterOfTheModel) {
  for (const std::string& name : kNames) {
    const Fixture fixture = read_fixture(name);
    std::size_t elements = 0;
    for (const std::string& parameter : fixture.parameters()) {
      elements += fixture.array("gradient/" + parameter).size();
      for (const char* kind : {"initial/", "gradient_sums/", "sgd/", "adamw/"}) {
        EXPECT_EQ(fixture.array(kind + parameter).size(), 3u) << kind << parameter;
      }
    }
    EXPECT_EQ(static_cast<std::int64_t>(elements), parameter_count(fixture.model())) << name;
  }
}

TEST(ModelFixtures, HoldTheLogitsAndLabelsOfOneBatch) {
  for (const std::string& name : kNames) {
    const Fixture fixture = read_fixture(name);
    const auto rows = static_cast<std::size_t>(8 * fixture.number("batch"));
    EXPECT_EQ(fixture.array("tokens").size(), rows);
    EXPECT_EQ(fixture.array("labels").size(), rows);
    EXPECT_EQ(fixture.array("logits").size(), rows * 29);
    EXPECT_EQ(fixture.array("adamw_losses").front(), fixture.array("loss").front());
  }
}

TEST(ModelFixtures, NormIsThatOfTheGradients) {
  for (const std::string& name : kNames) {
    const Fixture fixture = read_fixture(name);
    double squares = 0;
    for (const std::string& parameter : fixture.parameters()) {
      squares += fixture.array("gradient_sums/" + parameter)[1];
    }
    EXPECT_NEAR(std::sqrt(squares), fixture.array("gradient_norm").front(), 1e-12) << name;
  }
}

TEST(ModelFixtures, GradientsAgreeWithTheirChecksums) {
  for (const std::string& name : kNames) {
    const Fixture fixture = read_fixture(name);
    for (const std::string& parameter : fixture.parameters()) {
      const auto sums = checksums(parameter, 7, fixture.array("gradient/" + parameter));
      const std::vector<double>& expected = fixture.array("gradient_sums/" + parameter);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(sums[i], expected[i], 1e-5) << parameter;
    }
  }
}

TEST(ModelFixtures, EmbeddingIsDrawnByTheCounterBasedGenerator) {
  const Fixture fixture = read_fixture("model_gpt_pre_tied");
  const std::vector<double>& head = fixture.array("embedding_head");
  for (std::size_t i = 0; i < head.size(); ++i) {
    EXPECT_NEAR(0.2 * random_normal(7, stream_of("embedding.weight"), i), head[i], 1e-15);
  }
}

TEST(ModelFixtures, EveryParameterIsDrawnByItsName) {
  for (const std::string& name : kNames) {
    const Fixture fixture = read_fixture(name);
    const ModelConfig model = fixture.model();
    for (const std::string& parameter : fixture.parameters()) {
      std::vector<double> values(fixture.array("gradient/" + parameter).size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = fixture_parameter(model, parameter, 7, 0.1, i);
      }
      const auto sums = checksums(parameter, 7, values);
      const std::vector<double>& expected = fixture.array("initial/" + parameter);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(sums[i], expected[i], 1e-12) << parameter;
    }
  }
}

TEST(ParseFixture, NamesWhatIsWrong) {
  const auto message = [](std::string_view text) {
    return message_of([&] { parse_fixture(text, "f.txt"); });
  };
  EXPECT_EQ(message("a=1\nx 2\n1 2\n"), "no Error");
  EXPECT_EQ(message("x\n"), "f.txt: 'x' is neither key=value nor name count");
  EXPECT_EQ(message("x 2\n1\n"), "f.txt: x has 1 values, not 2");
  EXPECT_EQ(message("x 1\n1\nx 1\n1\n"), "f.txt: x is there twice");
  EXPECT_EQ(message("x 1\none\n"), "x=one: not a number; give one such as 0.02 or 1e-5");
}

TEST(Fixture, NamesWhatItLacks) {
  const Fixture fixture = parse_fixture("seed=7\nloss 1\n3\n", "f.txt");
  EXPECT_EQ(fixture.number("seed"), 7);
  EXPECT_EQ(message_of([&] { fixture.array("los"); }),
            "the fixture has no array 'los'; did you mean 'loss'?");
  EXPECT_EQ(message_of([&] { fixture.setting("clip"); }), "the fixture has no setting 'clip'");
  EXPECT_NE(message_of([] { read_fixture("model_none"); }).find("model_none.txt: cannot open"),
            std::string::npos);
}

}  // namespace
}  // namespace mb
