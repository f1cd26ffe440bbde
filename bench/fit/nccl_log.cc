// Logs of nccl-tests and of what prints its table.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "bench/fit/input.h"
#include "bench/fit/lines.h"
#include "workloads/base/error.h"

namespace mb {
namespace {

using Words = std::vector<std::string_view>;

// Of the eight columns of a row's two halves: time, algbw, busbw, #wrong, out of place and in
// place. What stands before them differs between versions and collectives.
constexpr std::size_t kHalves = 8;

struct Row {
  double bytes = 0, time_us = 0, algbw = 0, busbw = 0;
  std::string_view redop;
  bool has_root = false, no_in_place_check = false;
};

// One run of a test: its ranks, and its rows.
struct Section {
  std::optional<CollectiveKind> kind;
  std::map<std::string, int> ranks_on;  // by host, of the first group
  std::vector<Row> rows;
  bool ended = false;
  int line = 0;
};

std::optional<CollectiveKind> kind_in(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::erase_if(name, [](char c) { return c == '_' || c == '-' || c == ' '; });
  using enum CollectiveKind;
  static const std::vector<std::pair<std::string_view, CollectiveKind>> table = {
      {"allreduce", all_reduce}, {"reducescatter", reduce_scatter},
      {"allgather", all_gather}, {"alltoallv", all_to_all_v},
      {"alltoall", all_to_all},  {"broadcast", broadcast},
      {"sendrecv", shift},       {"scatter", scatter},
      {"gather", gather},        {"reduceperf", reduce}};
  for (const auto& [text, kind] : table)
    if (name.find(text) != std::string::npos) return kind;
  return std::nullopt;
}

// From the factor between both bandwidths, reduction and root.
std::optional<CollectiveKind> kind_of(const Section& section, int ranks) {
  using enum CollectiveKind;
  const auto best = std::max_element(section.rows.begin(), section.rows.end(),
                                     [](const Row& a, const Row& b) { return a.algbw < b.algbw; });
  if (best == section.rows.end() || best->algbw < 0.1) return std::nullopt;
  const double factor = best->busbw / best->algbw, share = (ranks - 1.0) / ranks;
  const auto is = [&](double wanted) { return std::abs(factor / wanted - 1) < 0.02; };
  const bool reduces = best->redop != "none";
  if (best->has_root) return is(1) ? std::optional(reduces ? reduce : broadcast) : std::nullopt;
  if (reduces)
    return is(2 * share) ? std::optional(all_reduce)
           : is(share)   ? std::optional(reduce_scatter)
                         : std::nullopt;
  if (is(1) && ranks > 1) return shift;
  if (!is(share)) return std::nullopt;
  return best->no_in_place_check ? all_to_all : all_gather;
}

class Log {
 public:
  Log(const std::string& path, FitRows& rows) : path_(path), out_(rows) {}

  void read(std::string_view text) {
    for (const std::string_view line : lines_of(text)) {
      ++line_;
      const Words words = words_of(line);
      if (words.empty()) continue;
      if (words[0].starts_with('#')) {
        comment(line, words);
      } else if (std::isdigit(static_cast<unsigned char>(words[0][0])) && words.size() > 1) {
        row(words);
      }
    }
    finish();
  }

 private:
  std::string at(int line) const { return cat(path_, ":", line, ": "); }

  double number(std::string_view word, const char* what) const {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    require(error == std::errc() && end == word.data() + word.size(), at(line_), what, " '", word,
            "' is not a number; was the log cut or edited?");
    return value;
  }

  void comment(std::string_view line, const Words& words) {
    const std::string text(line);
    if (text.find("# meshbench coll") != std::string::npos)
      throw Error(cat(at(line_),
                      "a table of 'meshbench coll' does not say which ranks share a "
                      "node; give the rows that its -o writes"));
    if (text.find("Collective test starting:") != std::string::npos) {
      finish();
      section_.kind = kind_in(text.substr(text.find(':')));
    } else if (text.find("nThread ") != std::string::npos) {
      if (!section_.rows.empty()) finish();
    } else if (std::find(words.begin(), words.end(), "Rank") != words.end()) {
      rank(words);
    } else if (text.find("(us)") != std::string::npos || text.find("(ms)") != std::string::npos) {
      require(text.find("(ms)") == std::string::npos, at(line_),
              "times in ms; nccl-tests prints us, and so does a log that is to be read here");
    } else if (text.find("Out of bounds values") != std::string::npos) {
      const double wrong = number(words[words.size() - 2], "the count");
      require(wrong == 0, at(line_), wrong,
              " values were wrong; a collective that gives wrong data is not worth timing");
      section_.ended = true;
    }
  }

