#include "bench/coll/place.h"

#include <algorithm>

#include "workloads/base/error.h"

namespace mb {

std::string to_text(const RankPlace& place) {
  switch (place.step()) {
    case RankStep::working:
      return cat("preparing operation ", place.operation());
    case RankStep::meeting:
      return cat("at the meeting before operation ", place.operation());
    case RankStep::delayed:
      return cat("kept back before operation ", place.operation(), " by inject=");
    case RankStep::operating:
      return cat("in operation ", place.operation());
    case RankStep::sharing:
      return cat("sharing times after operation ", place.operation());
    case RankStep::done:
      return "done";
  }
  return "?";
}

std::string diagnosis(const std::vector<int>& ranks, const RankPlace* places) {
  std::uint64_t front = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) front = std::max(front, places[i].raw());
  std::string arrived, missing;
  std::string at;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (places[i].raw() == front) {
      arrived += cat(arrived.empty() ? "" : ", ", ranks[i]);
      at = to_text(places[i]);
    } else {
      missing += cat(missing.empty() ? "" : ", ", ranks[i], " (", to_text(places[i]), ")");
    }
  }
  return cat("ranks that have arrived: ", arrived, " (", at,
             "); not arrived: ", missing.empty() ? "none" : missing);
}

}  // namespace mb
