#include "parallel/schedule/closed_form.h"

#include <algorithm>

namespace mb {

std::optional<double> idle_closed_form(std::string_view schedule, const PipelineShape& shape,
                                       double forward, double input_grad, double weight_grad) {
  const double f = forward, i = input_grad, w = weight_grad;
  const int m = shape.micro_batches, others = shape.ranks - 1;
  if (schedule == "gpipe" || schedule == "1f1b") return others * (f + i + w);
  if (schedule == "interleaved") return others * (f + i + w) / shape.chunks;
  if (schedule == "zb-h1" || (schedule == "interleaved-zb" && shape.chunks == 1))
    return others * (f + i) - (std::min(m, shape.ranks) - 1) * std::min(i, w);
  if (schedule == "interleaved-zb") return others * (f + std::max(i - w, 0.0)) / shape.chunks;
  if (schedule == "zb-v" && f == i && i == w)
    return std::max<double>(2 * others + 1 - m, others / 2.0) * f;
  if (schedule == "dualpipe-v") {
    const double each = f + std::max(i - w, 0.0) + std::max(f - i - w, 0.0);
    return (others * each + std::max(others * i - shape.ranks * f, 0.0)) / 2;
  }
  return std::nullopt;
}

std::optional<IdleForm> idle_form(std::string_view schedule) {
  constexpr std::string_view kSc21 = "Narayanan et al., SC 2021, section 2.2";
  constexpr std::string_view kOwn = "derived from the order of its slots and held to a simulation";
  if (schedule == "gpipe") return IdleForm{"(p-1)(F+I+W)", "Huang et al., NeurIPS 2019"};
  if (schedule == "1f1b") return IdleForm{"(p-1)(F+I+W)", kSc21};
  if (schedule == "interleaved") return IdleForm{"(p-1)(F+I+W)/v", kSc21};
  if (schedule == "zb-h1")
    return IdleForm{"(p-1)(F+I)-(min(m,p)-1)min(I,W)", "Qi et al., ICLR 2024, section 2"};
  if (schedule == "interleaved-zb") return IdleForm{"(p-1)(F+max(I-W,0))/v for v>1", kOwn};
  if (schedule == "zb-v")
    return IdleForm{"max(2p-1-m,(p-1)/2)F for F=I=W",
                    "Qi et al., Pipeline Parallelism with Controllable Memory, 2024"};
  if (schedule == "dualpipe-v")
    return IdleForm{"((p-1)(F+max(I-W,0)+max(F-I-W,0))+max((p-1)I-pF,0))/2", kOwn};
  return std::nullopt;
}

std::optional<std::int64_t> peak_live_chunks(std::string_view schedule, const PipelineShape& shape,
                                             int rank) {
  const std::int64_t p = shape.ranks, m = shape.micro_batches, v = shape.chunks;
  const std::int64_t later_rounds = (v - 1) * shape.group_or_ranks();
  if (schedule == "gpipe") return m;
  if (schedule == "1f1b" || (schedule == "interleaved" && v == 1)) return std::min(m, p - rank);
  if (schedule == "interleaved") return std::min(m * v, 2 * (p - rank - 1) + later_rounds + 1);
  if (schedule == "zb-h1" || schedule == "interleaved-zb") return std::min(m * v, later_rounds + p);
  if (schedule == "zb-v") return std::min({2 * p, 2 * m, m + 1 + rank});
  if (schedule == "dualpipe-v") return 2 * p + 1;
  return std::nullopt;
}

}  // namespace mb
