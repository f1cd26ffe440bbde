#include "parallel/schedule/schedule.h"

#include "workloads/base/error.h"
#include "workloads/base/suggest.h"

namespace mb {

const std::vector<Schedule>& schedules() {
  static const std::vector<Schedule> table = {
      {"gpipe", gpipe},
      {"1f1b", one_f_one_b},
  };
  return table;
}

const Schedule& find_schedule(std::string_view name) {
  std::vector<std::string> names;
  for (const Schedule& schedule : schedules()) {
    if (schedule.name == name) return schedule;
    names.emplace_back(schedule.name);
  }
  throw Error(cat("schedule=", name, " is not known; did you mean ", nearest(name, names),
                  "? Known: ", join(names)));
}

}  // namespace mb
