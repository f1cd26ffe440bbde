// Rotary position embedding of one head of one token (Su et al., RoFormer, 2021).
#pragma once

#include "workloads/base/half.h"
#include "workloads/ops/team.h"

namespace mb {

// Rotates the pairs (i, i + half) of x[2 half] by angles whose cosines and sines are given; `sign`
// -1 rotates back.
template <class Team, class T, class M>
static MB_HD void rotate_head(Team team, T* x, const M* cosine, const M* sine, M sign,
                              std::int64_t half) {
  team.for_each(half, [=](std::int64_t i) {
    const M a = x[i], b = x[half + i];
    const M c = cosine[i], s = sign * sine[i];
    x[i] = a * c - b * s;
    x[half + i] = b * c + a * s;
  });
}

}  // namespace mb
