#include "bench/report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/analysis/intervals.h"
#include "bench/analysis/matching.h"
#include "bench/analysis/step_times.h"
#include "bench/report/output.h"
#include "parallel/cost/spread.h"
#include "parallel/plan/text.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

// Threads of a rank: the bubble first, then every stream with room for what overlaps on it.
constexpr int kBubbleThread = 1, kThreadsPerStream = 1000;
int thread_of(Stream stream, int track) {
  return kThreadsPerStream * (static_cast<int>(stream) + 1) + track;
}

// A colour of chrome://tracing for what computes; ui.perfetto.dev colours by name.
std::string_view colour_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "rail_response";  // blue
    case Pass::backward:
      return "rail_idle";  // orange
    case Pass::input_grad:
      return "rail_animation";  // red
    case Pass::weight_grad:
      return "startup";  // yellow
    case Pass::recompute:
      return "detailed_memory_dump";  // purple
    case Pass::optimizer:
      return "rail_load";  // green
    case Pass::input:
    case Pass::reduce:
      break;
  }
  return "generic_work";  // grey
}

std::string json_text(std::string_view text) { return nlohmann::json(text).dump(); }

// Nanoseconds as microseconds with three decimals: no rounding.
std::string micros(std::int64_t ns) {
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
}

class TraceWriter {
 public:
  TraceWriter(std::ostream& out, const Plan& plan, const Timeline& timeline)
      : out_(out),
        plan_(plan),
        timeline_(timeline),
        lanes_(lanes_of(plan, timeline)),
        arrivals_(last_arrivals(plan, timeline)),
        leaving_(messages_leaving(plan.mesh)),
        base_ns_(timeline.window().start_ns) {
    // Labels repeat over layers and micro-batches, but their texts do not depend on a rank.
    for (const std::string& name : plan.names) names_.push_back(json_text(name));
  }

  void write() {
    out_ << R"({"displayTimeUnit":"ns","baseTimeNanoseconds":)" << base_ns_
         << ",\"traceEvents\":[\n";
    const StepTimes times = step_times(plan_, timeline_);
    for (int lane = 0; lane < static_cast<int>(lanes_.size()); ++lane) {
      place(lane);
      name_process(lane);
      for (std::size_t id = 0; id < timeline_.lanes[lane].size(); ++id) slice(lane, id);
      if (times.ranks[lane].bubble) bubble(lane, *times.ranks[lane].bubble);
    }
    arrows();
    out_ << "\n]}\n";
  }

 private:
  void event(const std::string& text) {
    out_ << (first_ ? "" : ",\n") << text;
    first_ = false;
  }

