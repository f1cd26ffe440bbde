// An independent model of a pipeline for tests: slots of given cost on ranks that wait for each
// other's results, and nothing of plans or executors.
#pragma once

#include <vector>

#include "parallel/schedule/receive_order.h"

namespace mb {

// Of a whole rank's layers: a slot costs its share of them, 1 / chunks.
struct SlotCosts {
  double forward = 1, input_grad = 1, weight_grad = 1;
  double hop = 0;  // from rank to rank
};

// How messages move. A message of rendezvous moves when both its ends have come to it.
struct Transport {
  bool rendezvous = false;  // else a sender never waits
  int in_flight = 2;        // a slot waits until the message of the slot so many before it is gone
  // By rank, its receives as it posts them. None: in the order of slots, each on reaching the slot
  // before the one that needs it.
  std::vector<std::vector<Receive>> receives;
  enum class Order {
    any,       // messages pass each other
    by_kind,   // not those of one kind (activations, gradients) that leave or reach a rank
    by_stream  // nor any others that leave it, or that reach it
  } order = Order::any;
};

struct RankRun {
  double busy = 0, idle = 0;              // of the makespan
  double start_delay = 0, end_slack = 0;  // before its first slot, after its last
  double idle_inside = 0;                 // the rest of idle: between its first and last slot
  int peak_live = 0;                      // chunks' activations, live from F to the end of W or B
};

struct SlotRun {
  double makespan = 0;
  std::vector<RankRun> ranks;
  double bubble() const;  // idle / makespan, of all ranks
};

// `slots` by rank; chunks are as many as they name. F of virtual stage s waits for F of s - 1, I
// and B for those of s + 1, each one hop later if it is on another rank. Throws Error saying where
// each rank stands if they wait for each other.
SlotRun simulate_slots(const std::vector<std::vector<Slot>>& slots, Placement placement,
                       const SlotCosts& costs = {}, const Transport& transport = {});

}  // namespace mb
