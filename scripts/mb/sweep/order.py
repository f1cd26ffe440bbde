"""In which order the points of a sweep run."""

import random

ORDERS = ("spread", "given", "cheap", "expensive", "random")


def ordered(points, order):
    """spread: every value of every axis early, by cheap cases; then cheap first. Each resource class by itself."""
    if order == "given":
        return list(points)
    if order == "random":
        return random.Random(1).sample(list(points), len(points))
    kinds = list(dict.fromkeys(point.mode for point in points))
    cheap = sorted(points, key=lambda point: (kinds.index(point.mode), point.predicted_s))
    if order == "expensive":
        return sorted(points, key=lambda point: -point.predicted_s)
    if order == "cheap":
        return cheap
    seen, first, later = set(), [], []
    for point in cheap:
        values = {(point.mode, *item) for item in point.config.items()}
        (later if values <= seen else first).append(point)
        seen |= values
    return first + later
