"""Metrics that follow from others: not tested, but recomputed, so that none can say something else than its time."""

import math
import statistics

from mb.gate import evidence

TOLERANCE = 1e-6  # relative


def _series(name, values, inputs):
    """The samples of a metric, or its one value; None if there is none."""
    if name in inputs:
        return [inputs[name]]
    value = values.get(name)
    if value is None or not evidence.finite(value.value):
        return None
    return list(value.samples) if len(value.samples) > 1 else [value.value]


def _recomputed(entry, row, values):
    """What the metric should be for each of its samples, or for its one value; None if that cannot be told."""
    left, sign, right = entry["derived_from"]
    inputs = evidence.inputs_of(row)
    sides = [_series(name, values, inputs) for name in (left, right)]
    if None in sides or (sign == "/" and not all(sides[1])):
        return None
    n = max(map(len, sides))
    if any(len(side) not in (1, n) for side in sides):
        return None
    a, b = (side * n if len(side) == 1 else side for side in sides)
    return [x / y if sign == "/" else x * y for x, y in zip(a, b)]


def inconsistency(entry, name, sides):
    """Where a row of either side has something else than what follows, as fields of a finding; None if nowhere."""
    for side, rows in zip(("base", "candidate"), sides):
        for row in rows:
            values = evidence.values_of(row)
            told, expected = _series(name, values, {}), _recomputed(entry, row, values)
            if told is None or expected is None:
                continue
            if len(told) == 1:
                expected = [statistics.median(expected)]
            if len(told) != len(expected):
                return {"reason": f"{side}: has {len(told)} samples where {_formula(entry)} has {len(expected)}"}
            for x, y in zip(told, expected):
                if not math.isclose(x, y, rel_tol=TOLERANCE):
                    return {"reason": f"{side}: is {x:.9g}, but {_formula(entry)} is {y:.9g}", side: x}
    return None


def _formula(entry):
    return " ".join(entry["derived_from"])
