#include "bench/report/fingerprint.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "bench/report/build.h"

namespace mb {
namespace {

TEST(Fingerprint, IdFollowsFromTheHardFactsAlone) {
  const Fingerprint a = fingerprint(), b = fingerprint();
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.id.size(), 16u);
  EXPECT_NE(a.id, fingerprint({{"machine_hash", std::string("x")}}).id);
}

TEST(Fingerprint, KnowsTheCpusThatThisProcessMayUse) {
  const auto cpus = std::get<std::int64_t>(fingerprint().hard.at("usable_cpus"));
  EXPECT_GE(cpus, 1);
}

TEST(Fingerprint, WhichGpusAreShownDoesNotMatter) {
  const std::string before = fingerprint().id;
  setenv("CUDA_VISIBLE_DEVICES", "3", 1);
  EXPECT_EQ(fingerprint().id, before);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(Fingerprint, HashIsFnv1a) {
  EXPECT_EQ(hash_text(""), "cbf29ce484222325");
  EXPECT_EQ(hash_text("a"), "af63dc4c8601ec8c");
}

TEST(Environment, OnlyListedVariablesArePublishedAndNoSecret) {
  setenv("OMP_NUM_THREADS", "3", 1);
  setenv("MB_API_TOKEN", "x", 1);
  setenv("SOMETHING_ELSE", "x", 1);
  const auto published = published_environment();
  EXPECT_EQ(published.at("OMP_NUM_THREADS"), "3");
  EXPECT_FALSE(published.contains("MB_API_TOKEN"));
  EXPECT_FALSE(published.contains("SOMETHING_ELSE"));
}

TEST(Environment, WhatMpirunSetsAnewEachTimeIsNotPublished) {
  const std::string before = fingerprint().id;
  setenv("OMPI_MCA_orte_hnp_uri", "1.0;tcp://127.0.0.1:1", 1);
  setenv("OMPI_MCA_initial_wdir", "/", 1);
  EXPECT_EQ(fingerprint().id, before);
  setenv("OMPI_MCA_btl", "self,tcp", 1);
  EXPECT_EQ(published_environment().at("OMPI_MCA_btl"), "self,tcp");
  EXPECT_NE(fingerprint().id, before);
  for (const char* name : {"OMPI_MCA_orte_hnp_uri", "OMPI_MCA_initial_wdir", "OMPI_MCA_btl"})
    unsetenv(name);
}

TEST(Build, SaysWhatItWasBuiltFrom) {
  const BuildInfo info = build_info();
  EXPECT_FALSE(info.compiler.empty());
  EXPECT_EQ(info.commit.has_value(), info.dirty.has_value());
  EXPECT_EQ(build_text().substr(0, 10), "meshbench ");
}

}  // namespace
}  // namespace mb
