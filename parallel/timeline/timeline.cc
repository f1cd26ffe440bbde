#include "parallel/timeline/timeline.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "parallel/plan/plan.h"
#include "workloads/base/error.h"

namespace mb {

Span Timeline::window() const {
  Span window{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
  for (const auto& lane : lanes) {
    for (const Span& span : lane) {
      window.start_ns = std::min(window.start_ns, span.start_ns);
      window.end_ns = std::max(window.end_ns, span.end_ns);
    }
  }
  return window.start_ns <= window.end_ns ? window : Span{};
}

Timeline empty_timeline(const Plan& plan) {
  Timeline timeline;
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    timeline.lanes.emplace_back(plan.program_of(rank).instructions.size());
    timeline.lane_of_rank.push_back(rank);
  }
  return timeline;
}

void save(const Timeline& timeline, std::ostream& out) {
  std::size_t spans = 0;
  for (const auto& lane : timeline.lanes) spans += lane.size();
  out << "meshbench-timeline 1 ranks " << timeline.lane_of_rank.size() << " lanes "
      << timeline.lanes.size() << " spans " << spans << "\nlane_of_rank";
  for (int lane : timeline.lane_of_rank) out << ' ' << lane;
  out << "\nlane instruction start_ns end_ns\n";
  for (std::size_t lane = 0; lane < timeline.lanes.size(); ++lane) {
    for (std::size_t id = 0; id < timeline.lanes[lane].size(); ++id) {
      const Span& span = timeline.lanes[lane][id];
      out << lane << ' ' << id << ' ' << span.start_ns << ' ' << span.end_ns << '\n';
    }
  }
}

void save(const Timeline& timeline, const std::string& path) {
  std::ofstream out(path);
  require(out.good(), "cannot write timeline ", path);
  save(timeline, out);
  out.flush();
  require(out.good(), "cannot write all of timeline ", path, "; is the disk full?");
}

Timeline load_timeline(const std::string& path) {
  std::ifstream in(path);
  require(in.good(), "cannot read timeline ", path);
  std::string line, word;
  std::size_t ranks = 0, lanes = 0, spans = 0, number = 0;
  const auto next = [&] {
    ++number;
    require(static_cast<bool>(std::getline(in, line)), path, ":", number,
            ": the file ends here, in its header");
    return std::istringstream(line);
  };
  const auto bad = [&](const char* wanted) {
    throw Error(cat(path, ":", number, ": \"", line, "\" is not ", wanted));
  };
  int version = 0;
  if (auto header = next();
      !(header >> word >> version) || word != "meshbench-timeline" || version != 1 ||
      !(header >> word >> ranks >> word >> lanes >> word >> spans) || lanes > ranks) {
    bad("the header of a meshbench timeline, version 1");
  }
  Timeline timeline;
  auto map = next();
  map >> word;
  for (int lane; map >> lane;) {
    if (lane < 0 || lane >= static_cast<int>(lanes)) bad("a list of lanes");
    timeline.lane_of_rank.push_back(lane);
  }
  if (timeline.lane_of_rank.size() != ranks) bad("one lane for each rank");
  next();
  timeline.lanes.resize(lanes);
  std::size_t read = 0;
  for (++number; std::getline(in, line); ++number, ++read) {
    std::istringstream fields(line);
    std::size_t lane = 0, id = 0;
    Span span;
    if (!(fields >> lane >> id >> span.start_ns >> span.end_ns) || fields >> word ||
        lane >= lanes || id != timeline.lanes[lane].size() || span.end_ns < span.start_ns) {
      bad("the next span of a lane");
    }
    timeline.lanes[lane].push_back(span);
  }
  require(read == spans, path, ":", number, ": the file ends here, with ", read, " of its ", spans,
          " spans");
  return timeline;
}

}  // namespace mb
