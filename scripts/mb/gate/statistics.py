"""Two-stage paired test of timed metrics, on arrays: one row per metric, one column per pair of launches.

An element of an array of effects is how much worse the candidate of one pair is: the logarithm of the ratio of
times (positive is worse), or a difference for metrics that may be zero. NaN is a pair of which a launch failed.
A first stage screens at a loose level; what it flags is decided on launches of its own, so that the two levels
multiply whatever the metrics have to do with each other.
"""

import dataclasses
import functools
import math
import warnings

import numpy as np

FIRST_PAIRS = 10
FIRST_LEVEL = 0.10      # a flag of the screen
SECOND_LEVEL = 0.0075   # upper limit of the level of the confirmation
RUN_LEVEL = 0.001       # false alarms allowed per whole gate run
POWER = 0.98            # of the confirmation, at TARGET
TARGET = math.log(1.05)  # an effect that has to be found
FLOOR = math.log(1.02)   # a smaller effect is never a regression
MIN_PAIRS, MAX_PAIRS = 5, 60


def second_level(primaries):
    """Level of the confirmation, so that a run of `primaries` timed metrics keeps to RUN_LEVEL.

    False alarms per run are at most primaries * FIRST_LEVEL * second level (union bound), kept to three
    quarters of RUN_LEVEL.
    """
    return min(SECOND_LEVEL, 0.75 * RUN_LEVEL / (max(primaries, 1) * FIRST_LEVEL))


def _moments(effects):
    """(n, mean, standard deviation) of the finite pairs of each row."""
    there = np.isfinite(effects)
    n = there.sum(axis=-1)
    values = np.where(there, effects, 0.0)
    mean = values.sum(axis=-1) / np.maximum(n, 1)
    squares = np.where(there, (values - mean[..., None]) ** 2, 0.0).sum(axis=-1)
    return n, mean, np.sqrt(squares / np.maximum(n - 1, 1))


def worse_p(effects):
    """One-sided p of a paired t test that the candidate is worse; rows without spread are told by sign."""
    from scipy import stats

    n, mean, deviation = _moments(effects)
    flat = deviation <= 1e-15
    t = mean * np.sqrt(np.maximum(n, 1)) / np.where(flat, 1.0, deviation)
    p = stats.t.sf(t, np.maximum(n - 1, 1))
    return np.where(n < 2, 1.0, np.where(flat, np.where(mean > 0, 0.0, 1.0), p))


def _signed_sums(values):
    """The sums of some values with all signs, sorted."""
    found = np.zeros(1)
    for value in values:
        found = np.sort(np.concatenate([found - abs(value), found + abs(value)]), kind="stable")  # merges two runs
    return found


