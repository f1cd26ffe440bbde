// The Plan: what every rank of a mesh does in one step, as plain data. Read this file first.
//
// A Plan holds one Program per pipeline stage; ranks that differ only in another
// coordinate run the same one. A Program is a list of Instructions, each on a stream. Order within
// a stream is list order; across streams only `after` orders. Across ranks nothing is an edge:
// sends meet receives, and collectives each other, by their order in a group, as on hardware. List
// order is also a valid order to run a Program one instruction at a time.
//
// A Plan is not changed once plan_step has returned it: executors, metrics and reports take it
// const.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/mesh/mesh.h"
#include "workloads/model/layers.h"
#include "workloads/ops/op.h"

namespace mb {

using TensorId = std::int32_t;
using InstructionId = std::int32_t;
inline constexpr std::int32_t kNone = -1;

enum class Stream : std::uint8_t { compute, tp, dp, pp_send, pp_recv, cp, ep, copy };
inline constexpr int kStreams = 8;
std::string_view name_of(Stream stream);

enum class MemoryClass : std::uint8_t {
  parameter,
  gradient,
  main_parameter,
  moment,
  activation,
  gathered,
  bucket,
  workspace,
  input
};
inline constexpr int kMemoryClasses = 9;
std::string_view name_of(MemoryClass memory);

enum class Pass : std::uint8_t {
  input,  // tokens
  forward,
  backward,     // both halves
  input_grad,   // the half that the previous stage waits for
  weight_grad,  // the half that nobody waits for
  recompute,
  reduce,  // gradients over data ranks
  optimizer
};
inline constexpr int kPasses = 8;
std::string_view name_of(Pass pass);  // "input", "forward", ...
char letter_of(Pass pass);            // 'L', 'F', 'B', 'I', 'W', 'R', 'G', 'O'

// What an instruction is for. -1 where a field says nothing.
struct Label {
  Pass pass = Pass::forward;
  std::int16_t chunk = 0;
  std::uint16_t site = 0;  // index into Plan::names: "mlp.up", "bucket 3"
  std::int16_t stage = -1;
  std::int16_t layer = -1;
  std::int32_t micro_batch = -1;
  bool operator==(const Label&) const = default;
};

struct Tensor {
  std::int64_t bytes = 0;
  std::int64_t elements = 0;
  std::int64_t offset = 0;  // in the rank's arena
  TensorId base = kNone;  // a view: the bytes [base_offset, base_offset + bytes) of another tensor
  std::int64_t base_offset = 0;
  InstructionId first =
      kNone;  // position in the list where it comes to life; kNone for a persistent tensor
  InstructionId last = kNone;  // and after which its bytes may be used again
  std::uint16_t name = 0;      // index into Plan::names
  std::int16_t layer = -1;
  std::int32_t micro_batch = -1;
  DType dtype = DType::fp32;
  MemoryClass memory = MemoryClass::workspace;
  bool persistent = false;  // lives from step to step
  bool host = false;        // in the second memory space, whose offsets are its own
};

struct Compute {
  std::uint32_t op;
};  // index into Plan::ops
// In place where reads[0] and writes[0] are one tensor: the part of an all_gather or reduce_scatter
// lies at the member's own place in it. An all_to_all_v reads buffer, send_counts[n] int32 and
// recv_counts[n] int32: rows for each of the group's n experts, of which each member has an equal
// run. A broadcast is from the first member.
struct Collective {
  CollectiveKind kind;
  ReduceOp op;
  Group group;
  std::int32_t unit = 1;  // of all_to_all_v: elements in a row
  // Above 1: of the tensor, only the slice that this rank owns as a member of `owners`, which are
  // so many.
  std::int32_t slices = 1;
  Group owners = {};
};
// Pipeline ranks; the peer's other coordinates are this rank's own. `chunk` is the receiver's.
struct Send {
  std::int16_t to;
  std::int16_t chunk = 0;
};
struct Recv {
  std::int16_t from;
  std::int16_t chunk = 0;
};
struct Copy {};  // reads[0] to writes[0]; one of them may be in the second memory space
using Action = std::variant<Compute, Collective, Send, Recv, Copy>;

// No instruction reads or writes more tensors than this.
inline constexpr int kMostOperands = 12;

// Consecutive entries of Program::operands or Program::waits.
struct Slice {
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
};

struct Instruction {
  Action action;
  Stream stream = Stream::compute;
  Label label;
  Slice reads, writes;  // of operands; a tensor updated in place is in both
  Slice after;          // of waits: instructions on other streams that end before this one starts
};

// Where the parameters of a Program lie: end to end in flat buckets, each padded to equal slices
// that `owners` own. An owner keeps main parameters and moments of its slice alone; of the others'
// slices, parameters and reduced gradients hold what they happen to hold, or are not there at all.
struct Bucket {
  std::uint16_t name = 0;     // index into Plan::names
  std::int64_t elements = 0;  // padded to a multiple of `ways`
  int ways = 1;               // owners; 1: everyone keeps everything
  Group owners = {};          // the ranks that share the parameters and sum their gradients
  std::vector<Segment> segments;
  bool whole_value = true, whole_gradient = true;  // else the tensor is the owner's slice
  TensorId value = kNone, gradient = kNone;
  TensorId main = kNone;          // with 16-bit parameters: the owner's slice in fp32
  TensorId m = kNone, v = kNone;  // of the owner's slice; kNone under SGD
  std::int64_t slice() const { return elements / ways; }
};
struct Parameter {
  ParameterSpec spec;
  int bucket = 0;
  std::int64_t offset = 0;  // in the bucket
};

// One micro-batch's pass through one chunk: what schedules print as F3, B0, W2.
struct Slot {
  Pass pass = Pass::forward;
  int micro_batch = 0;
  int chunk = 0;
  bool operator==(const Slot&) const = default;
};

// Which run of layers, or virtual stage, a rank's chunk is.
enum class Placement : std::uint8_t {
  linear,  // one chunk a rank: stage = rank
  looped,  // stage = chunk * ranks + rank
  v        // two chunks a rank: stage = rank and 2 * ranks - 1 - rank
};
std::string_view name_of(Placement placement);  // "linear", "looped", "v"

struct Program {
  int stage = 0;
  std::vector<Instruction> instructions;
  std::vector<Tensor> tensors;
  std::vector<TensorId> operands;
  std::vector<InstructionId> waits;
  std::vector<Bucket> buckets;
  std::vector<Parameter> parameters;
  std::vector<Slot> slots;       // the schedule that the instructions carry out
  std::int64_t arena_bytes = 0;  // memory to reserve, holes included
  std::int64_t host_bytes = 0;   // of the second memory space
  TensorId scalars = kNone;      // kScalars numbers, see op.h

