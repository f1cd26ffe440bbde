#include "parallel/comm/step_runner.h"

#include <algorithm>
#include <cstring>

#include "parallel/comm/bytes.h"
#include "parallel/comm/reduce.h"

namespace mb {
namespace {

// Elements [first, last) of what `runs` hold, piece by piece: fn(byte in the vector, byte from
// `first` on, elements).
template <class Fn>
void pieces(const PartedVector& vector, const Runs& runs, std::int64_t first, std::int64_t last,
            Fn fn) {
  const int width = size_of(vector.type);
  std::int64_t at = 0;
  for (const Run& run : runs) {
    const std::int64_t start = vector.begin(run.begin), length = vector.begin(run.end) - start;
    const std::int64_t from = std::max(first, at), to = std::min(last, at + length);
    if (from < to) fn((start + from - at) * width, (from - first) * width, to - from);
    at += length;
  }
}

// to = to op from.
void combine(void* to, const void* from, std::int64_t count, DType type, ReduceOp op) {
  dispatch(type, op, [&](auto zero, auto reduce) {
    reduce_blocks<decltype(zero)>({to, from}, 0, count, reduce,
                                  [&](auto& block, std::int64_t i) { block.store(to, i); });
  });
}

}  // namespace

// Both directions of a step, chunk by chunk: elements [first, last) of what is sent lie at
// out(first, last), of what is received come to in(first), and then arrived(first, last).
template <class Out, class In, class Arrived>
void StepRunner::travel(const Step& step, const PartedVector& vector, Out out, In in,
                        Arrived arrived) {
  const int width = size_of(vector.type);
  const std::int64_t chunk = kChunkBytes / width;
  const std::int64_t outgoing = vector.size(step.sent), incoming = vector.size(step.received);
  for (std::int64_t first = 0; first == 0 || first < std::max(outgoing, incoming); first += chunk) {
    const bool goes = step.to >= 0 && (first == 0 || first < outgoing);
    const bool comes = step.from >= 0 && (first == 0 || first < incoming);
    const std::int64_t sent_to = std::min(outgoing, first + chunk);
    const std::int64_t received_to = std::min(incoming, first + chunk);
    const std::byte* source = goes ? out(first, sent_to) : nullptr;
    std::byte* target = comes ? in(first) : nullptr;
    if (goes && comes) {
      comm_.send_recv(source, (sent_to - first) * width, step.to, target,
                      (received_to - first) * width, step.from);
    } else if (goes) {
      comm_.send(source, (sent_to - first) * width, step.to);
    } else {
      comm_.recv(target, (received_to - first) * width, step.from);
    }
    if (comes) arrived(first, received_to);
  }
}

// Where [first, last) of what a step sends lies: in `vector`, or packed if it is in pieces.
const std::byte* StepRunner::outgoing(const Step& step, const PartedVector& vector,
                                      const void* work, std::int64_t first, std::int64_t last) {
  const int width = size_of(vector.type);
  if (step.sent.size() == 1) return at(work, vector.offset(step.sent[0].begin) + first * width);
  std::byte* packed = out_.of(kChunkBytes);
  pieces(vector, step.sent, first, last,
         [&](std::int64_t where, std::int64_t to, std::int64_t count) {
           copy_bytes(packed + to, at(work, where), count * width);
         });
  return packed;
}

void StepRunner::follow(const StepList& list, const PartedVector& vector, void* work, ReduceOp op,
                        bool reduced) {
  for (const Step& step : list.steps) {
    if (!step.reduces || !reduced)
      take(step, vector, work, op == ReduceOp::avg ? ReduceOp::sum : op);
  }
}

void StepRunner::take(const Step& step, const PartedVector& vector, void* work, ReduceOp op) {
  const int width = size_of(vector.type);
  const bool lands = !step.reduces && step.received.size() == 1;  // where it belongs
  travel(
      step, vector,
      [&](std::int64_t first, std::int64_t last) {
        return outgoing(step, vector, work, first, last);
      },
      [&](std::int64_t first) {
        return lands ? at(work, vector.offset(step.received[0].begin) + first * width)
                     : in_.of(kChunkBytes);
      },
      [&](std::int64_t first, std::int64_t last) {
        if (lands) return;
        pieces(vector, step.received, first, last,
               [&](std::int64_t where, std::int64_t from, std::int64_t count) {
                 if (step.reduces) {
                   combine(at(work, where), in_.of(kChunkBytes) + from, count, vector.type, op);
                 } else {
                   copy_bytes(at(work, where), in_.of(kChunkBytes) + from, count * width);
                 }
               });
      });
}

void StepRunner::collect(const StepList& list, const PartedVector& vector, const void* from,
                         void* to, ReduceOp op) {
  const int width = size_of(vector.type);
  std::vector<const void*> sources(comm_.size(), nullptr);
  Runs own = comm_.size() == 1 ? Runs{{0, vector.parts}} : Runs{};
  for (const Step& step : list.steps) {
    if (!step.reduces) continue;
    std::byte* slot = nullptr;
    if (step.from >= 0) {
      own = step.received;
      const std::int64_t bytes = vector.size(own) * width;
      const int place = step.from < comm_.index() ? step.from : step.from - 1;
      slot = slots_.of((comm_.size() - 1) * bytes) + place * bytes;
      sources[step.from] = slot;
    }
    travel(
        step, vector,
        [&](std::int64_t first, std::int64_t last) {
          return outgoing(step, vector, from, first, last);
        },
        [&](std::int64_t first) { return slot + first * width; }, [](auto, auto) {});
  }
  if (own.empty()) return;
  sources[comm_.index()] = at(from, vector.offset(own[0].begin));
  dispatch(vector.type, op, [&](auto zero, auto reduce) {
    reduce_blocks<decltype(zero)>(sources, 0, vector.size(own), reduce,
                                  [&](auto& block, std::int64_t i) { block.store(to, i); });
  });
}

}  // namespace mb
