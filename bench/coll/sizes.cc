#include "bench/coll/sizes.h"

#include <algorithm>
#include <cmath>

#include "workloads/base/error.h"
#include "workloads/base/units.h"

namespace mb {
namespace {

constexpr std::size_t kMostSizes = 10'000;

// One item of the list within the whole text, for messages.
struct Item {
  std::string_view token, text, subject;

  template <class... Parts>
  void require_that(bool ok, const Parts&... why) const {
    require(ok, subject, "=", text, ": '", token, "' ", why...);
  }
  std::int64_t size(std::string_view part) const { return parse_size(part, text, subject); }
};

void add(std::vector<std::int64_t>& sizes, std::int64_t size, const Item& item) {
  item.require_that(sizes.size() < kMostSizes, "makes more than ", kMostSizes,
                    " sizes; give a larger step or factor");
  if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
}

void add_by_factor(std::vector<std::int64_t>& sizes, std::int64_t least, std::int64_t most,
                   std::string_view factor_text, const Item& item) {
  const double factor = parse_number(
      factor_text, cat(item.subject, "=", item.text, ": the factor in '", item.token, "'"));
  item.require_that(factor > 1, "has a factor of ", factor_text,
                    ", which never reaches the end; give one above 1, such as x2");
  item.require_that(least > 0, "begins at 0, which no factor leaves; begin at 1 or more");
  for (std::int64_t size = least;;) {
    add(sizes, size, item);
    const long double next = std::max(std::floor(static_cast<long double>(size) * factor),
                                      static_cast<long double>(size) + 1);
    if (next > static_cast<long double>(most)) return;
    size = static_cast<std::int64_t>(next);
  }
}

void add_by_step(std::vector<std::int64_t>& sizes, std::int64_t least, std::int64_t most,
                 std::string_view step_text, const Item& item) {
  const std::int64_t step = item.size(step_text);
  item.require_that(step > 0, "has a step of 0, which never reaches the end; give one above 0");
  for (std::int64_t size = least;; size += step) {
    add(sizes, size, item);
    if (most - size < step) return;
  }
}

void add_by_decade(std::vector<std::int64_t>& sizes, std::int64_t least, std::int64_t most,
                   std::string_view count_text, const Item& item) {
  const std::int64_t count = parse_integer(
      count_text, cat(item.subject, "=", item.text, ": sizes to a decade in '", item.token, "'"));
  item.require_that(count >= 1 && count <= 1000, "wants 1 to 1000 sizes to a decade, not ", count);
  item.require_that(least > 0, "begins at 0, which has no decade; begin at 1 or more");
  for (std::int64_t k = 0;; ++k) {
    const long double size = std::round(
        least * std::pow(10.0L, static_cast<long double>(k) / static_cast<long double>(count)));
    if (size > static_cast<long double>(most)) return;
    add(sizes, static_cast<std::int64_t>(size), item);
  }
}

void add_range(std::vector<std::int64_t>& sizes, std::size_t colon, const Item& item) {
  const std::string_view rest = item.token.substr(colon + 1);
  const std::size_t mark = rest.find_first_of(":/");
  item.require_that(mark != std::string_view::npos,
                    "does not say how to go on; give MIN:MAX:x2, MIN:MAX:+1M or MIN:MAX/10");
  const std::int64_t least = item.size(item.token.substr(0, colon)),
                     most = item.size(rest.substr(0, mark));
  item.require_that(least <= most, "begins above its end; give the smaller size first");
  const std::string_view how = rest.substr(mark + 1);
  if (rest[mark] == '/') return add_by_decade(sizes, least, most, how, item);
  item.require_that(how.starts_with('x') || how.starts_with('+'), "goes on by '", how,
                    "'; give a factor, as in x2, or a step, as in +1M");
  how.front() == 'x' ? add_by_factor(sizes, least, most, how.substr(1), item)
                     : add_by_step(sizes, least, most, how.substr(1), item);
}

}  // namespace

std::int64_t parse_size(std::string_view token, std::string_view text, std::string_view subject) {
  const bool plain = !token.empty() && token.find_first_not_of("0123456789") == token.npos;
  const std::string name =
      token == text ? std::string(subject) : cat(subject, "=", text, ": '", token, "'");
  return plain ? parse_integer(token, name) : parse_bytes(token, name);
}

std::vector<std::int64_t> parse_sizes(std::string_view text, std::string_view subject) {
  std::vector<std::int64_t> sizes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const Item item{text.substr(begin, end - begin), text, subject};
    item.require_that(!item.token.empty(),
                      "is no size; give sizes with commas between, as in 1K,1M:16M:x2");
    const std::size_t colon = item.token.find(':');
    if (colon == std::string_view::npos) {
      add(sizes, item.size(item.token), item);
    } else {
      add_range(sizes, colon, item);
    }
    begin = end + 1;
  }
  return sizes;
}

}  // namespace mb