def _tail_share(values):
    """Share of all ways to give values signs whose sum is no less than that of the values as they are.

    Sums of both halves are made in full and put together in order, so that 40 values take 2^20 sums and not 2^40.
    """
    left, right = _signed_sums(values[:len(values) // 2]), _signed_sums(values[len(values) // 2:])
    # The sums are of the same numbers in another order: equal ones may differ by rounding.
    edge = values.sum() - 1e-12 * np.abs(values).sum()
    return float((len(right) - np.searchsorted(right, edge - left[::-1])).mean() / len(right))


def flip_p(effects):
    """As worse_p, by the exact sign-flip test: where builds are equal, each effect could as well have the other sign.

    It asks nothing of the noise but that it is alike on both sides, and wants ten pairs for a p below 0.001.
    """
    return np.array([_tail_share(row[np.isfinite(row)]) if np.isfinite(row).sum() >= 2 else 1.0
                     for row in np.asarray(effects, float)])


# Name -> (test that the candidate is worse, the most pairs of a confirmation that it can take, and of a level the
# fewest: signs of n pairs have 2^n ways, so that fewer could never reject; one more forgives a pair that disagrees).
TESTS = {"t": (worse_p, MAX_PAIRS, lambda level: MIN_PAIRS),
         "signflip": (flip_p, 40, lambda level: math.ceil(-math.log2(level)) + 1)}


def hodges_lehmann(effects):
    """Median of the means of all pairs of elements, each with itself included, of each row."""
    left, right = np.triu_indices(effects.shape[-1])
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of rows in which no pair ran
        return np.nanmedian((effects[..., left] + effects[..., right]) / 2, axis=-1)


def _power(n, level, shift):
    """Power of a one-sided t test on n pairs where the mean is `shift` standard deviations above zero."""
    from scipy import stats

    critical = stats.t.isf(level, n - 1)
    center = shift * math.sqrt(n)
    power = float(stats.nct.sf(critical, n - 1, center))
    # scipy's noncentral t is NaN far out; the normal limit is good to 1e-3 there.
    return power if math.isfinite(power) else float(stats.norm.sf(critical - center))


def _least(holds, high):
    """Smallest x in (0, high] for which a monotone predicate holds, to 1e-6 of high."""
    low = 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@functools.lru_cache(maxsize=256)
def _shifts(level):
    """For n = MIN_PAIRS to MAX_PAIRS, the effect in standard deviations that n pairs find with POWER."""
    return np.array([_least(lambda s, n=n: _power(n, level, s) >= POWER, 20.0)
                     for n in range(MIN_PAIRS, MAX_PAIRS + 1)])


def second_pairs(deviation, level):
    """Pairs that confirm TARGET with POWER at this spread, by the noncentral t; MAX_PAIRS where more would do."""
    wanted = TARGET / np.maximum(np.asarray(deviation, float), 1e-12)
    enough = _shifts(level)[None, :] <= np.atleast_1d(wanted)[:, None]
    return np.where(enough.any(axis=1), enough.argmax(axis=1) + MIN_PAIRS, MAX_PAIRS)


def pairs_to_find(deviation, level):
    """Pairs that find TARGET with POWER at this spread, however many: the normal approximation of the above."""
    from scipy import stats

    edge = stats.norm.isf(level)
    wanted = (deviation / TARGET * (edge + stats.norm.ppf(POWER))) ** 2 + edge**2 / 2
    return max(MIN_PAIRS, math.ceil(wanted))


@functools.lru_cache(maxsize=4096)
def _detectable_shift(first, second, level):
    return _least(lambda s: _power(first, FIRST_LEVEL, s) * _power(second, level, s) >= 0.95, 40.0)


def _upper(deviation, n):
    """What the true spread exceeds with probability 0.15 only: half of all estimates are too small to plan on."""
    from scipy import stats

    freedom = np.maximum(n - 1, 1)
    return deviation * np.sqrt(freedom / stats.chi2.ppf(0.15, freedom))


def detectable(deviation, first, second, level):
    """Smallest effect that both stages together find with probability 0.95."""
    shift = [_detectable_shift(max(int(a), 2), max(int(b), 2), level) for a, b in zip(first, second)]
    return np.asarray(deviation) * np.array(shift)


@dataclasses.dataclass
class Decision:
    """What the two stages say of each metric, an array per field."""

    verdict: np.ndarray     # REGRESSED, INCONCLUSIVE, IMPROVED, PASS(certified) or PASS
    effect: np.ndarray      # Hodges-Lehmann, of the last stage that ran; positive is worse
    low: np.ndarray         # 95 % interval of the mean effect
    high: np.ndarray
    n: np.ndarray           # pairs of the last stage
    deviation: np.ndarray   # of one pair, from the first stage
    detectable: np.ndarray
    needed: np.ndarray      # pairs of a confirmation; MAX_PAIRS if more would do
    first_p: np.ndarray
    second_p: np.ndarray    # NaN where nothing was flagged
    pairs: np.ndarray       # launched in all


def two_stage(first, draw, primaries, test="t"):
    """Decides rows of first-stage effects [k, n]; `draw(rows, n)` launches n fresh pairs for each of some rows."""
    from scipy import stats

    worse, most, fewest = TESTS[test]
    first = np.asarray(first, float)
    level = second_level(primaries)
    n1, mean, deviation = _moments(first)
    p1 = worse(first)
    flagged = (p1 <= FIRST_LEVEL) & (mean > 0) & (n1 >= MIN_PAIRS)
    needed = np.clip(second_pairs(_upper(deviation, n1), level), fewest(level), most)
    n, effect, p2 = n1.copy(), hodges_lehmann(first), np.full(len(first), np.nan)
    spread, pairs = deviation.copy(), np.full(len(first), first.shape[1])
    for count in np.unique(needed[flagged]):
        rows = np.flatnonzero(flagged & (needed == count))
        second = np.asarray(draw(rows, int(count)), float)
        n[rows], mean[rows], spread[rows] = _moments(second)
        p2[rows], effect[rows] = worse(second), hodges_lehmann(second)
        pairs[rows] += int(count)
    half = stats.t.isf(0.025, np.maximum(n - 1, 1)) * spread / np.sqrt(np.maximum(n, 1))
    bound = mean + stats.t.isf(0.05, np.maximum(n - 1, 1)) * spread / np.sqrt(np.maximum(n, 1))
    smallest = detectable(deviation, n1, np.where(flagged, n, needed), level)
    enough = (n >= MIN_PAIRS) & (n1 >= MIN_PAIRS)
    regressed = enough & flagged & (p2 <= level) & (effect >= FLOOR)
    improved = enough & (worse(-first) <= level) & (effect <= -FLOOR)
    certified = bound < TARGET
    # A confirmation may certify what the screen was too noisy to: its launches know nothing of the flag.
    blind = ~enough | ((smallest > TARGET) & ~improved & ~(flagged & certified))
    verdict = np.select([regressed, blind, improved, certified],
                        ["REGRESSED", "INCONCLUSIVE", "IMPROVED", "PASS(certified)"], "PASS")
    return Decision(verdict, effect, mean - half, mean + half, n, deviation, smallest, needed, p1, p2, pairs)


def history_p(earlier, now):
    """One-sided p that a campaign's log value `now` is worse than k earlier ones; None for fewer than 10."""
    from scipy import stats

    earlier = np.asarray(earlier, float)
    k = len(earlier)
    if k < 10:
        return None
    deviation = earlier.std(ddof=1)
    if deviation == 0:
        return 0.0 if now > earlier.mean() else 1.0
    return float(stats.t.sf((now - earlier.mean()) / (deviation * math.sqrt(1 + 1 / k)), k - 1))


def _best_split(values):
    """(index, statistic) of the split that parts the means of each row of values [r, n] the most."""
    n = values.shape[1]
    at = np.arange(2, n - 1)
    sums = np.cumsum(values, axis=1)
    left = sums[:, at - 1] / at
    right = (sums[:, -1:] - sums[:, at - 1]) / (n - at)
    score = (left - right) ** 2 * at * (n - at) / n
    return at[score.argmax(axis=1)], score.max(axis=1)


def change_points(values, level=0.001, permutations=1999, seed=1):
    """Indices at which a series changes its level, sorted; each split is held to shuffles of its segment."""
    values = np.asarray(values, float)
    random = np.random.default_rng(seed)
    found, segments = [], [(0, len(values))]
    while segments:
        low, high = segments.pop()
        if high - low < 6:
            continue
        part = values[low:high]
        where, score = _best_split(part[None])
        shuffled = random.permuted(np.tile(part, (permutations, 1)), axis=1)
        exceed = (_best_split(shuffled)[1] >= score[0]).sum()
        if (exceed + 1) / (permutations + 1) <= level and score[0] > 0:
            found.append(low + int(where[0]))
            segments += [(low, found[-1]), (found[-1], high)]
    return sorted(found)
