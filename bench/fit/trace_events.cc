#include "bench/fit/trace_events.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "workloads/base/error.h"

namespace mb {
namespace {

// "12.345" in thousandths, further digits cut; a double where it has an exponent.
std::int64_t thousandths(const std::string& text) {
  if (text.find_first_of("eE") != std::string::npos)
    return static_cast<std::int64_t>(1e3 * std::strtod(text.c_str(), nullptr));
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point);
  std::string fraction = point < text.size() ? text.substr(point + 1, 3) : "";
  fraction.resize(3, '0');
  digits += fraction;
  std::int64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

// Events are objects in the list "traceEvents", or in a list that is the whole file; of what is in
// them only "args" is looked into.
class Handler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<TraceEvent> events;
  std::size_t failed_at = 0;

  bool start_object(std::size_t) override {
    if (list_depth_ > 0 && depth_ == list_depth_) event_ = TraceEvent{}, is_slice_ = false;
    if (list_depth_ > 0 && depth_ == list_depth_ + 1) in_args_ = key_ == "args";
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    if (list_depth_ > 0 && depth_ == list_depth_ && is_slice_) events.push_back(event_);
    if (depth_ == list_depth_ + 1) in_args_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    ++depth_;
    if (list_depth_ == 0 && ((depth_ == 1) || (depth_ == 2 && key_ == "traceEvents")))
      list_depth_ = depth_;
    return true;
  }
  bool end_array() override {
    if (depth_ == list_depth_) list_depth_ = 0;
    --depth_;
    return true;
  }
  bool key(string_t& name) override {
    key_ = name;
    return true;
  }
  bool string(string_t& value) override {
    if (of_event()) {
      if (key_ == "name") event_.name = value;
      if (key_ == "cat") event_.category = value;
      if (key_ == "ph") is_slice_ = value == "X";
    } else if (of_args()) {
      if (key_ == "action") event_.action = value;
      number(value);  // some writers quote them
    }
    return true;
  }
  bool number_integer(number_integer_t value) override { return number(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return number(text); }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) override {
    failed_at = at;
    return false;
  }

 private:
  bool of_event() const { return list_depth_ > 0 && depth_ == list_depth_ + 1; }
  bool of_args() const { return list_depth_ > 0 && depth_ == list_depth_ + 2 && in_args_; }
  bool of_list() const {
    return list_depth_ > 0 && depth_ == list_depth_ + 3 && in_args_ &&
           (key_ == "grid" || key_ == "block" || key_ == "after");
  }
  bool number(const std::string& text) {
    const std::int64_t value = thousandths(text);
    if (of_event()) {
      if (key_ == "ts") event_.start_ns = value;
      if (key_ == "dur") event_.duration_ns = value;
      if (key_ == "pid") event_.process = value / 1000;
      if (key_ == "tid") event_.thread = value / 1000;
    } else if (of_args()) {
      if (key_ == "stream") event_.stream = value / 1000;
      if (key_ == "correlation") event_.correlation = value / 1000;
      if (key_ == "instruction") event_.instruction = value / 1000;
      if (key_ == "bytes") event_.bytes = value / 1000;
      if (key_ == "transfer_us") event_.transfer_ns = value;
      if (key_ == "ranks") event_.ranks = value / 1000;
      if (key_ == "nodes") event_.nodes = value / 1000;
      if (key_ == "groups_on_a_node") event_.groups_on_a_node = value / 1000;
    } else if (of_list()) {
      if (key_ == "after") {
        event_.after.push_back(value / 1000);
      } else {
        event_.shape += text + ' ';
      }
    }
    return true;
  }

  int depth_ = 0, list_depth_ = 0;  // list_depth_: within the list of events; 0: not in it
  bool in_args_ = false, is_slice_ = false;
  std::string key_;
  TraceEvent event_;
};

}  // namespace

std::vector<TraceEvent> trace_events(std::string_view text, const std::string& path) {
  Handler handler;
  const bool whole = nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  require(whole, path, ": no JSON from byte ", handler.failed_at,
          " on; is the trace cut off? Write it again, or end it before that event with ]}");
  return std::move(handler.events);
}

}  // namespace mb
