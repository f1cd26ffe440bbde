// The double of NCCL behaves as the library is documented to, as far as tests lean on it.
#include <gtest/gtest.h>
#include <nccl.h>

#include <functional>
#include <thread>

#include "tests/support/cuda_emulation/emulation.h"

namespace mb::cuda_emulation {
namespace {

// A rank: its device, a communicator of all ranks and a stream.
struct Place {
  int rank = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr, other = nullptr;
  float* data = nullptr;  // 8 numbers, each the rank
};

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  return state;
}
ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while ((state = state_of(comm)) == ncclInProgress) std::this_thread::yield();
  return state;
}

class NcclEmulation : public testing::Test {
 protected:
  void SetUp() override { reset({.devices = 4, .memory_bytes = 1 << 20}); }

  // body(place) on a thread for each of `n` ranks, with communicators that do not block.
  static void on_ranks(int n, const std::function<void(Place&)>& body) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < n; ++rank) {
      threads.emplace_back([&, rank] {
        Place place{rank};
        cudaSetDevice(rank);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        EXPECT_EQ(ncclCommInitRankConfig(&place.comm, n, id, rank, &config), ncclInProgress);
        EXPECT_EQ(settled(place.comm), ncclSuccess);
        cudaStreamCreateWithFlags(&place.stream, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&place.other, cudaStreamNonBlocking);
        void* data = nullptr;
        cudaMalloc(&data, 32);
        place.data = static_cast<float*>(data);
        for (int i = 0; i < 8; ++i) place.data[i] = static_cast<float>(rank);
        body(place);
        if (place.comm) ncclCommDestroy(place.comm);
        cudaStreamDestroy(place.stream);
        cudaStreamDestroy(place.other);
      });
    }
    for (auto& thread : threads) thread.join();
  }
  static bool tells(const std::string& text) {
    for (const std::string& fault : faults())
      if (fault.find(text) != std::string::npos) return true;
    return false;
  }
};

TEST_F(NcclEmulation, ReducesOnStreams) {
  on_ranks(3, [](Place& place) {
    EXPECT_EQ(
        ncclAllReduce(place.data, place.data, 4, ncclFloat, ncclSum, place.comm, place.stream),
        ncclSuccess);
    EXPECT_EQ(ncclReduceScatter(place.data, place.data + 4 + place.rank, 1, ncclFloat, ncclAvg,
                                place.comm, place.stream),
              ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(place.stream), cudaSuccess);
    EXPECT_EQ(place.data[3], 3);
    EXPECT_EQ(place.data[4 + place.rank], 3);
  });
  EXPECT_TRUE(faults().empty());
}

TEST_F(NcclEmulation, DoesAllMessagesOfAGroupAtOnce) {
  on_ranks(3, [](Place& place) {
    ncclGroupStart();
    ncclSend(place.data, 2, ncclFloat, (place.rank + 1) % 3, place.comm, place.stream);
    ncclRecv(place.data + 4, 2, ncclFloat, (place.rank + 2) % 3, place.comm, place.stream);
    ncclSend(place.data, 1, ncclFloat, place.rank, place.comm, place.stream);
    ncclRecv(place.data + 6, 1, ncclFloat, place.rank, place.comm, place.stream);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(place.stream), cudaSuccess);
    EXPECT_EQ(place.data[5], static_cast<float>((place.rank + 2) % 3));
    EXPECT_EQ(place.data[6], static_cast<float>(place.rank));
  });
  EXPECT_TRUE(faults().empty());
}

TEST_F(NcclEmulation, FindsSendsThatWaitForEachOther) {
  on_ranks(2, [](Place& place) {
    ncclSend(place.data, 2, ncclFloat, 1 - place.rank, place.comm, place.stream);
    ncclRecv(place.data + 4, 2, ncclFloat, 1 - place.rank, place.comm, place.stream);
    cudaStreamSynchronize(place.stream);
    EXPECT_NE(state_of(place.comm), ncclSuccess);
  });
  EXPECT_TRUE(tells("NCCL deadlock: send of 2 fp32 to member")) << faults().at(0);
}

