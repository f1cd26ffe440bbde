"""Time against memory: the cases that no other case beats in both."""

from mb import rows as rows_of
from mb.figures import look, series

# Points of the front that the legend can name.
MOST_NAMES = 20


def front(points):
    """Indices of points (x, y), smaller is better, that no other betters in one without losing in the other."""
    return [i for i, (x, y) in enumerate(points)
            if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in points)]


def pareto(rows):
    """A point a case: peak memory of its fullest rank and time; the front is joined and numbered."""
    ok, notes = look.measured(rows)
    ok = [row for row in ok if rows_of.value(row, "step_s") and rows_of.value(row, "peak_bytes")
          and rows_of.value(row, "tokens_per_s")]
    if not ok:
        raise look.NoData("no row has a step time and a peak of memory; make some with meshbench run ... --out FILE")
    kinds, left_out = series.first(series.kinds(ok), "kinds of rows", series.MOST_KINDS)
    figure = look.new_figure(12.5, 1.4 + 4.8 * len(kinds), "Time against memory: what no other case beats in both")
    for ax, (name, of) in zip(figure.subplots(len(kinds), 1, squeeze=False)[:, 0], kinds.items()):
        _panel(ax, name, of)
    look.annotate(figure, [
        f"Time: median of {look.samples_text(ok, 'step_s')} steps, over their tokens where these differ. Memory: largest sum at "
        "one instant,", "counted, or of the plan in virtual time.", *notes, *left_out], ok)
    return figure


def _panel(ax, name, rows):
    same = len({round(rows_of.value(row, "step_s") * rows_of.value(row, "tokens_per_s")) for row in rows}) == 1
    times = [rows_of.value(row, "step_s") if same else 1e6 / rows_of.value(row, "tokens_per_s") for row in rows]
    factor, unit = look.time_unit(max(times))
    peaks = [rows_of.value(row, "peak_bytes") for row in rows]
    scale, memory_unit = (2**30, "GiB") if max(peaks) >= 10 * 2**30 else (2**20, "MiB")
    points = [(peak / scale, factor * time) for peak, time in zip(peaks, times)]
    best = sorted(front(points), key=lambda i: (points[i], i))
    rest = [point for i, point in enumerate(points) if i not in set(best)]
    if rest:
        ax.plot(*zip(*rest), "o", color=look.GREY, markersize=5, fillstyle="none", label="beaten by another in both")
    ax.step(*zip(*(points[i] for i in best)), where="post", color=look.BLUE, linewidth=1.2)
    ax.plot(*zip(*(points[i] for i in best)), "D", color=look.BLUE, markersize=7, label="front")
    names = look.labels(rows)
    for number, i in enumerate(best[:MOST_NAMES], 1):
        ax.annotate(str(number), points[i], xytext=(6, 6), textcoords="offset points", fontsize=9, fontweight="bold")
        ax.plot([], [], " ", label=f"{number}: {' '.join(names[i].split())}")
    ax.set_xlabel(f"peak memory of the fullest rank ({memory_unit})")
    ax.set_ylabel(f"{'time of a step' if same else 'time for a million tokens'} ({unit})")
    ax.set_xlim(0, 1.08 * max(x for x, _ in points))
    ax.set_ylim(0, 1.08 * max(y for _, y in points))
    ax.set_title(f"{name}: {len(best)} of {len(points)} on the front", loc="left")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
    series.grid_lines(ax)
