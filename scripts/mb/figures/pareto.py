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
    panels = [_points(kind, of) for kind, of in kinds.items()]
    heights = [max(4.8, 0.9 + series.legend_height(panel["names"])) for panel in panels]
    figure = look.new_figure(12.5, 1.4 + sum(heights), "Time against memory: what no other case beats in both")
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for ax, panel in zip(grid, panels):
        _panel(ax, **panel)
    look.annotate(figure, [
        f"Time: median of {look.samples_text(ok, 'step_s')} steps, over their tokens where these differ. Memory: largest sum at "
        "one instant,", "counted, or of the plan in virtual time.", *notes, *left_out], ok)
    return figure


def _points(kind, rows):
    """What a panel draws: points, indices of the front's, names of those, labels of the axes."""
    same = len({round(rows_of.value(row, "step_s") * rows_of.value(row, "tokens_per_s")) for row in rows}) == 1
    times = [rows_of.value(row, "step_s") if same else 1e6 / rows_of.value(row, "tokens_per_s") for row in rows]
    factor, unit = look.time_unit(max(times))
    peaks = [rows_of.value(row, "peak_bytes") for row in rows]
    scale, memory_unit = (2**30, "GiB") if max(peaks) >= 10 * 2**30 else (2**20, "MiB")
    points = [(peak / scale, factor * time) for peak, time in zip(peaks, times)]
    best = sorted(front(points), key=lambda i: (points[i], i))
    names = look.labels(rows)
    return {"title": f"{kind}: {len(best)} of {len(points)} on the front", "points": points, "best": best,
            "names": [f"{number}: {' '.join(names[i].split())}" for number, i in enumerate(best[:MOST_NAMES], 1)],
            "x_label": f"peak memory of the fullest rank ({memory_unit})",
            "y_label": f"{'time of a step' if same else 'time for a million tokens'} ({unit})"}


def _panel(ax, title, points, best, names, x_label, y_label):
    rest = [point for i, point in enumerate(points) if i not in set(best)]
    if rest:
        ax.plot(*zip(*rest), "o", color=look.GREY, markersize=5, fillstyle="none", label="beaten by another in both")
    ax.step(*zip(*(points[i] for i in best)), where="post", color=look.BLUE, linewidth=1.2)
    ax.plot(*zip(*(points[i] for i in best)), "D", color=look.BLUE, markersize=7, label="front")
    for number, (i, name) in enumerate(zip(best, names), 1):
        side = {"xytext": (6, 6)} if number % 2 else {"xytext": (-6, -6), "ha": "right", "va": "top"}
        ax.annotate(str(number), points[i], **side, textcoords="offset points", fontsize=9, fontweight="bold")
        ax.plot([], [], " ", label=series.legend_name(name))
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    ax.set_xlim(0, 1.08 * max(x for x, _ in points))
    ax.set_ylim(0, 1.08 * max(y for _, y in points))
    ax.set_title(title, loc="left")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
    series.grid_lines(ax)