// Kernels of a communicator follow each other, whatever streams they are on.
TEST_F(NcclEmulation, FindsStreamsThatShareACommunicatorAndWaitForEachOther) {
  on_ranks(2, [](Place& place) {
    ncclSend(place.data, 2, ncclFloat, 1 - place.rank, place.comm, place.stream);
    ncclRecv(place.data + 4, 2, ncclFloat, 1 - place.rank, place.comm, place.other);
    cudaStreamSynchronize(place.stream);
    cudaStreamSynchronize(place.other);
  });
  EXPECT_TRUE(tells("NCCL deadlock")) << faults().size();
}

TEST_F(NcclEmulation, FindsCallsThatDoNotMatch) {
  struct Mismatch {
    const char* text;
    std::function<void(Place&)> call;
  };
  const auto all_reduce = [](Place& p, std::size_t n, ncclDataType_t type, ncclRedOp_t op) {
    ncclAllReduce(p.data, p.data, n, type, op, p.comm, p.stream);
  };
  const std::vector<Mismatch> cases = {
      {"all_reduce of 2 fp32 sum",
       [&](Place& p) { all_reduce(p, p.rank ? 2 : 1, ncclFloat, ncclSum); }},
      {"all_reduce of 2 int32 sum",
       [&](Place& p) { all_reduce(p, 2, p.rank ? ncclInt32 : ncclFloat, ncclSum); }},
      {"all_reduce of 2 fp32 max",
       [&](Place& p) { all_reduce(p, 2, ncclFloat, p.rank ? ncclMax : ncclSum); }},
      {"broadcast of 2 fp32 from member 1",
       [](Place& p) { ncclBroadcast(p.data, p.data, 2, ncclFloat, p.rank, p.comm, p.stream); }},
      {"send of 2 fp32 to member 1 meets receive of 1 fp32 from member 0",
       [](Place& p) {
         p.rank ? ncclRecv(p.data, 1, ncclFloat, 0, p.comm, p.stream)
                : ncclSend(p.data, 2, ncclFloat, 1, p.comm, p.stream);
       }},
      {"all_gather of 1 fp32", [&](Place& p) {
         if (p.rank == 0) return all_reduce(p, 1, ncclFloat, ncclSum);
         ncclAllGather(p.data, p.data, 1, ncclFloat, p.comm, p.stream);
       }}};
  for (const Mismatch& mismatch : cases) {
    SetUp();
    on_ranks(2, [&](Place& place) {
      mismatch.call(place);
      cudaStreamSynchronize(place.stream);
      EXPECT_EQ(state_of(place.comm), ncclInvalidUsage) << mismatch.text;
    });
    EXPECT_TRUE(tells(mismatch.text)) << mismatch.text << ": " << faults().at(0);
  }
}

TEST_F(NcclEmulation, ReachesDeviceMemoryOfItsOwnOnly) {
  on_ranks(2, [](Place& place) {
    static float local[8];
    ncclAllReduce(place.rank ? local : place.data, place.data, 2, ncclFloat, ncclSum, place.comm,
                  place.stream);
    if (place.rank == 1) {
      EXPECT_EQ(cudaStreamSynchronize(place.stream), cudaErrorIllegalAddress);
    }
    ncclCommAbort(place.comm);
    place.comm = nullptr;
  });
  EXPECT_TRUE(tells("all_reduce of 2 fp32 sum on device 1 touches memory that is no device's"));
}

TEST_F(NcclEmulation, AbortWakesTheMemberThatAborts) {
  on_ranks(2, [](Place& place) {
    if (place.rank == 1) return;
    ncclAllReduce(place.data, place.data, 2, ncclFloat, ncclSum, place.comm, place.stream);
    EXPECT_EQ(cudaStreamQuery(place.stream), cudaErrorNotReady);
    EXPECT_EQ(ncclCommAbort(place.comm), ncclSuccess);
    place.comm = nullptr;
    EXPECT_EQ(cudaStreamSynchronize(place.stream), cudaSuccess);
    EXPECT_EQ(place.data[0], 0);
  });
  EXPECT_TRUE(faults().empty());
}

