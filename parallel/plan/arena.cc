#include "parallel/plan/arena.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "parallel/plan/liveness.h"

namespace mb {
namespace {

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// Free ranges by offset; each remembers the last compute instruction that its bytes belong to.
class FreeList {
 public:
  explicit FreeList(std::int64_t begin) : end_(begin) {}

  struct Place {
    std::int64_t offset;
    InstructionId used_until;
  };

  Place take(std::int64_t bytes) {
    for (auto it = ranges_.begin(); it != ranges_.end(); ++it) {
      if (it->second.bytes < bytes) continue;
      const Place place{it->first, it->second.used_until};
      const Range rest{it->second.bytes - bytes, it->second.used_until};
      ranges_.erase(it);
      if (rest.bytes > 0) ranges_.emplace(place.offset + bytes, rest);
      return place;
    }
    const Place place{end_, kNone};
    end_ += bytes;
    return place;
  }

  void give(std::int64_t offset, std::int64_t bytes, InstructionId used_until) {
    auto next = ranges_.lower_bound(offset);
    if (next != ranges_.end() && next->first == offset + bytes) {
      bytes += next->second.bytes;
      used_until = std::max(used_until, next->second.used_until);
      next = ranges_.erase(next);
    }
    if (next != ranges_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second.bytes == offset) {
        previous->second.bytes += bytes;
        previous->second.used_until = std::max(previous->second.used_until, used_until);
        return;
      }
    }
    ranges_.emplace(offset, Range{bytes, used_until});
  }

  std::int64_t end() const { return end_; }

 private:
  struct Range {
    std::int64_t bytes;
    InstructionId used_until;
  };
  std::map<std::int64_t, Range> ranges_;
  std::int64_t end_;
};

}  // namespace

void place_in_arena(Program& program) {
  std::array<std::int64_t, 2> end{};  // of the device and of the second memory space
  for (Tensor& tensor : program.tensors) {
    if (!tensor.persistent || tensor.base != kNone) continue;
    tensor.offset = end[tensor.host];
    end[tensor.host] += aligned(tensor.bytes);
  }
  std::array<FreeList, 2> free{FreeList(end[0]), FreeList(end[1])};
  const Lifetimes lifetimes(program);

  std::vector<std::pair<InstructionId, InstructionId>>
      extra;  // (instruction, compute instruction it has to wait for)
  for (InstructionId i = 0; i < static_cast<InstructionId>(program.instructions.size()); ++i) {
    InstructionId wait = kNone;
    for (TensorId t : lifetimes.born_at(i)) {
      Tensor& tensor = program.tensors[t];
      const FreeList::Place place = free[tensor.host].take(aligned(tensor.bytes));
      tensor.offset = place.offset;
      wait = std::max(wait, place.used_until);
    }
    if (program.instructions[i].stream != Stream::compute && wait != kNone)
      extra.emplace_back(i, wait);
    for (TensorId t : lifetimes.dead_after(i)) {
      const Tensor& tensor = program.tensors[t];
      free[tensor.host].give(tensor.offset, aligned(tensor.bytes), tensor.last);
    }
  }
  program.arena_bytes = free[0].end();
  program.host_bytes = free[1].end();
  for (Tensor& tensor : program.tensors) {
    if (tensor.base != kNone)
      tensor.offset = program.tensors[tensor.base].offset + tensor.base_offset;
  }

  for (const auto& [id, wait] : extra) {
    Instruction& instruction = program.instructions[id];
    const auto old = program.after(instruction);
    if (std::any_of(old.begin(), old.end(), [&, wait = wait](InstructionId w) {
          return w >= wait && program.instructions[w].stream == Stream::compute;
        })) {
      continue;
    }
    std::vector<InstructionId> waits(old.begin(), old.end());
    waits.push_back(wait);
    instruction.after = {static_cast<std::uint32_t>(program.waits.size()),
                         static_cast<std::uint32_t>(waits.size())};
    program.waits.insert(program.waits.end(), waits.begin(), waits.end());
  }
}

}  // namespace mb