  // "#  Rank  0 Group  0 Pid 71 on  host device  0 [0x07] NVIDIA A100"
  void rank(const Words& words) {
    if (section_.ended || !section_.rows.empty()) finish();
    const auto group = std::find(words.begin(), words.end(), "Group");
    if (group != words.end() && group + 1 != words.end() && group[1] != "0") return;
    const auto on = std::find(words.begin(), words.end(), "on");
    require(on != words.end() && on + 1 != words.end(), at(line_),
            "a rank without a host; was the log cut or edited?");
    ++section_.ranks_on[std::string(on[1])];
  }

  void row(const Words& words) {
    if (section_.line == 0) section_.line = line_;
    require(words.size() >= kHalves + 3, at(line_), "a row of ", words.size(),
            " columns; nccl-tests prints at least ", kHalves + 3,
            ". Is the log cut off? Leave the line out");
    const Words halves(words.end() - kHalves, words.end());
    Row row{.bytes = number(words[0], "the size"),
            .time_us = number(halves[0], "the time"),
            .algbw = number(halves[1], "algbw"),
            .busbw = number(halves[2], "busbw")};
    for (const std::size_t wrong : {3, 7}) {
      const bool unchecked = halves[wrong] == "N/A";
      if (!unchecked && number(halves[wrong], "#wrong") != 0 &&
          halves[wrong].find("e-") ==
              std::string_view::npos)  // old versions print the largest error there
        throw Error(cat(at(line_), halves[wrong],
                        " values were wrong; a collective that gives wrong data is not worth "
                        "timing"));
      if (wrong == 7) row.no_in_place_check = unchecked && halves[3] != "N/A";
    }
    if (row.bytes == 0) return;
    checked_time(row.time_us, cat(at(line_), "a time of ", halves[0], " us"));
    const double rate = row.bytes / (row.time_us * 1e3);
    // Rates have two decimals.
    require(std::abs(rate - row.algbw) < 0.03 * rate + 0.02, at(line_), halves[0], " us for ",
            words[0], " bytes are ", rate, " GB/s, and algbw says ", halves[1],
            ": is the time in us, and the rate in 1e9 bytes?");
    if (words.size() > kHalves + 3) {
      row.redop = words[3];
      const std::string_view root = words[words.size() - kHalves - 1];
      row.has_root = words.size() > kHalves + 4 && root != "-1";
    }
    section_.rows.push_back(row);
  }

  void finish() {
    if (!section_.rows.empty()) take();
    section_ = {};
  }

  void take() {
    int ranks = 0;
    GroupSpread spread;
    for (const auto& [host, count] : section_.ranks_on) {
      ranks += count;
      spread.on_a_node = std::max(spread.on_a_node, count);
    }
    require(ranks > 0, at(section_.line),
            "no '# Rank' lines before the rows, so that the number of ranks and nodes is not "
            "known; give the log with its header");
    if (ranks < 2) return out_.notes.push_back(at(section_.line) + "one rank moves nothing");
    spread.ranks = ranks, spread.nodes = static_cast<int>(section_.ranks_on.size());
    auto kind = section_.kind;
    if (!kind) kind = kind_in(path_.substr(path_.find_last_of('/') + 1));
    if (!kind) kind = kind_of(section_, ranks);
    require(kind.has_value(), at(section_.line),
            "which collective is it? Neither the log nor the file's name says; name the file "
            "all_reduce.log or the like");
    for (const Row& row : section_.rows)
      out_.collectives.push_back({*kind, spread, row.bytes, 1e-6 * row.time_us, path_});
    if (!section_.ended)
      out_.notes.push_back(cat(path_, " ends before its last lines; ", section_.rows.size(),
                               " rows of it were taken"));
  }

  const std::string& path_;
  FitRows& out_;
  Section section_;
  int line_ = 0;
};

}  // namespace

void read_nccl_log(std::string_view text, const std::string& path, FitRows& rows) {
  const std::size_t before = rows.collectives.size() + rows.notes.size();
  Log(path, rows).read(text);
  require(rows.collectives.size() + rows.notes.size() > before, path,
          ": no row of a collective; did the test run? A row begins with the size in bytes");
}

}  // namespace mb
