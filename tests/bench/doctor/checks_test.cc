#include "bench/doctor/checks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/error.h"

namespace mb {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

NodeFacts good_node() {
  return {.host = "a",
          .kernel = "6.1",
          .online_cores = 8,
          .usable_cores = 8,
          .numa_nodes = 1,
          .memory_bytes = 64 * kGiB,
          .available_bytes = 60 * kGiB,
          .shared_memory_bytes = 32 * kGiB,
          .huge_pages = "madvise",
          .governor = "performance",
          .clock_source = "tsc"};
}

NodeFacts gpu_node() {
  NodeFacts node = good_node();
  node.driver = "570.86.15";
  node.profiling_admin_only = false;
  node.gpus = {{.address = "0000:1a:00.0", .path = {"a"}, .numa_node = 0, .local_cores = "0-3"},
               {.address = "0000:1b:00.0", .path = {"b"}, .numa_node = 0, .local_cores = "0-3"}};
  return node;
}

GpuLibraryFacts good_libraries() {
  GpuFacts gpu{.name = "H100",
               .address = "0000:1a:00.0",
               .memory_bytes = 80 * kGiB,
               .free_bytes = 79 * kGiB,
               .major = 9,
               .minor = 0,
               .ecc = true,
               .persistence = true,
               .clock_mhz = 345,
               .max_clock_mhz = 1980,
               .max_memory_clock_mhz = 2619,
               .links = 18,
               .peers = {true, true}};
  GpuLibraryFacts facts{
      .driver_library = true, .cuda = 13000, .gpus = {gpu, gpu}, .nvml = true, .nccl = 22809};
  facts.gpus[1].address = "0000:1b:00.0";
  return facts;
}

BuiltWith gpu_build() {
  return {.mpis = "openmpi", .cuda = 13000, .architectures = {80, 90}, .nccl = 22809};
}

Check find(const std::vector<Check>& checks, std::string_view name) {
  const auto found = std::find_if(checks.begin(), checks.end(),
                                  [&](const Check& check) { return check.name == name; });
  return found == checks.end() ? Check{.value = "no such check"} : *found;
}

int count(const std::vector<Check>& checks, Verdict verdict) {
  return static_cast<int>(std::count_if(
      checks.begin(), checks.end(), [&](const Check& check) { return check.verdict == verdict; }));
}

// What `change` makes of a node of GPUs that is asked for mode=nccl+threads.
template <class Change>
std::vector<Check> changed(Change change) {
  NodeFacts node = gpu_node();
  GpuLibraryFacts libraries = good_libraries();
  BuiltWith built = gpu_build();
  change(node, libraries, built);
  return diagnose(node, libraries, built, Asked{.gpus = true, .nccl = true});
}

TEST(Checks, AGoodNodeOfGpusIsFitForAll) {
  const auto checks = changed([](auto&, auto&, auto&) {});
  for (const Check& check : checks) {
    EXPECT_EQ(check.verdict, Verdict::ok) << check.name << ": " << check.value;
    EXPECT_EQ(check.advice, "") << check.name;
  }
  EXPECT_EQ(
      find(checks, "GPU 0").value,
      "H100 0000:1a:00.0, 79 GiB free of 80 GiB, sm_90, 345 of 1980 MHz, memory 2619 MHz, ECC "
      "on, persistent");
  EXPECT_EQ(find(checks, "peer access").value, "all pairs, NVLinks up: 36");
  EXPECT_EQ(find(checks, "local rank 1").value, "GPU 1, NUMA node 0, cores 0-3");
  EXPECT_EQ(find(checks, "NCCL").value, "header 2.28.9, library 2.28.9");
}

TEST(Checks, WithoutGpusNothingFailsUnlessAskedFor) {
  const BuiltWith built{.mpis = "openmpi"};
  const auto checks = diagnose(good_node(), {}, built, Asked{});
  EXPECT_EQ(count(checks, Verdict::would_fail), 0);
  EXPECT_EQ(find(checks, "GPUs").value, "none");
  EXPECT_EQ(find(checks, "build").verdict, Verdict::note);
  const auto asked = diagnose(good_node(), {}, built, Asked{.gpus = true, .nccl = true});
  EXPECT_EQ(find(asked, "GPUs").verdict, Verdict::would_fail);
  EXPECT_EQ(find(asked, "build").verdict, Verdict::would_fail);
  EXPECT_EQ(find(asked, "NCCL").verdict, Verdict::would_fail);
  EXPECT_EQ(find(diagnose(good_node(), {}, built, Asked{.gpus = true}), "NCCL").value,
            "no such check");
}

TEST(Checks, EveryFailureSaysWhatToDo) {
  for (const auto& checks : {changed([](auto&, auto&, auto&built) { built = {}; }),
                             changed([](auto&node, auto&libraries, auto&) {
                               node.driver.reset();
                               libraries = {};
                             }),
                             changed([](auto&, auto&libraries, auto&) { libraries = {}; }),
                             changed([](auto&, auto&libraries, auto&) {
                               libraries.gpus.clear();
                               libraries.failure = "no device (100)";
                             })}) {
    EXPECT_GT(count(checks, Verdict::would_fail), 0);
    for (const Check& check : checks) EXPECT_EQ(check.advice.empty(), check.verdict == Verdict::ok);
  }
}

TEST(Checks, GpusWithoutADriverAreToldFromNoGpus) {
  const auto checks = changed([](auto& node, auto& libraries, auto&) {
    node.driver.reset();
    libraries = {};
  });
  EXPECT_EQ(find(checks, "driver").value, "none, for 2 GPUs on the PCI bus");
}

TEST(Checks, ARuntimeOfALaterMajorVersionFailsOfALaterMinorOneIsNoted) {
  const auto with = [](int built, int driver) {
    return find(changed([&](auto&, auto& libraries, auto& build) {
                  build.cuda = built;
                  libraries.cuda = driver;
                }),
                "CUDA runtime");
  };
  EXPECT_EQ(with(13000, 12080).verdict, Verdict::would_fail);
  EXPECT_EQ(with(13010, 13000).verdict, Verdict::note);
  EXPECT_EQ(with(12040, 13000).verdict, Verdict::ok);
  EXPECT_EQ(with(13000, 12080).value, "13.0, the driver's is 12.8");
}

TEST(Checks, ADeviceWithoutCodeFailsOneThatCompilesIsNoted) {
  const auto of = [](int major, int minor, std::vector<int> built) {
    return find(changed([&](auto&, auto& libraries, auto& build) {
                  libraries.gpus[0].major = major;
                  libraries.gpus[0].minor = minor;
                  build.architectures = built;
                }),
                "GPU 0")
        .verdict;
  };
  EXPECT_EQ(of(7, 5, {80, 90}), Verdict::would_fail);
  EXPECT_EQ(of(8, 6, {80, 90}), Verdict::ok);
  EXPECT_EQ(of(12, 0, {80, 90}), Verdict::note);
  EXPECT_EQ(of(8, 0, {86}), Verdict::would_fail);
}

TEST(Checks, PairsWithoutPeerAccessAreNamed) {
  const auto checks = changed([](auto&, auto& libraries, auto&) {
    libraries.gpus[1].peers = {false, true};
    libraries.gpus[0].links = libraries.gpus[1].links = {};
  });
  EXPECT_EQ(find(checks, "peer access").value, "not 1-0, no NVLink up");
  EXPECT_EQ(find(checks, "peer access").verdict, Verdict::note);
}

TEST(Checks, NcclOlderThanItsHeaderFails) {
  const auto checks = changed([](auto&, auto& libraries, auto&) { libraries.nccl = 21805; });
  EXPECT_EQ(find(checks, "NCCL").verdict, Verdict::would_fail);
  EXPECT_EQ(find(checks, "NCCL").value, "header 2.28.9, library 2.18.5");
}

TEST(Checks, WhatOnlyCostsTimeIsNoted) {
  const auto checks = changed([](auto& node, auto& libraries, auto&) {
    node.quota_cores = 2;
    node.clock_source = "hpet";
    node.huge_pages = "never";
    node.governor = "powersave";
    node.shared_memory_bytes = 64 << 20;
    node.profiling_admin_only = true;
    node.locked_memory = "8388608";
    node.cards = {{.name = "mlx5_0", .active = true, .pci = {.path = {"z"}, .numa_node = 1}}};
    libraries.gpus[0].persistence = false;
    libraries.gpus[1].free_bytes = 10 * kGiB;
  });
  EXPECT_EQ(count(checks, Verdict::would_fail), 0);
  for (const std::string_view name :
       {"cores", "time source", "huge pages", "governor", "shared memory", "CUPTI", "locked memory",
        "GPU 0", "GPU 1", "GPUDirect RDMA", "local rank 0"})
    EXPECT_EQ(find(checks, name).verdict, Verdict::note) << name;
  EXPECT_EQ(find(checks, "local rank 0").value,
            "GPU 0, NUMA node 0, cores 0-3, mlx5_0 (across NUMA nodes)");
}

TEST(Checks, MpiThatTheBuildLacksFailsWhereAskedFor) {
  const auto of = [](bool mpi) {
    return find(diagnose(good_node(), {}, {}, Asked{.mpi = mpi}), "MPI").verdict;
  };
  EXPECT_EQ(of(true), Verdict::would_fail);
  EXPECT_EQ(of(false), Verdict::note);
}

TEST(Versions, AreReadFromTheirCodes) {
  EXPECT_EQ(cuda_text(12080), "12.8");
  EXPECT_EQ(nccl_text(22809), "2.28.9");
  EXPECT_EQ(nccl_text(2803), "2.8.3");
}

}  // namespace
}  // namespace mb
