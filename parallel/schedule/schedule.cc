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
  return find_named(schedules(), name, cat("schedule=", name),
                    [](const Schedule& s) { return s.name; });
}

}  // namespace mb
