#include "bench/cli/coll_case.h"

#include <gtest/gtest.h>

#include "tests/support/error.h"

namespace mb {
namespace {

CollCase parse(const std::string& line) { return parse_coll_case(split_words(line)); }

TEST(CollCase, PrintsBackWhatItWasParsedFrom) {
  for (const char* line : {
           "op=all_reduce mesh=dp2 size=1K:16M:x4",
           "op=all mesh=dp2.tp2 axis=all size=1K,1M dtype=fp32,bf16 redop=sum,max root=1",
           "op=all_to_all_v,shift mesh=dp2.pp3 axis=dp.pp,pp groups=one size=4096 in_place=out "
           "algorithm=ring call=stream cache=cold",
           "op=all_reduce mesh=dp4 size=1M algorithm=own,ring,tree",
           "op=all_gather mesh=tp4 nodes=0,0,1,1 size=8M:10G/10 overlap=matmul warm_up=0 "
           "interval=0.05 time_cap=0.1s iterations=6,50 check=off pages=small seed=7 timeout_s=1.5 "
           "inject=rank:3:2000000ns",
           "op=all_reduce mesh=dp2.tp2 ranks_per_node=2 size=1M "
           "'link=intra:4GB/s,2us;inter:0.5GB/s,20us'",
           "op=reduce_scatter mesh=dp2.tp2 beside=all_reduce:tp:1MiB ranks_per_node=2 size=1M",
           "op=all_reduce mesh=dp2.tp8 size=1G mode=sim machine=h200x8 machine.nic_gb_per_s=25",
       }) {
    const std::string text = to_text(parse(line));
    EXPECT_EQ(to_text(parse(text)), text);
    for (const std::string& word : split_words(line)) {
      if (word == "size=1K:16M:x4" || word.starts_with("link=")) continue;  // printed with quotes
      EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
    }
  }
}

TEST(CollCase, DefaultIsTwoRanksHere) {
  const CollCase c = parse("");
  EXPECT_EQ(c.mesh.world(), 2);
  EXPECT_EQ(c.sizes.front(), 1024);
  EXPECT_EQ(c.sizes.back(), 16 << 20);
}

TEST(CollCase, AxisAllIsEveryAxisWithMoreThanOneRank) {
  const CollCase c = parse("mesh=dp2.pp3 axis=all");
  ASSERT_EQ(c.axes.size(), 2u);
  EXPECT_EQ(name_of(c.axes[0]), "dp");
  EXPECT_EQ(name_of(c.axes[1]), "pp");
}

TEST(CollCase, SimulationHasAMachineAndItsNodes) {
  const CollCase c = parse("mesh=dp2.tp8 mode=sim");
  EXPECT_EQ(c.machine_name, "h100x8");
  EXPECT_EQ(c.mesh.node_of(8), 1);
  EXPECT_EQ(parse("mesh=dp2.tp8").mesh.node_of(8), 0);
}

TEST(CollCase, RefusesNamingKeyAndValue) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"op=allreduce", {"op=allreduce", "all_reduce"}},
      {"op=all_reduce,all_reduce", {"twice"}},
      {"opp=all_reduce", {"opp=all_reduce", "op"}},
      {"size=2Mfoo", {"size=2Mfoo: not a size"}},
      {"size=4611686018427387904", {"size=4611686018427387904", "no machine"}},
      {"size=8:4:x2", {"begins above its end"}},
      {"dtype=fp33", {"dtype=fp33", "fp32"}},
      {"redop=summ", {"redop=summ", "sum"}},
      {"op=broadcast root=2", {"root=2", "0 to 1"}},
      {"op=gather mesh=dp4.tp2 axis=dp,tp root=2", {"root=2", "axis tp", "0 to 1"}},
      {"root=-1", {"root=-1"}},
      {"axis=xp", {"axis=xp", "'xp'"}},
      {"axis=dp.dp", {"axis=dp.dp", "twice"}},
      {"axis=all mesh=1", {"axis=all", "more than one rank"}},
      {"mesh=dp0", {"dp0"}},
      {"mesh=dp1000", {"1000", "256"}},
      {"mesh=dp4 nodes=0,0,1", {"nodes"}},
      {"interval=0", {"interval=0", "2%"}},
      {"time_cap=0s", {"time_cap=0s"}},
      {"time_cap=5", {"time_cap=5", "ms"}},
      {"iterations=10", {"iterations=10", "10,20000"}},
      {"iterations=20,10", {"iterations=20,10"}},
      {"iterations=0,10", {"iterations=0"}},
      {"beside=all_reduce:dp", {"beside=all_reduce:dp", "OPERATION:AXIS:SIZE"}},
      {"beside=all_reduce:tp:1M", {"beside=", "axis tp", "one rank"}},
      {"beside=all_reduce:dp:1M overlap=matmul", {"one at a time"}},
      {"inject=rank:2:1ms", {"inject=rank:2", "0 to 1"}},
      {"inject=link:2:1ms", {"inject=link:2:1ms", "rank:RANK:DELAY"}},
      {"inject=rank:1:2", {"inject", "ms"}},
      {"mode=sim overlap=matmul", {"mode=sim"}},
      {"mode=sim call=stream", {"mode=sim", "call=stream"}},
      {"call=later", {"call=later", "blocking"}},
      {"algorithm=own,rnig", {"algorithm=own,rnig", "'rnig'", "did you mean"}},
      {"algorithm=ring,ring", {"algorithm=ring,ring", "twice"}},
      {"algorithm=@nowhere.json", {"algorithm=@nowhere.json", "no such file"}},
      {"mode=gpu", {"mode=gpu"}},
      {"mode=sim link=intra:4GB/s,2us;inter:1GB/s,2us", {"link=", "mode=sim"}},
      {"machine.nic_gb_per_s=1", {"machine="}},
      {"timeout_s=0", {"timeout_s=0"}},
      {"size=1K size=2K", {"twice", "size=1K", "size=2K"}},
      {"1K", {"'1K'", "key=value"}},
  };
  for (const auto& [line, parts] : cases) {
    const std::string message = message_of([line = line] { parse(line); });
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }
}

}  // namespace
}  // namespace mb
