"""Timed metrics of paired launches: effects as an array, the two-stage test on it, and what it says as findings."""

import math

import numpy as np

from mb.gate import evidence, registry, statistics
from mb.gate.evidence import RAN


def primaries(pairs):
    """(case, key, metric) of all timed metrics that both launches of some pair measured, sorted."""
    found = set()
    for pair in pairs:
        base, candidate = ({(pair.case, evidence.key_of(row), name) for row in side if row["status"] in RAN
                            for name in _timed_of(row)} for side in pair.sides)
        found |= base & candidate
    return sorted(found)


def _timed_of(row):
    """Names of the timed metrics that a row has a value of."""
    virtual = bool(row.get("virtual_time"))
    return [name for name, metric in row["metrics"].items() if evidence.finite(metric["value"])
            and (entry := registry.find(name, virtual)) and entry["class"] == "timed"]


def _value(rows, key, name):
    """A launch's value of a metric; NaN if it failed or has none."""
    for row in rows:
        if row["status"] in RAN and evidence.key_of(row) == key and name in row["metrics"]:
            value = row["metrics"][name]["value"]
            return value if evidence.finite(value) else math.nan
    return math.nan


def _effect(entry, base, candidate):
    """How much worse the candidate of a pair is; NaN if a launch has no value, or no positive one for a ratio."""
    sign = registry.DIRECTIONS[entry["direction"]]
    if entry["scale"] == "difference":
        return sign * (candidate - base)
    return sign * math.log(candidate / base) if base > 0 and candidate > 0 else math.nan


def effects(metrics, pairs, width):
    """Array [metric, width] of effects in the pairs of each metric's case; NaN where there are fewer."""
    found = np.full((len(metrics), width), math.nan)
    for i, (case, key, name) in enumerate(metrics):
        own = [pair for pair in pairs if pair.case == case]
        for j, pair in enumerate(own):
            found[i, j] = _effect(_entry(name), *(_value(side, key, name) for side in pair.sides))
    return found


def _entry(name):
    return registry.find(name, virtual=False)


def decide(first, draw, cases, test="t"):
    """{(key, metric): fields of a finding} of the pairs of the first stage of so many cases.

    `draw(cases, n)` launches n fresh pairs of each of some cases and returns them. A case without any timed metric,
    because all its launches failed, counts as one: what is tested must not depend on what came of it.
    """
    metrics = primaries(first)
    if not metrics:
        return {}
    tests = len(metrics) + cases - len({case for case, _, _ in metrics})
    counts = [sum(pair.case == case for pair in first) for case in range(cases)]

    def confirm(which, n):
        chosen = [metrics[i] for i in which]
        return effects(chosen, draw(sorted({case for case, _, _ in chosen}), n), n)

    decision = statistics.two_stage(effects(metrics, first, max(counts)), confirm, tests, test)
    level = statistics.second_level(tests)
    return {(key, name): _fields(i, _entry(name), decision, level,
                                 _not_positive(key, name, [pair for pair in first if pair.case == case]))
            for i, (case, key, name) in enumerate(metrics)}


def _not_positive(key, name, pairs):
    return any(_value(side, key, name) <= 0 for pair in pairs for side in pair.sides)


def relative(entry, effect):
    """An effect as findings tell it: a share of the base's value, or a difference."""
    if entry["scale"] == "difference":
        return float(effect)
    effect = min(float(effect), 50.0)
    return math.expm1(effect) if entry["direction"] == "lower" else -math.expm1(-effect)


def _fields(i, entry, decision, level, not_positive):
    """What a finding says of metric i of a decision."""
    n, deviation = int(decision.n[i]), float(decision.deviation[i])
    fields = {"verdict": str(decision.verdict[i]), "n": n, "pairs": int(decision.pairs[i]), "reason": None}
    if not_positive and entry["scale"] == "ratio":
        return {**fields, "verdict": "ERRORED", "reason": "a value is not positive"}
    if n < 2:
        return {**fields, "reason": _too_few(fields)}
    fields |= {"worse": relative(entry, decision.effect[i]), "low": relative(entry, decision.low[i]),
               "high": relative(entry, decision.high[i]),
               "detectable": math.expm1(min(float(decision.detectable[i]), 50)),
               "noise": deviation / math.sqrt(2)}  # of one launch: a pair's effect has the noise of two
    if fields["verdict"] == "INCONCLUSIVE" and n < statistics.MIN_PAIRS:
        fields["reason"] = _too_few(fields)
    elif fields["verdict"] == "INCONCLUSIVE":
        fields["pairs_to_resolve"] = statistics.pairs_to_find(deviation, level)
        fields["reason"] = (
            f"launches differ by {100 * fields['noise']:.2g} %: less than {100 * fields['detectable']:.2g} % may hide; "
            f"some {fields['pairs_to_resolve']} pairs would find {100 * math.expm1(statistics.TARGET):.2g} %, "
            "as would a quieter machine or more steps")
    return fields


def _too_few(fields):
    return f"only {fields['n']} of {fields['pairs']} pairs ran whole; {statistics.MIN_PAIRS} are the least"
