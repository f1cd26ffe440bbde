// Pipeline schedules: for every stage, the order of its slots, and nothing else.
#pragma once

#include <string_view>
#include <vector>

#include "parallel/plan/plan.h"

namespace mb {

struct Schedule {
  std::string_view name;  // as the case spells it
  std::vector<Slot> (*order)(int stage, int stages, int micro_batches);
};

const std::vector<Schedule>& schedules();
// Throws Error naming the nearest known name.
const Schedule& find_schedule(std::string_view name);

std::vector<Slot> gpipe(int stage, int stages, int micro_batches);
std::vector<Slot> one_f_one_b(int stage, int stages, int micro_batches);

}  // namespace mb
