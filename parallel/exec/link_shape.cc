#include <charconv>
#include <cmath>

#include "parallel/exec/shaped_world.h"
#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

constexpr std::string_view kExample = "intra:4GB/s,2us;inter:0.5GB/s,20us";

// Shortest text that reads back the same.
std::string number(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return {text, end};
}

std::string_view cut(std::string_view& text, char mark) {
  const std::size_t end = std::min(text.find(mark), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

}  // namespace

LinkShape parse_link_shape(std::string_view text, std::string_view subject) {
  LinkShape shape;
  bool intra = false, inter = false;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = cut(rest, ';');
    std::string_view values = part;
    const std::string_view name = cut(values, ':');
    require(name == "intra" || name == "inter", subject, "=", text, ": '", part,
            "' is no link; give intra: and inter:, as in ", kExample);
    bool& seen = name == "intra" ? intra : inter;
    require(!seen, subject, "=", text, ": ", name, " is there twice");
    seen = true;
    std::string_view rate = cut(values, ',');
    const std::string where = cat(subject, "=", text, ", ", name);
    if (name == "inter" && rate.ends_with("/node")) {
      shape.inter_of_node = true;
      rate.remove_suffix(5);
    }
    Link& link = name == "intra" ? shape.intra : shape.inter;
    link.gb_per_s = parse_bandwidth(rate, where) * 1e-9;
    link.latency_us = parse_duration_ns(values, where) * 1e-3;
  }
  require(intra && inter, subject, "=", text, ": give both intra: and inter:, as in ", kExample);
  return shape;
}

std::string to_text(const LinkShape& shape) {
  const auto link = [](const Link& l, const char* per) {
    return cat(number(l.gb_per_s), "GB/s", per, ",", number(l.latency_us), "us");
  };
  return cat("intra:", link(shape.intra, ""),
             ";inter:", link(shape.inter, shape.inter_of_node ? "/node" : ""));
}

}  // namespace mb
