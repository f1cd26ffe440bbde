#include "bench/cli/case.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/support/error.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

using Words = std::vector<std::string>;

Words split(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

Case parse(const std::string& text) { return parse_case(split(text)); }

std::string refusal(const std::string& text) {
  return message_of([&] { parse(text); });
}

void expect_contains(const std::string& message, const Words& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
}

TEST(Case, PrintsBackWhatItWasParsedFrom) {
  for (const char* text :
       {"model=gpt-1m mesh=1 global_batch=4",
        "model=gpt-1m mesh=dp2.pp2.tp2 schedule=gpipe micro_batch=2 global_batch=16 dtype=fp64",
        "model=gpt-tiny model.layers=4 model.norm=post mesh=pp4 global_batch=8 optimizer=sgd "
        "clip=0.0 seed=3",
        "model=gpt-10m mesh=tp2 mode=sim machine=a100x8 machine.nic_gb_per_s=12.5 "
        "global_batch=8",
        "model=gpt-1m mesh=dp16 mode=sim machine=a100x8 straggler=3:1.5,7:2.5 slow_nic=1:2.5 "
        "jitter=gpu:0.01,op:0.03,stalls:0.5,stall_s:1.5 global_batch=64"}) {
    const std::string printed = to_text(parse(text));
    EXPECT_EQ(to_text(parse(printed)), printed);
    for (const std::string& word : split(text))
      EXPECT_NE((" " + printed + " ").find(" " + word + " "), std::string::npos)
          << word << " is not in: " << printed;
  }
}

TEST(Case, QuotesWhatAShellWouldPart) {
  const Case c = parse_case({"data=my text.txt", "model=gpt-1m"});
  EXPECT_NE(to_text(c).find("data='my text.txt'"), std::string::npos);
  EXPECT_EQ(parse_case(split_words(to_text(c))).data, "my text.txt");
  EXPECT_NE(message_of([] { split_words("data='open"); }).find("quote"), std::string::npos);
}

TEST(Case, OfANameParsesAndPrintsBack) {
  for (const NamedCase& named : named_cases()) {
    const std::string printed = to_text(parse(cat("case=", named.name)));
    EXPECT_EQ(to_text(parse(printed)), printed) << named.name;
  }
}

TEST(Case, OfANameIsOverriddenByItsWords) {
  const Case c = parse("global_batch=32 case=first");
  EXPECT_EQ(c.global_batch, 32);
  EXPECT_EQ(c.mesh.to_text(), "dp2.tp2");
}

TEST(Case, TakesWordsInAnyOrder) {
  EXPECT_EQ(to_text(parse("model.layers=2 mesh=pp2 model=gpt-1m")),
            to_text(parse("model=gpt-1m mesh=pp2 model.layers=2")));
}

TEST(Case, CutsTheGlobalBatchIntoMicroBatchesOfEachDataRank) {
  EXPECT_EQ(parse("mesh=dp2 micro_batch=2 global_batch=16").options.micro_batches, 4);
}

TEST(Case, TextbookMeshesHaveTheirMicroBatches) {
  const Case big = parse("case=textbook-100b");
  EXPECT_EQ(big.mesh.world(), 64);
  EXPECT_EQ(big.options.micro_batches, 128);
  EXPECT_EQ(parse("case=dp2-tp4-pp2").options.micro_batches, 8);
}

TEST(Case, PlacesRanksOnNodes) {
  EXPECT_EQ(parse("mesh=dp2.tp2").mesh.node_count(), 1);
  EXPECT_EQ(parse("mesh=dp2.tp2 ranks_per_node=2").mesh.node_of(2), 1);
  EXPECT_EQ(parse("mesh=dp8.tp2 mode=sim").mesh.node_of(8), 1) << "h100x8";
  EXPECT_EQ(parse("mesh=dp2.tp2 nodes=0,1,1,1").mesh.nodes(), (std::vector{0, 1, 1, 1}));
  for (const std::string words : {"mesh=dp2.tp2 ranks_per_node=2", "nodes=0,3 mesh=dp2",
                                  "mesh=dp2.tp2 order=dp,tp nodes=0,0,1,0 mode=sim"}) {
    const std::string printed = to_text(parse(words));
    EXPECT_EQ(to_text(parse(printed)), printed);
    EXPECT_EQ(parse(printed).mesh, parse(words).mesh);
  }
}

TEST(Case, ShapesLinks) {
  const std::string words = "mesh=dp2 link=intra:4GB/s,2us;inter:0.5GB/s/node,20us";
  EXPECT_EQ(parse(words).link->inter.latency_us, 20);
  const std::string printed = to_text(parse(words));
  EXPECT_NE(printed.find("link='intra:"), std::string::npos) << printed;
  EXPECT_EQ(parse_case(split_words(printed)).link, parse(words).link);
  EXPECT_FALSE(parse("link=none").link);
}

TEST(Case, RefusesWhatIsWrongNamingKeyValueAndRemedy) {
  expect_contains(refusal("meesh=dp2"), {"meesh=dp2", "did you mean 'mesh'"});
  expect_contains(refusal("mesh"), {"'mesh'", "key=value"});
  expect_contains(refusal("mesh=dp2 mesh=tp2"), {"mesh", "twice", "dp2", "tp2"});
  expect_contains(refusal("model=gpt2-larg"), {"gpt2-larg", "gpt2-large"});
  expect_contains(refusal("model.layer=2"), {"layer", "layers"});
  expect_contains(refusal("mesh=tp3"), {"tp=3", "heads=4", "1, 2, 4"});
  expect_contains(refusal("mesh=pp5"), {"pp=5", "layers=4", "fewer"});
  expect_contains(
      refusal("model=llama-1m model.hidden=192 model.heads=12 model.kv_heads=4 model.ffn=384 "
              "mesh=tp6"),
      {"tp=6", "kv_heads=4", "multiple"});
  expect_contains(refusal("mesh=dp3 global_batch=8"), {"global_batch=8", "dp=3", "6", "9"});
  expect_contains(refusal("micro_batch=0"), {"micro_batch=0", "at least 1"});
  expect_contains(refusal("schedule=1f2b"), {"1f2b", "did you mean '1f1b'"});
  expect_contains(refusal("dtype=fp31"), {"fp31", "fp32"});
  expect_contains(refusal("mode=thread"), {"thread", "threads"});
  expect_contains(refusal("bucket=12Q"), {"bucket", "12Q"});
  expect_contains(refusal("case=frist"), {"frist", "first"});
  expect_contains(refusal("model=@/nowhere/model.json"), {"/nowhere/model.json", "no such file"});
  expect_contains(refusal("machine=h100"), {"h100", "h100x8"});
  expect_contains(refusal("mode=sim machine.nic_gb_per_s=-1"), {"nic_gb_per_s=-1", "above 0"});
  expect_contains(refusal("mode=sim machine.nic_gb=1"), {"nic_gb", "nic_gb_per_s"});
  expect_contains(refusal("mode=sim data=README.md"), {"data=README.md", "mode=sim"});
  expect_contains(refusal("model=gpt2 mesh=dp512 global_batch=512"), {"512", "256", "mode=sim"});
  expect_contains(refusal("steps=0"), {"steps=0", "at least 1"});
  expect_contains(refusal("steps=4294967297"), {"steps=4294967297", "at most"});
  expect_contains(refusal("micro_batch=4611686018427387904"),
                  {"micro_batch=4611686018427387904", "at most"});
  expect_contains(refusal("model.layers=40000"), {"model.layers=40000", "32767"});
  expect_contains(refusal("model.vocabulary=1"), {"model.vocabulary=1", "at least 2"});
  expect_contains(refusal("micro_batch=1000000000 global_batch=1000000000 model=llama3-405b"),
                  {"micro_batch=1000000000", "smaller"});
  expect_contains(refusal("machine=h100x8"), {"machine=h100x8", "mode=sim"});
  expect_contains(refusal("mode=sim link=intra:1GB/s,1us;inter:1GB/s,1us"),
                  {"link=", "machine.link_gb_per_s"});
  expect_contains(refusal("link=fast"), {"link=fast", "intra:"});
  expect_contains(refusal("order="), {"order=", "tp-dp-pp"});
  expect_contains(refusal("mode=sim ranks_per_node=2"), {"machine.ranks_per_node=2"});
  expect_contains(refusal("mesh=dp2 ranks_per_node=1 nodes=0,1"), {"nodes=", "one of them"});
  expect_contains(refusal("mesh=dp4 nodes=0,1"), {"2 ranks", "4 ranks"});
  expect_contains(refusal("learning_rate=fast"), {"learning_rate", "fast"});
}

TEST(Case, RefusesUnlikeRanksThatAreNotThere) {
  const std::string sim = "mesh=dp4.tp2 mode=sim ";
  expect_contains(refusal("mesh=dp2 straggler=1:2"), {"straggler=1:2", "mode=threads", "mode=sim"});
  expect_contains(refusal("mesh=dp2 jitter=gpu:0.01"), {"jitter=gpu:0.01", "mode=sim"});
  expect_contains(refusal(sim + "straggler=8:2"), {"straggler=8:2", "ranks 0 to 7"});
  expect_contains(refusal(sim + "straggler=1:0.5"), {"straggler=1:0.5", "from 1 to 1000"});
  expect_contains(refusal(sim + "straggler=1"), {"straggler=1", "NUMBER:FACTOR"});
  expect_contains(refusal(sim + "straggler=1:2,1:3"), {"1 is there twice"});
  expect_contains(refusal(sim + "slow_nic=0:2"), {"slow_nic=0:2", "one node"});
  expect_contains(refusal("mesh=dp16 mode=sim slow_nic=2:2"), {"slow_nic=2:2", "nodes 0 to 1"});
  expect_contains(refusal(sim + "jitter=gpu:50"), {"jitter=gpu:50", "0.01 for 1 %"});
  expect_contains(refusal(sim + "jitter=gpus:0.1"), {"gpus", "gpu"});
  expect_contains(refusal(sim + "jitter=stalls:1"), {"stalls:", "stall_s:", "go together"});
}

TEST(Case, ReadsModelsAndMachinesFromTheJsonThatIsPrinted) {
  const std::string path = testing::TempDir() + cat("model.", getpid(), ".json");
  std::ofstream(path) << to_json(find_model("gpt-10m"));
  EXPECT_EQ(parse("model=@" + path).model, find_model("gpt-10m"));
  EXPECT_EQ(to_text(parse("model=@" + path + " model.layers=2 global_batch=4")),
            "model=@" + path + " model.layers=2 mesh=1 global_batch=4");
  const std::string machine = testing::TempDir() + cat("machine.", getpid(), ".json");
  std::ofstream(machine) << to_json(find_machine("a100x8"));
  EXPECT_EQ(parse("mode=sim machine=@" + machine).machine, find_machine("a100x8"));
  std::remove(path.c_str());
  std::remove(machine.c_str());
}

}  // namespace
}  // namespace mb
