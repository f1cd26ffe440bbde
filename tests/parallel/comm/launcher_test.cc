#include "parallel/comm/launcher.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "tests/support/error.h"

namespace mb {
namespace {

// The environment of one launcher, and of no other.
class LauncherOf : public testing::Test {
 protected:
  LauncherOf() { clear(); }
  ~LauncherOf() override { clear(); }
  void set(const std::map<std::string, std::string>& variables) {
    clear();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  static void clear() {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK",
          "MPI_LOCALNRANKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"})
      unsetenv(name);
  }
};

TEST_F(LauncherOf, NothingIsNone) { EXPECT_FALSE(launcher()); }

TEST_F(LauncherOf, OpenMpiHydraAndSlurmAreKnownByWhatTheySet) {
  const auto expect = [&](const std::map<std::string, std::string>& variables, const char* name,
                          const char* mpi) {
    set(variables);
    const auto by = launcher();
    ASSERT_TRUE(by) << name;
    EXPECT_EQ(by->name, name);
    EXPECT_EQ(by->mpi, mpi);
    EXPECT_EQ(by->rank, 3);
    EXPECT_EQ(by->size, 8);
  };
  expect({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"PMIX_RANK", "3"}},
         "mpirun of Open MPI", "openmpi");
  expect({{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "4"}}, "mpirun of MPICH",
         "mpich");
  // Hydra within a job of Slurm, whose own words are about the proxies.
  expect({{"PMI_RANK", "3"},
          {"PMI_SIZE", "8"},
          {"MPI_LOCALNRANKS", "4"},
          {"SLURM_PROCID", "0"},
          {"SLURM_STEP_NUM_TASKS", "2"}},
         "mpirun of MPICH", "mpich");
  expect({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}}, "srun", "");
  expect({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"PMIX_RANK", "3"}}, "srun",
         "openmpi");
  expect({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"PMI_RANK", "3"}}, "srun",
         "mpich");
  expect({{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}}, "a PMI launcher", "mpich");
}

// A batch script runs beside its job steps, once.
TEST_F(LauncherOf, ABatchScriptOfSlurmIsNone) {
  set({{"SLURM_PROCID", "0"}});
  EXPECT_FALSE(launcher());
}

TEST_F(LauncherOf, WhatContradictsItselfIsRefused) {
  set({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(message_of([] { launcher(); }),
            "OMPI_COMM_WORLD_RANK=2 and OMPI_COMM_WORLD_SIZE=2 in the environment do not go "
            "together; start again by mpirun or srun");
  set({{"PMI_RANK", "two"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(message_of([] { launcher(); }),
            "PMI_RANK=two in the environment is no number of a rank");
}

}  // namespace
}  // namespace mb