  void metadata(std::string_view what, int pid, int tid, const std::string& arguments) {
    event(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", what, pid, tid,
                      arguments));
  }

  void name_thread(int pid, int tid, std::string_view name) {
    metadata("thread_name", pid, tid, fmt::format(R"("name":{})", json_text(name)));
    metadata("thread_sort_index", pid, tid, fmt::format(R"("sort_index":{})", tid));
  }

  void name_process(int lane) {
    const Lane& l = lanes_[lane];
    const std::string like = l.ranks > 1 ? fmt::format(" and {} alike", l.ranks - 1) : "";
    metadata("process_name", l.rank, 0,
             fmt::format(R"("name":"rank {}{}, stage {}")", l.rank, like, l.stage));
    metadata("process_sort_index", l.rank, 0,
             fmt::format(R"("sort_index":{})", l.stage * plan_.mesh.world() + l.rank));
  }

  // Gives every slice of a lane the first thread of its stream that is free when it starts.
  void place(int lane) {
    const Program& program = plan_.programs[lanes_[lane].stage];
    const std::vector<Span>& spans = timeline_.lanes[lane];
    std::vector<InstructionId> order(spans.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<InstructionId>(i);
    std::stable_sort(order.begin(), order.end(), [&](InstructionId a, InstructionId b) {
      return spans[a].start_ns < spans[b].start_ns;
    });
    std::vector<std::int64_t> free_at[kStreams];
    std::vector<int>& thread = threads_.emplace_back(spans.size());
    for (InstructionId id : order) {
      const Stream stream = program.instructions[id].stream;
      std::vector<std::int64_t>& tracks = free_at[static_cast<int>(stream)];
      auto track = std::find_if(tracks.begin(), tracks.end(),
                                [&](std::int64_t end) { return end <= spans[id].start_ns; });
      if (track == tracks.end()) {
        track = tracks.insert(tracks.end(), 0);
        const auto index = static_cast<int>(track - tracks.begin());
        name_thread(lanes_[lane].rank, thread_of(stream, index),
                    index ? fmt::format("{} ({})", name_of(stream), index + 1)
                          : std::string(name_of(stream)));
      }
      *track = std::max(spans[id].start_ns, spans[id].end_ns);
      thread[id] = thread_of(stream, static_cast<int>(track - tracks.begin()));
    }
  }

  std::string communication(int lane, std::size_t id, const Instruction& i) const {
    const Program& program = plan_.programs[lanes_[lane].stage];
    if (std::holds_alternative<Compute>(i.action)) return "";
    std::string text = fmt::format(R"(,"bytes":{})", payload_bytes(program, i));
    if (std::holds_alternative<Copy>(i.action)) return text;
    const WaitTransfer split = split_at(timeline_.lanes[lane][id], arrivals_[lane][id]);
    const GroupSpread spread = spread_at(lanes_[lane].stage, i);
    return text + fmt::format(R"(,"group":{},"ranks":{},"nodes":{},"groups_on_a_node":{},)"
                              R"("wait_us":{},"transfer_us":{})",
                              json_text(axis_name(i)), spread.ranks, spread.nodes,
                              spread.groups_on_a_node, micros(length_ns(split.wait)),
                              micros(length_ns(split.transfer)));
  }

  // Of a collective's group, or of the two ranks of a message.
  GroupSpread spread_at(int stage, const Instruction& i) const {
    if (const auto* collective = std::get_if<Collective>(&i.action))
      return spread_of(plan_.mesh, collective->group, Machine{});
    const auto* send = std::get_if<Send>(&i.action);
    const int from = send ? stage : std::get<Recv>(i.action).from, to = send ? send->to : stage;
    return message_spread(leaving_[from * plan_.mesh.size(Axis::pp) + to]);
  }

  // What it waited for on other streams.
  std::string after(int lane, const Instruction& i) const {
    const Program& program = plan_.programs[lanes_[lane].stage];
    std::string list;
    for (const InstructionId before : program.after(i))
      list += fmt::format("{}{}", list.empty() ? "" : ",", before);
    return list.empty() ? "" : fmt::format(R"(,"after":[{}])", list);
  }

  void slice(int lane, std::size_t id) {
    const Instruction& i = plan_.programs[lanes_[lane].stage].instructions[id];
    const Span& span = timeline_.lanes[lane][id];
    const Label& label = i.label;
    event(fmt::format(
        R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"cname":"{}","args":{{"instruction":{},"pass":"{}","micro_batch":{},"chunk":{},"layer":{},"stage":{},"site":{},"action":{}{}{}}}}})",
        json_text(label_text(plan_, label)), name_of(i.stream), lanes_[lane].rank,
        threads_[lane][id], micros(span.start_ns - base_ns_),
        micros(std::max<std::int64_t>(0, length_ns(span))), colour_of(label.pass), id,
        name_of(label.pass), label.micro_batch, static_cast<int>(label.chunk), label.layer,
        label.stage, names_[label.site], json_text(action_text(plan_, i)), after(lane, i),
        communication(lane, id, i)));
  }

  // Gaps between computations, by the phase of the pipeline window that they are in.
  void bubble(int lane, const Bubble& bubble) {
    const Program& program = plan_.programs[lanes_[lane].stage];
    std::vector<Span> compute;
    for (std::size_t id = 0; id < program.instructions.size(); ++id)
      if (std::holds_alternative<Compute>(program.instructions[id].action))
        compute.push_back(timeline_.lanes[lane][id]);
    const Intervals busy = unite(std::move(compute));
    name_thread(lanes_[lane].rank, kBubbleThread, "bubble");
    std::int64_t start = bubble.window.start_ns;
    const auto phase = [&](const char* name, const Phase& part) {
      const Span window{start, start + part.window_ns};
      for (const Span& gap : subtract({window}, busy))
        event(fmt::format(
            R"({{"ph":"X","name":"{}","cat":"bubble","pid":{},"tid":{},"ts":{},"dur":{}}})", name,
            lanes_[lane].rank, kBubbleThread, micros(gap.start_ns - base_ns_),
            micros(length_ns(gap))));
      start = window.end_ns;
    };
    phase("warm-up bubble", bubble.warm_up);
    phase("steady bubble", bubble.steady);
    phase("cool-down bubble", bubble.cool_down);
  }

  void arrow(const char* phase, std::int64_t message, int lane, InstructionId id,
             std::int64_t at_ns) {
    event(fmt::format(
        R"({{"ph":"{}","name":"message","cat":"p2p","id":{},"pid":{},"tid":{},"ts":{}{}}})", phase,
        message, lanes_[lane].rank, threads_[lane][id], micros(at_ns - base_ns_),
        *phase == 'f' ? R"(,"bp":"e")" : ""));
  }

  // From a send's start to the receive, at the last arrival or, where both ended then, just before.
  void arrows() {
    std::int64_t number = 0;
    for (const Message& m : messages(plan_, timeline_)) {
      const Span& send = timeline_.lanes[m.from_lane][m.send];
      const Span& receive = timeline_.lanes[m.to_lane][m.receive];
      const std::int64_t inside = std::min(arrivals_[m.to_lane][m.receive], receive.end_ns - 1);
      ++number;
      arrow("s", number, m.from_lane, m.send, send.start_ns);
      arrow("f", number, m.to_lane, m.receive, std::max(send.start_ns, inside));
    }
  }

  std::ostream& out_;
  const Plan& plan_;
  const Timeline& timeline_;
  std::vector<Lane> lanes_;
  Arrivals arrivals_;
  std::vector<int> leaving_;  // messages_leaving
  std::int64_t base_ns_;
  std::vector<std::string> names_;
  std::vector<std::vector<int>> threads_;  // by lane and instruction
  bool first_ = true;
};

}  // namespace

void write_trace(std::ostream& out, const Plan& plan, const Timeline& timeline) {
  TraceWriter(out, plan, timeline).write();
}

void save_trace(const std::string& path, const Plan& plan, const Timeline& timeline) {
  write_whole(path, [&](std::ostream& out) { write_trace(out, plan, timeline); });
}

}  // namespace mb
