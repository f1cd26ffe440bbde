"""How long cases will take: what is predicted, corrected by how predictions fared so far."""

import math
import statistics

LEAST_LIMIT_S, LIMIT_TIMES = 60, 5


class Estimate:
    def __init__(self):
        self._runs = {}  # resource class -> [(predicted_s, observed_s)]

    def observe(self, kind, predicted_s, observed_s):
        if predicted_s > 0 and observed_s > 0:
            self._runs.setdefault(kind, []).append((predicted_s, observed_s))

    def _factors(self, kind):
        """(low, middle, high) by which predictions of a class are off: quartiles, and between them the sum's.

        Of all classes while it has few runs; half to double before there is any. The middle is that of the sums, as
        it is a sum of seconds that is asked for: a median leaves out the long ones.
        """
        runs = self._runs.get(kind, [])
        if len(runs) < 3:
            runs = [run for more in self._runs.values() for run in more]
        if not runs:
            return 0.5, 1.0, 2.0
        middle = sum(observed for _, observed in runs) / sum(predicted for predicted, _ in runs)
        if len(runs) < 3:
            return middle / 2, middle, middle * 2
        low, _, high = statistics.quantiles([observed / predicted for predicted, observed in runs], n=4,
                                            method="inclusive")
        return min(low, middle), middle, max(high, middle)

    def left(self, pending, slots=1):
        """(low, middle, high) seconds of [(class, predicted_s)] on that many slots."""
        sums = [0.0, 0.0, 0.0]
        for kind, predicted_s in pending:
            for k, ratio in enumerate(self._factors(kind)):
                sums[k] += predicted_s * ratio
        return tuple(total / max(1, min(slots, len(pending))) for total in sums)

    def limit_s(self, kind, predicted_s):
        return max(LEAST_LIMIT_S, LIMIT_TIMES * predicted_s * max(1.0, self._factors(kind)[2]))


def duration_text(seconds):
    """"45 s", "12 min", "3.4 h"."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 or seconds == 0 else f"{seconds:.1g} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
