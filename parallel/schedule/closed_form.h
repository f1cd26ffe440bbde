// What schedules cost in theory: idle time and live activations as formulas, without a simulation.
//
// Of equal virtual stages and no time between ranks: p ranks, v chunks, m micro-batches, rounds of
// N micro-batches, rank r. F, I and W are the times of one micro-batch in all chunks of a rank.
// Idle is of the makespan, from the first start on any rank to the last end on any. Shapes are
// those that the schedule's `check` lets pass.
//
//                   idle of each rank                      live chunks of rank r at most
//   gpipe           (p-1)(F+I+W)                           m
//   1f1b            (p-1)(F+I+W)                           min(m, p-r)
//   interleaved     (p-1)(F+I+W) / v                       min(mv, 2(p-r-1)+(v-1)N+1)
//   zb-h1           (p-1)(F+I) - (min(m,p)-1) min(I,W)     min(m, p)
//   interleaved-zb  (p-1)(F+max(I-W,0)) / v                min(mv, (v-1)N+p)
//   zb-v            max(2p-1-m, (p-1)/2) F if F=I=W        min(2p, 2m, m+1+r)
//   dualpipe-v      see below                              2p+1
//
// gpipe: Huang et al., NeurIPS 2019. 1f1b and interleaved: Narayanan et al., SC 2021, section 2.2;
// with one chunk interleaved is 1f1b, and interleaved-zb is zb-h1. zb-h1: Qi et al., ICLR 2024,
// section 2, whose (p-1)(F+I-W) is that of m >= p and W <= I. zb-v: Qi et al., "Pipeline
// Parallelism with Controllable Memory", 2024, for enough micro-batches; it has no form for unequal
// F, I and W, where idle does not grow by the same with each rank. What these leave out (m < p,
// W > I, rounds of N > p, interleaved-zb, dualpipe-v) is derived from the order of the slots and
// holds in simulation.
//
// dualpipe-v, a forward and the backward next to it run one after the other:
//   ((p-1)(F + max(I-W,0) + max(F-I-W,0)) + max((p-1)I - pF, 0)) / 2
// (p-1)F/2 for F=I=W, as zb-v. The (p/2-1)(F&B+B-3W) that DualPipe's authors give is another
// thing: there the two run at once, in a time F&B.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "parallel/schedule/schedule.h"

namespace mb {

// nullopt where the schedule has no closed form.
std::optional<double> idle_closed_form(std::string_view schedule, const PipelineShape& shape,
                                       double forward, double input_grad, double weight_grad);
// The same as a formula, "(p-1)(F+I+W)", and the public source of it.
struct IdleForm {
  std::string_view formula, source;
};
std::optional<IdleForm> idle_form(std::string_view schedule);
// Activations of chunks that `rank` keeps at once: from F to the end of W, or of B where it is not
// split.
std::optional<std::int64_t> peak_live_chunks(std::string_view schedule, const PipelineShape& shape,
                                             int rank);

}  // namespace mb