TEST_F(NcclEmulation, InitIsInProgressUntilAllHaveCome) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t first = nullptr, second = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
  EXPECT_EQ(state_of(first), ncclInProgress);
  cudaSetDevice(1);
  EXPECT_EQ(ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclInProgress);
  EXPECT_EQ(state_of(first), ncclSuccess);
  EXPECT_EQ(ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclInvalidArgument);
  ncclCommDestroy(first);
  ncclCommDestroy(second);
}

TEST_F(NcclEmulation, RefusesTwoRanksOnOneDevice) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::array<ncclComm_t, 2> comms{};
  for (int rank = 0; rank < 2; ++rank) ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config);
  EXPECT_EQ(state_of(comms[0]), ncclInvalidUsage);
  for (ncclComm_t comm : comms) ncclCommDestroy(comm);
}

TEST_F(NcclEmulation, SplitsByColorInTheOrderOfKeys) {
  on_ranks(4, [](Place& place) {
    ncclComm_t part = nullptr;
    // Ranks 2, 1, 0 in this order; rank 3 has none.
    const int color = place.rank == 3 ? NCCL_SPLIT_NOCOLOR : 5;
    const ncclResult_t result = ncclCommSplit(place.comm, color, -place.rank, &part, nullptr);
    EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress);
    EXPECT_EQ(settled(place.comm), ncclSuccess);
    EXPECT_EQ(part == nullptr, place.rank == 3);
    if (!part) return;
    EXPECT_EQ(settled(part), ncclSuccess);
    int index = -1, size = 0;
    ncclCommUserRank(part, &index);
    ncclCommCount(part, &size);
    EXPECT_EQ(index, 2 - place.rank);
    EXPECT_EQ(size, 3);
    ncclAllGather(place.data, place.data + 4, 1, ncclFloat, part, place.stream);
    cudaStreamSynchronize(place.stream);
    EXPECT_EQ(place.data[4], 2);
    EXPECT_EQ(place.data[6], 0);
    ncclCommDestroy(part);
  });
  EXPECT_TRUE(faults().empty());
}

// Whoever does not ask until a call is through has launched nothing.
TEST_F(NcclEmulation, LaunchesOnceItIsAsked) {
  reset({.devices = 2, .nccl_polls = 2});
  on_ranks(2, [](Place& place) {
    EXPECT_EQ(
        ncclAllReduce(place.data, place.data, 2, ncclFloat, ncclSum, place.comm, place.stream),
        ncclInProgress);
    EXPECT_EQ(
        ncclAllReduce(place.data, place.data, 2, ncclFloat, ncclSum, place.comm, place.stream),
        ncclInvalidArgument)
        << "before the last is through";
    cudaStreamSynchronize(place.stream);
    EXPECT_EQ(place.data[0], static_cast<float>(place.rank));
    EXPECT_EQ(settled(place.comm), ncclSuccess);
    cudaStreamSynchronize(place.stream);
    EXPECT_EQ(place.data[0], 1);
  });
}

TEST_F(NcclEmulation, TellsErrorsThatATestAsksFor) {
  on_ranks(1, [](Place& place) {
    fail("ncclAllReduce", 1, ncclSystemError);
    EXPECT_EQ(
        ncclAllReduce(place.data, place.data, 2, ncclFloat, ncclSum, place.comm, place.stream),
        ncclSystemError);
    fail_communicators(0, ncclRemoteError);
    EXPECT_EQ(state_of(place.comm), ncclRemoteError);
  });
  reset({.nccl_version = 22005});
  int version = 0;
  ncclGetVersion(&version);
  EXPECT_EQ(version, 22005);
}

}  // namespace
}  // namespace mb::cuda_emulation
