#include "parallel/schedule/user_schedule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "parallel/schedule/check_slots.h"
#include "workloads/base/error.h"
#include "workloads/base/suggest.h"

namespace mb {
namespace {

constexpr std::array kSlotPasses{Pass::forward, Pass::backward, Pass::input_grad,
                                 Pass::weight_grad};

constexpr int kMostMicroBatches = 999999;

// Takes a whole number off the front of `text`, if it is one that a step may have.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > kMostMicroBatches) return std::nullopt;
  text.remove_prefix(end - text.data());
  return value;
}

std::optional<Slot> slot_in(std::string_view text) {
  Slot slot;
  const auto pass = std::find_if(kSlotPasses.begin(), kSlotPasses.end(),
                                 [&](Pass p) { return text.starts_with(letter_of(p)); });
  if (pass == kSlotPasses.end()) return std::nullopt;
  slot.pass = *pass;
  text.remove_prefix(1);
  const auto micro_batch = take_number(text);
  if (!micro_batch) return std::nullopt;
  slot.micro_batch = *micro_batch;
  if (text.empty()) return slot;
  if (!text.starts_with('.')) return std::nullopt;
  text.remove_prefix(1);
  const auto chunk = take_number(text);
  if (!chunk || !text.empty()) return std::nullopt;
  slot.chunk = *chunk;
  return slot;
}

class Parser {
 public:
  explicit Parser(std::string_view origin) : origin_(origin) {}

  UserSchedule parse(std::string_view text) {
    std::istringstream in{std::string(text)};
    for (std::string line; std::getline(in, line);) {
      ++line_;
      std::istringstream words(line.substr(0, line.find('#')));
      std::string word;
      if (!(words >> word)) continue;
      if (word == "placement") {
        read_placement(words);
      } else {
        refuse_unless(word == "stage", "'", word, "' begins no line; write 'stage ",
                      schedule_.slots.size(), "' and its slots, or 'placement NAME' first of all");
        read_stage(words);
      }
    }
    return finish();
  }

 private:
  template <class... Parts>
  void refuse_unless(bool ok, const Parts&... message) const {
    require(ok, origin_, ':', line_, ": ", message...);
  }

  void read_placement(std::istringstream& words) {
    refuse_unless(!placed_ && schedule_.slots.empty(), "write 'placement' once, before any stage");
    std::string name, more;
    words >> name;
    static constexpr std::array kPlacements{Placement::linear, Placement::looped, Placement::v};
    schedule_.placement =
        find_named(kPlacements, name, cat(origin_, ':', line_, ": placement ", name),
                   [](Placement p) { return name_of(p); });
    refuse_unless(!(words >> more), "'", more, "' comes after the placement; leave it out");
    placed_ = true;
  }

  void read_stage(std::istringstream& words) {
    std::string number, word;
    words >> number;
    refuse_unless(number == cat(schedule_.slots.size()), "stage ", number,
                  " is out of turn; the next line is that of stage ", schedule_.slots.size());
    std::vector<Slot>& slots = schedule_.slots.emplace_back();
    lines_.push_back(line_);
    while (words >> word) {
      const std::optional<Slot> slot = slot_in(word);
      refuse_unless(slot.has_value(), "stage ", number, " slot ", slots.size(), " '", word,
                    "' is no slot; write F, B, I or W, a micro-batch and, for a chunk above 0, a "
                    "dot and the chunk, such as F0 or B3.1");
      slots.push_back(*slot);
      schedule_.chunks = std::max(schedule_.chunks, slot->chunk + 1);
      schedule_.micro_batches = std::max(schedule_.micro_batches, slot->micro_batch + 1);
    }
  }

  UserSchedule finish() {
    const int ranks = static_cast<int>(schedule_.slots.size()), chunks = schedule_.chunks;
    require(ranks > 0, origin_, ": no stage in it; write lines such as 'stage 0 F0 B0'");
    if (!placed_ && chunks > 1) schedule_.placement = Placement::looped;
    require(schedule_.placement != Placement::linear || chunks == 1, origin_,
            ": placement linear has 1 chunk on each stage, not ", chunks,
            "; use placement looped, or v for 2 chunks");
    require(schedule_.placement != Placement::v || chunks == 2, origin_,
            ": placement v has 2 chunks on each stage, not ", chunks, "; use placement ",
            chunks == 1 ? "linear" : "looped");
    const auto wrong = find_wrong_slot(
        schedule_.slots, schedule_.placement,
        {.ranks = ranks, .chunks = chunks, .micro_batches = schedule_.micro_batches});
    if (wrong)
      throw Error(
          cat(origin_, ':', lines_[wrong->rank], ": stage ", wrong->rank, ' ', wrong->what));
    return std::move(schedule_);
  }

  std::string_view origin_;
  int line_ = 0;
  bool placed_ = false;
  std::vector<int> lines_;  // by rank
  UserSchedule schedule_;
};

}  // namespace

UserSchedule parse_schedule(std::string_view text, std::string_view origin) {
  return Parser(origin).parse(text);
}

}  // namespace mb
