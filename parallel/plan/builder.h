// ProgramBuilder: emits the instructions of one Program; waits between streams, lifetimes and arena
// offsets follow.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "parallel/plan/plan.h"

namespace mb {

// The tables that all Programs of a Plan share, each entry once. Not thread-safe: intern everything
// before building Programs in parallel.
class Interner {
 public:
  std::uint32_t op(const Op& op);
  std::uint16_t name(std::string_view name);  // throws Error past 65,535 names
  std::vector<Op> take_ops() { return std::move(ops_); }
  std::vector<std::string> take_names() { return std::move(names_); }

 private:
  std::vector<Op> ops_;
  std::vector<std::string> names_;
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  std::unordered_map<std::string, std::uint16_t, TextHash, std::equal_to<>> name_index_;
  // By kind: a plan has few of each.
  std::array<std::vector<std::uint32_t>, std::variant_size_v<OpKind>> of_kind_;
};

class ProgramBuilder {
 public:
  explicit ProgramBuilder(int stage) { program_.stage = stage; }

  // A tensor that lives from step to step.
  TensorId persistent(std::uint16_t name, std::int64_t elements, DType dtype, MemoryClass memory,
                      bool host = false);
  // Elements [offset, offset + elements) of `base`.
  TensorId view(TensorId base, std::uint16_t name, std::int64_t offset, std::int64_t elements,
                MemoryClass memory);
  // A tensor that comes to life at its first write.
  TensorId tensor(std::uint16_t name, std::int64_t elements, DType dtype, MemoryClass memory,
                  int layer, int micro_batch, bool host = false);

  // Appends an instruction. It waits for the last write of what it reads and for every use of what
  // it writes, where those are on other streams and nothing that it waits for already implies it.
  InstructionId emit(Stream stream, const Label& label, const Action& action,
                     std::span<const TensorId> reads, std::span<const TensorId> writes);
  InstructionId emit(Stream stream, const Label& label, const Action& action,
                     std::initializer_list<TensorId> reads,
                     std::initializer_list<TensorId> writes) {
    return emit(stream, label, action, std::span(reads.begin(), reads.size()),
                std::span(writes.begin(), writes.size()));
  }
  // The next instruction on `stream` waits for `instruction`.
  void join(Stream stream, InstructionId instruction) {
    joins_[static_cast<int>(stream)].push_back(instruction);
  }

  void reserve(std::size_t instructions, std::size_t tensors);
  Program& program() { return program_; }

  // Gives every tensor its lifetime and its place in the arena, and hands the Program over.
  Program finish();

 private:
  // Per stream, the last instruction known to have ended.
  using Clock = std::array<InstructionId, kStreams>;
  struct Uses {
    Clock last;            // last use by each stream
    InstructionId writer;  // last write
  };

  TensorId add(const Tensor& tensor);
  std::vector<InstructionId> release_points() const;

  Program program_;
  std::vector<Uses> uses_;  // by tensor; views use their base's
  std::vector<Clock>
      clocks_;  // by instruction: what is known to have ended when it ends, itself included
  std::array<Clock, kStreams> known_ = filled();
  std::array<std::vector<InstructionId>, kStreams> joins_;

  static constexpr std::array<Clock, kStreams> filled() {
    std::array<Clock, kStreams> all{};
    for (Clock& clock : all) clock.fill(kNone);
    return all;
  }
};

}  // namespace mb