  std::span<const TensorId> reads(const Instruction& i) const {
    return {operands.data() + i.reads.begin, i.reads.count};
  }
  std::span<const TensorId> writes(const Instruction& i) const {
    return {operands.data() + i.writes.begin, i.writes.count};
  }
  std::span<const InstructionId> after(const Instruction& i) const {
    return {waits.data() + i.after.begin, i.after.count};
  }
  // The tensor that owns the bytes of `id`.
  TensorId root(TensorId id) const { return tensors[id].base == kNone ? id : tensors[id].base; }
};

struct Plan {
  Mesh mesh;
  Placement placement = Placement::linear;  // of the chunks that slots name
  int micro_batches = 1;                    // of a data rank
  std::int64_t micro_batch = 1;             // sequences
  std::vector<Program> programs;            // by pipeline stage
  std::vector<Op> ops;                      // each once
  std::vector<std::string> names;           // of sites and tensors

  const Program& program_of(int rank) const { return programs[mesh.coordinate(rank, Axis::pp)]; }
  std::string_view site(const Instruction& i) const { return names[i.label.site]; }
  const Op& op(const Compute& compute) const { return ops[compute.op]; }
};

// Bytes that a collective, send, receive or copy carries: its first read, or for a receive and an
// all_gather its write. So the full vector of a collective; for an all_to_all_v, whose sizes follow
// the tokens, the smaller of its buffers: what a rank sends out, or gets back, and on the mean over
// ranks both.
std::int64_t payload_bytes(const Program& program, const Instruction& instruction);
std::int64_t payload_elements(const Program& program, const Instruction& instruction);

}  // namespace mb
