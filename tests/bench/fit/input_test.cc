#include "bench/fit/input.h"

#include <gtest/gtest.h>

#include "tests/support/error.h"

namespace mb {
namespace {

FitRows read(const std::string& text, const std::string& path = "file.txt") {
  FitRows rows;
  read_measurements(text, path, rows);
  return rows;
}
std::string refusal(const std::string& text, const std::string& path = "file.txt") {
  return message_of([&] { read(text, path); });
}
#define EXPECT_REFUSED(text, part) \
  EXPECT_NE(refusal(text).find(part), std::string::npos) << refusal(text)

constexpr const char* kRanks =
    "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5\n"
    "#\n# Using devices\n"
    "#  Rank  0 Group  0 Pid   71 on   node-a device  0 [0x07] NVIDIA H100 80GB HBM3\n"
    "#  Rank  1 Group  0 Pid   72 on   node-a device  1 [0x0f] NVIDIA H100 80GB HBM3\n"
    "#  Rank  2 Group  0 Pid   31 on   node-b device  0 [0x07] NVIDIA H100 80GB HBM3\n"
    "#  Rank  3 Group  0 Pid   32 on   node-b device  1 [0x0f] NVIDIA H100 80GB HBM3\n#\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time "
    "  algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us) "
    " (GB/s)  (GB/s)       \n";
constexpr const char* kRow =
    "     1048576        262144     float     sum      -1    50.00   20.97   31.46      0    51.00 "
    " "
    " 20.56   30.84      0\n";
constexpr const char* kEnd = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 31.1\n#\n";

std::string log(const std::string& rows) { return kRanks + rows + kEnd; }

TEST(NcclLog, HasRanksNodesAndTimesOutOfPlace) {
  const FitRows rows = read(log(kRow));
  ASSERT_EQ(rows.collectives.size(), 1u);
  const CollectiveTime& time = rows.collectives[0];
  EXPECT_EQ(time.kind, CollectiveKind::all_reduce) << "busbw is 3/2 of algbw over 4 ranks";
  EXPECT_EQ(time.spread.ranks, 4);
  EXPECT_EQ(time.spread.nodes, 2);
  EXPECT_EQ(time.spread.on_a_node, 2);
  EXPECT_EQ(time.bytes, 1048576);
  EXPECT_DOUBLE_EQ(time.seconds, 50e-6);
  EXPECT_TRUE(rows.notes.empty());
}

TEST(NcclLog, SaysWhichCollectiveInOneOfThreeWays) {
  const auto kind = [](const std::string& text, const std::string& path) {
    return read(text, path).collectives.at(0).kind;
  };
  const std::string gather =
      "     1048576        262144     float    none      -1    50.00   20.97   15.73      0    "
      "51.00"
      "   20.56   15.42      0\n";
  EXPECT_EQ(kind(log(gather), "x.log"), CollectiveKind::all_gather);
  EXPECT_EQ(kind(log(gather), "runs/alltoall_4.log"), CollectiveKind::all_to_all);
  EXPECT_EQ(kind("# Collective test starting: alltoall_perf\n" + log(gather), "x.log"),
            CollectiveKind::all_to_all);
  const std::string scatter =
      "     1048576        262144     float     sum      -1    50.00   20.97   15.73      0    "
      "51.00"
      "   20.56   15.42      0\n";
  EXPECT_EQ(kind(log(scatter), "x.log"), CollectiveKind::reduce_scatter);
  const std::string rooted =
      "     1048576        262144     float    none       0    50.00   20.97   20.97      0    "
      "51.00"
      "   20.56   20.56      0\n";
  EXPECT_EQ(kind(log(rooted), "x.log"), CollectiveKind::broadcast);
}

TEST(NcclLog, SeveralRunsMayStandInOneFile) {
  const FitRows rows = read("# Collective test starting: all_gather_perf\n" + log(kRow) +
                            "# Collective test starting: all_reduce_perf\n" + log(kRow));
  ASSERT_EQ(rows.collectives.size(), 2u);
  EXPECT_EQ(rows.collectives[0].kind, CollectiveKind::all_gather);
  EXPECT_EQ(rows.collectives[1].kind, CollectiveKind::all_reduce);
  EXPECT_EQ(rows.collectives[1].spread.ranks, 4);
}

TEST(NcclLog, ThatEndsEarlyGivesItsWholeRowsAndSaysSo) {
  const FitRows rows = read(std::string(kRanks) + kRow);
  EXPECT_EQ(rows.collectives.size(), 1u);
  ASSERT_EQ(rows.notes.size(), 1u);
  EXPECT_NE(rows.notes[0].find("ends before its last lines; 1 rows"), std::string::npos);
  EXPECT_REFUSED(std::string(kRanks) + kRow + "     2097152        524288     float     sum",
                 "file.txt:12: a row of 4 columns");
}

TEST(NcclLog, WithWrongDataIsRefused) {
  const std::string wrong =
      "     1048576        262144     float     sum      -1    50.00   20.97   31.46      7    "
      "51.00"
      "   20.56   30.84      0\n";
  EXPECT_REFUSED(log(wrong), "file.txt:11: 7 values were wrong");
  EXPECT_REFUSED(std::string(kRanks) + kRow + "# Out of bounds values : 3 FAILED\n",
                 "file.txt:12: 3 values were wrong");
}

TEST(NcclLog, WithTimesThatAreNoneIsRefused) {
  const auto with = [](const char* time) {
    return log(cat("     1048576        262144     float     sum      -1    ", time,
                   "   20.97   31.46      0    51.00   20.56   30.84      0\n"));
  };
  EXPECT_REFUSED(with("nan"), "file.txt:11: a time of nan us");
  EXPECT_REFUSED(with("0.00"), "file.txt:11: a time of 0.00 us: give a finite time above 0");
  EXPECT_REFUSED(with("5e-2"), "is the time in us");
  EXPECT_REFUSED(with("0.050"), "is the time in us");
  EXPECT_REFUSED(with("50.0us"), "'50.0us' is not a number");
  std::string ms = log(kRow);
  ms.replace(ms.find("(us)"), 4, "(ms)");
  EXPECT_REFUSED(ms, "times in ms");
}

TEST(NcclLog, WithoutItsHeaderOrRowsIsRefused) {
  EXPECT_REFUSED("# algbw\n" + std::string(kRow), "no '# Rank' lines before the rows");
  EXPECT_REFUSED(log(""), "no row of a collective");
  EXPECT_REFUSED("# meshbench coll all_reduce over world\n# time algbw\n",
                 "give the rows that its -o");
}

TEST(Input, OfNoKnownFormIsRefusedWithWhatWouldDo) {
  EXPECT_REFUSED("", "file.txt: is empty");
  EXPECT_REFUSED(" \n\n", "file.txt: is empty");
  EXPECT_REFUSED("hello\nworld\n", "not recognised; give nccl-tests' output");
  EXPECT_REFUSED("\x1f\x8b\x08", "gunzip");
  EXPECT_REFUSED(std::string("a\0b", 3), "is no text");
  EXPECT_REFUSED("{\"a\": 1}", "neither a row of 'meshbench coll'");
  EXPECT_REFUSED("{\"case\": \"x\", \"step_s\": 1", "no JSON from byte");
}

TEST(Csv, HoldsMatmulsOperationsOrSteps) {
  const FitRows matmuls =
      read("device,dtype,m,n,k,time_us\na100,bfloat16,1024,1536,8192,112.981\n");
  EXPECT_EQ(matmuls.operations.at(0).time.op, "matmul 1024x1536x8192 nn bf16");
  EXPECT_DOUBLE_EQ(matmuls.operations[0].time.us, 112.981);
  const FitRows operations = read("# by hand\nop,us\ngelu 128x512,3.5\n");
  EXPECT_EQ(operations.operations.at(0).time.op, "gelu 128x512");
  const FitRows steps = read("case,step_ms\r\n\"model=gpt-1m layout=1,3\",12.5\r\n");
  EXPECT_EQ(steps.steps.at(0).case_line, "model=gpt-1m layout=1,3");
  EXPECT_DOUBLE_EQ(steps.steps[0].seconds, 12.5e-3);
  EXPECT_EQ(steps.steps[0].where, "file.txt:2");
}

TEST(Csv, IsRefusedByLine) {
  EXPECT_REFUSED("m,n,k\n1,2,3\n", "file.txt:1: columns m,n,k,dtype and time_us");
  EXPECT_REFUSED("m,n,k,us,ms\n", "columns 'us' and 'ms' both are times");
  EXPECT_REFUSED("m,n,k,us\n1,2,3\n", "file.txt:2: 3 cells, and the header has 4");
  EXPECT_REFUSED("m,n,k,us\n1,2,3,nan\n", "file.txt:2: us=nan: not a number");
  EXPECT_REFUSED("m,n,k,us\n1,2,0,4\n", "file.txt:2: k=0: give a size above 0");
  EXPECT_REFUSED("m,n,k,us\n1,2,3,4us\n", "file.txt:2: us=4us: not a number");
  EXPECT_REFUSED("m,n,k,dtype,us\n1,2,3,int8,4\n", "file.txt:2: dtype 'int8'");
  EXPECT_REFUSED("m,n,k,us\n", "no row below the header");
}

TEST(JsonRows, HoldStepsUnlessTheyWerePredicted) {
  const FitRows rows = read(
      "{\"case\": \"model=gpt-1m mesh=1\", \"step_ms\": 20}\n\n"
      "{\"case\": \"model=gpt-1m mesh=dp2\", \"metrics\": {\"step_s\": {\"median\": 0.01}}}\n"
      "{\"case\": \"model=gpt-1m mesh=dp4\", \"status\": \"crash\", \"step_s\": 1}\n");
  ASSERT_EQ(rows.steps.size(), 2u);
  EXPECT_DOUBLE_EQ(rows.steps[0].seconds, 0.02);
  EXPECT_DOUBLE_EQ(rows.steps[1].seconds, 0.01);
  EXPECT_NE(rows.notes.at(0).find("file.txt:4: left out: its status is \"crash\""),
            std::string::npos);
  EXPECT_REFUSED("{\"case\": \"x\", \"step_s\": 1, \"step_low_s\": 0.9}",
                 "file.txt:1: a prediction is no measurement");
  EXPECT_REFUSED("{\"case\": \"x\", \"step_s\": null}", "step_s is null, not a number");
  EXPECT_REFUSED("{\"case\": \"x\", \"step_s\": -1}", "give a finite time above 0");
  EXPECT_REFUSED("{\"case\": \"x\", \"step_s\": 1}\n{\"case\": \"y\", \"st", "file.txt:2: no JSON");
}

TEST(JsonRows, HoldWhatOpsBenchWrites) {
  const FitRows rows = read(
      "{\"context\": {}, \"benchmarks\": [{\"name\": \"op/gpt/matmul_512x1536x384_nt_bias\", "
      "\"run_type\": \"iteration\", \"real_time\": 9, \"cpu_time\": 7.5, \"time_unit\": \"us\"}]}");
  EXPECT_EQ(rows.operations.at(0).time.op, "matmul_512x1536x384_nt_bias");
  EXPECT_DOUBLE_EQ(rows.operations[0].time.us, 7.5);
}

TEST(Rows, OfCollectivesLieOnTheNodesThatTheirRanksWereOn) {
  const auto nodes = [](const std::string& mesh) {
    const FitRows rows = read(
        "{\"coll\":{\"operation\":\"all_reduce\",\"axis\":\"world\",\"groups\":1,\"members\":4,"
        "\"ranks\":[0,1,2,3],\"bytes\":1024,\"algorithm\":\"own\",\"injected_delay_s\":null,"
        "\"beside\":{\"operation\":null},\"overlap\":{\"compute\":\"none\"},"
        "\"completion\":{\"p50_s\":1e-3}},\"mesh\":{\"text\":\"dp4\",\"order\":\"tp-cp-ep-dp-rdp-"
        "pp\"," +
        mesh + "}}");
    return rows.collectives.at(0).spread.nodes;
  };
  EXPECT_EQ(nodes("\"nodes\":null,\"ranks_per_node\":8"), 1);
  EXPECT_EQ(nodes("\"nodes\":[0,0,1,1],\"ranks_per_node\":null"), 2) << "hosts of MPI";
}

// One host thread, one stream, 60 kernels of 10 us launched every 5 us; 1 us between kernels.
std::string profile(const char* launch, const char* kernel_category) {
  std::string text = "{\"schemaVersion\": 1, \"traceEvents\": [";
  for (int i = 0; i < 60; ++i) {
    const std::string ts = cat(1700000000000000 + 5 * i), at = cat(1700000000000020 + 11 * i);
    text += cat(i ? "," : "", "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"", launch,
                "\",\"pid\":1,\"tid\":1,\"ts\":", ts,
                ".250,\"dur\":3,\"args\":{\"correlation\":", i, "}},{\"ph\":\"X\",\"cat\":\"",
                kernel_category, "\",\"name\":\"gemm\",\"pid\":0,\"tid\":7,\"ts\":", at,
                ".125,\"dur\":10.000,\"args\":{\"stream\":7,\"correlation\":\"", i, "\"}}");
  }
  return text + "]}";
}

TEST(Trace, TellsHowTheHostLaunchesAndWhatIsBetweenKernels) {
  const FitRows rows = read(profile("cudaLaunchKernel", "kernel"));
  const TraceFacts& facts = rows.traces.at(0);
  EXPECT_DOUBLE_EQ(facts.launch_us.value(), 5);
  EXPECT_DOUBLE_EQ(facts.gap_us.value(), 1) << "times are read from their decimal text";
  EXPECT_DOUBLE_EQ(facts.jitter.value(), 0);
  EXPECT_EQ(facts.kernels, 60);
  EXPECT_EQ(read(profile("hipExtModuleLaunchKernel", "kernel")).traces.at(0).launch_us, 5);
}

TEST(Trace, OfThisProgramHasTheTimesOfOperations) {
  std::string text = "{\"traceEvents\":[";
  for (int i = 0; i < 60; ++i)
    text += cat(i ? "," : "", "{\"ph\":\"X\",\"cat\":\"compute\",\"name\":\"F0\",\"pid\":0,",
                "\"tid\":1000,\"ts\":", 12 * i, ",\"dur\":10,\"args\":{\"instruction\":", i,
                ",\"action\":\"", i % 2 ? "gelu 4x8" : "matmul 8x8x8 nt", "\"}}");
  const FitRows rows = read(text + "]}");
  ASSERT_EQ(rows.operations.size(), 2u);
  EXPECT_EQ(rows.operations[0].time.op, "gelu 4x8");
  EXPECT_DOUBLE_EQ(rows.operations[0].time.us, 10);
  EXPECT_DOUBLE_EQ(rows.traces.at(0).gap_us.value(), 2);
}

// Computes 10 us every 20, sends for 4 us what each has made, 3 us later, and computes on once the
// last of all has been sent.
TEST(Trace, TellsWhatPassesBetweenStreams) {
  std::string text = "{\"traceEvents\":[";
  const auto slice = [&](int thread, int start, int duration, int id, const std::string& after) {
    text += cat(text.ends_with('[') ? "" : ",", "{\"ph\":\"X\",\"cat\":\"",
                thread == 0 ? "compute" : "dp", "\",\"pid\":0,\"tid\":", thread, ",\"ts\":", start,
                ",\"dur\":", duration, ",\"args\":{\"instruction\":", id, after,
                ",\"action\":\"gelu 4x8\"}}");
  };
  for (int i = 0; i < 5; ++i) {
    slice(0, 20 * i, 10, 2 * i, "");
    slice(1, 20 * i + 13, 4, 2 * i + 1, cat(",\"after\":[", 2 * i, "]"));
  }
  slice(0, 106, 1, 10, ",\"after\":[1,9]");  // 9 took until 97
  slice(1, 108, 1, 11, ",\"after\":[0]");    // long after
  const TraceFacts facts = read(text + "]}").traces.at(0);
  EXPECT_EQ(facts.handoffs, 6);
  EXPECT_DOUBLE_EQ(facts.handoff_us.value(), (5 * 3 + 9) / 6.0);
}

TEST(Trace, OperationsTakeTheirMeanWithoutWhatHeldThemUp) {
  std::string text = "{\"traceEvents\":[";
  for (int i = 0; i < 10; ++i)
    text +=
        cat(i ? "," : "", "{\"ph\":\"X\",\"cat\":\"compute\",\"pid\":0,\"tid\":0,\"ts\":", 1000 * i,
            ",\"dur\":",
            i == 0   ? 900
            : i == 1 ? 28
                     : 10,
            ",\"args\":{\"instruction\":", i, ",\"action\":\"gelu 4x8\"}}");
  EXPECT_DOUBLE_EQ(read(text + "]}").operations.at(0).time.us, 12);
}

// An all-reduce of four ranks, and a message as both its ends have it.
TEST(Trace, OfThisProgramHasTheTimesOfItsCommunication) {
  std::string text =
      R"({"traceEvents":[{"ph":"X","cat":"compute","pid":0,"tid":0,"ts":0,"dur":1,"args":{"instruction":0,"action":"gelu 4x8"}})";
  const auto slice = [&](std::string_view action, int bytes, int ranks, double transfer_us) {
    text +=
        cat(R"(,{"ph":"X","cat":"dp","pid":0,"tid":1,"ts":5,"dur":99,"args":{"instruction":1,)",
            R"("action":")", action, R"(","bytes":)", bytes, R"(,"group":"dp","ranks":)", ranks,
            R"(,"nodes":2,"groups_on_a_node":1,"wait_us":3.0,"transfer_us":)", transfer_us, "}}");
  };
  slice("all_reduce sum dp", 64, 4, 10);
  slice("all_reduce sum dp", 64, 4, 14);
  slice("all_reduce sum dp", 128, 4, 20);
  slice("send to stage 1", 4096, 2, 1);
  slice("recv from stage 0", 4096, 2, 8.5);
  slice("all_reduce sum tp", 64, 1, 7);  // moves nothing
  const FitRows rows = read(text + "]}");
  ASSERT_EQ(rows.comm.size(), 3u);
  EXPECT_EQ(rows.comm[0].time, (CommTime{CollectiveKind::all_reduce, 4, 2, 1, 64, 12}));
  EXPECT_EQ(rows.comm[1].time, (CommTime{CollectiveKind::all_reduce, 4, 2, 1, 128, 20}));
  EXPECT_EQ(rows.comm[2].time, (CommTime{CollectiveKind::shift, 2, 2, 1, 4096, 8.5}))
      << "it is there once it is received";
  EXPECT_EQ(rows.comm[2].source, rows.traces.at(0).source);
}

TEST(Trace, ThatIsCutOffOrHasNoKernelIsRefused) {
  const std::string whole = profile("cudaLaunchKernel", "kernel");
  EXPECT_REFUSED(whole.substr(0, whole.size() / 2), "no JSON from byte");
  EXPECT_REFUSED(std::string("{\"traceEvents\": []}"), "a trace without a kernel");
}

}  // namespace
}  // namespace mb
