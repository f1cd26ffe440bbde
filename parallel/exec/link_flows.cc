#include "parallel/exec/link_flows.h"

#include <algorithm>
#include <set>
#include <utility>

namespace mb {

int LinkFlows::start(double now_s, double seconds, std::vector<LinkUse> uses) {
  advance(now_s);
  running_[started_] = {.left_s = seconds, .uses = std::move(uses)};
  share_links();
  return started_++;
}

double LinkFlows::end_of(int flow) const {
  LinkFlows ahead = *this;
  while (!ahead.ended_.contains(flow)) ahead.advance(ahead.next_end().value());
  return ahead.ended_.at(flow);
}

void LinkFlows::forget(double now_s, int flow) {
  advance(now_s);
  ended_.erase(flow);
}

std::optional<double> LinkFlows::next_end() const {
  std::optional<double> next;
  for (const auto& [id, flow] : running_) {
    next = next ? std::min(*next, end_of(flow)) : end_of(flow);
  }
  return next;
}

void LinkFlows::advance(double now_s) {
  for (auto next = next_end(); next && *next <= now_s; next = next_end()) {
    std::erase_if(running_, [&](const auto& entry) {
      const bool ends = end_of(entry.second) <= *next;
      if (ends) ended_[entry.first] = *next;
      return ends;
    });
    move_to(*next);
    share_links();
  }
  if (now_s > now_s_) move_to(now_s);
}

void LinkFlows::move_to(double now_s) {
  for (auto& [id, flow] : running_)
    flow.left_s = std::max(0.0, flow.left_s - (now_s - now_s_) * flow.speed);
  now_s_ = now_s;
}

void LinkFlows::share_links() {
  std::set<int> growing;
  std::map<int, double> free;
  for (auto& [id, flow] : running_) {
    growing.insert(id);
    flow.speed = 0;
    for (const LinkUse& use : flow.uses) free[use.link] = 1;
  }
  while (!growing.empty()) {
    std::map<int, double> wanted;  // by link, for each unit of speed
    double step = 1;
    for (const int id : growing) {
      step = std::min(step, 1 - running_[id].speed);
      for (const LinkUse& use : running_[id].uses) wanted[use.link] += use.share;
    }
    for (const auto& [link, share] : wanted) step = std::min(step, free[link] / share);
    for (const auto& [link, share] : wanted) free[link] -= step * share;
    std::erase_if(growing, [&](int id) {
      Flow& flow = running_[id];
      flow.speed += step;
      const bool full = std::any_of(flow.uses.begin(), flow.uses.end(),
                                    [&](const LinkUse& use) { return free[use.link] < 1e-12; });
      return full || flow.speed > 1 - 1e-12;
    });
  }
}

}  // namespace mb
