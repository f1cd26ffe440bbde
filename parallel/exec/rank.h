// One rank of a run: it walks its own list of instructions over a Device and its Comms.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/comm.h"
#include "parallel/device/device.h"
#include "parallel/exec/collectives.h"
#include "parallel/exec/executor.h"
#include "parallel/exec/memory_counter.h"
#include "parallel/exec/rank_memory.h"
#include "parallel/exec/staging.h"

namespace mb {

// Memory, streams, communicators, and what the rank is doing.
class Rank {
 public:
  // `name`: how messages name it, its device apart.
  Rank(const Plan& plan, int rank, std::string name, const LiveSettings& settings, World& world);

  // Meets the other ranks of its groups. In the order of the keys, which is the same on all ranks.
  void make_comms();

  // Submits the whole list and waits for its end. On any error: aborts the world.
  void run(std::int64_t step, bool record, std::vector<Span>& spans,
           std::vector<std::int64_t>& cpu_ns);

  std::string standing() const;
  std::int64_t progress() const {
    return progress_.load(std::memory_order_relaxed) + device_->passed();
  }
  bool keeps_cpu_time() const { return device_->memory_is_host(); }
  // How far the times of spans may be off the clock of this process.
  std::int64_t clock_uncertainty_ns() const { return device_->clock_uncertainty_ns(); }
  const MemoryPeak& memory() const { return counter_.peak(); }
  std::vector<double> read(TensorId id) const { return memory_.read(id); }
  const std::vector<CommCount>& traffic() const { return carried_; }

 private:
  class Marked;
  // Messages of a pipeline have a Comm of their own, which sends and receives share, or where Comms
  // enqueue, one for each sender and receiver of it.
  struct CommKey {
    Group group;
    Stream stream;
    bool point_to_point;
    int from = -1, to = -1;
    auto operator<=>(const CommKey&) const = default;
  };
  CommKey key_of(const Instruction& instruction) const;
  World::GroupName group_of_comm(const CommKey& key) const;

  void place_on(const Mesh& mesh);
  void prepare();
  void submit_all();
  void execute(InstructionId id);
  void perform(InstructionId id, const Instruction& instruction);
  void compute(const Instruction& instruction);
  void copy(int stream, TensorId from, TensorId to);
  void communicate(InstructionId id, const Instruction& instruction);
  void* address(TensorId id) const { return memory_.address(id); }
  Operand operand(TensorId id) const;

  const Plan& plan_;
  const Program& program_;
  const Lifetimes lifetimes_;
  int rank_;
  const LiveSettings& settings_;
  World& world_;
  std::unique_ptr<Device> device_;
  const std::string name_;
  RankMemory memory_;
  OpContext context_;
  std::map<CommKey, std::unique_ptr<Comm>> comms_;
  std::vector<Staging> staging_;  // by stream; empty where Comms reach the device's memory
  std::vector<bool> awaited_;     // by instruction
  MemoryCounter counter_;
  bool record_ = true;
  std::vector<CommCount> carried_;  // by instruction, in this step
  std::vector<Span>* spans_ = nullptr;
  std::vector<std::int64_t>* cpu_ns_ = nullptr;
  std::array<std::atomic<InstructionId>, kStreams> standing_;
  std::atomic<std::int64_t> progress_{0};
};

}  // namespace mb
