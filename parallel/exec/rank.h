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

namespace mb {

// Memory, streams, communicators, and what the rank is doing.
class Rank {
 public:
  // `name`: how messages name it.
  Rank(const Plan& plan, int rank, std::string name, const LiveSettings& settings, World& world);

  // Meets the other ranks of its groups. In the order of the keys, which is the same on all ranks.
  void make_comms();

  // Submits the whole list and waits for its end. On any error: aborts the world.
  void run(std::int64_t step, bool record, std::vector<Span>& spans,
           std::vector<std::int64_t>& cpu_ns);

  std::string standing() const;
  std::int64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  const MemoryPeak& memory() const { return counter_.peak(); }
  std::vector<double> read(TensorId id) const { return memory_.read(id); }
  const std::vector<CommCount>& traffic() const { return carried_; }

 private:
  class Marked;
  struct CommKey {
    Group group;
    Stream stream;
    bool point_to_point;
    auto operator<=>(const CommKey&) const = default;
  };
  static CommKey key_of(const Instruction& instruction);

  void place_on(const Mesh& mesh);
  void submit_all();
  void execute(InstructionId id);
  void perform(InstructionId id, const Instruction& instruction);
  void copy(TensorId from, TensorId to) const;
  void* address(TensorId id) const { return memory_.address(id); }
  Operand operand(TensorId id) const;

  const Plan& plan_;
  const Program& program_;
  const Lifetimes lifetimes_;
  int rank_;
  const std::string name_;
  const LiveSettings& settings_;
  World& world_;
  std::unique_ptr<Device> device_;
  RankMemory memory_;
  OpContext context_;
  std::map<CommKey, std::unique_ptr<Comm>> comms_;
  MemoryCounter counter_;
  bool record_ = true;
  std::vector<CommCount> carried_;  // by instruction, in this step
  std::vector<Span>* spans_ = nullptr;
  std::vector<std::int64_t>* cpu_ns_ = nullptr;
  std::array<std::atomic<InstructionId>, kStreams> standing_;
  std::atomic<std::int64_t> progress_{0};
};

}  // namespace mb
