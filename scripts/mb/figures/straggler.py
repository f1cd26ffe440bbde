"""Times of ranks: least, median and most, and which rank has them."""

from mb.figures import look, series

# Metric of a rank -> title.
METRICS = {"compute_s": "computes", "exposed_comm_s": "exposed communication", "idle_s": "idle"}


def straggler(rows):
    """A panel for each metric and kind of rows; a line a launch from the rank with the least to the one with the most."""
    ok, notes = look.launches(rows)
    ok = [row for row in ok if any(row["ranks"].get(name) for name in METRICS)]
    if not ok:
        raise look.NoData("no row has times of its ranks; make one with meshbench run ... --out FILE")
    kinds, labels, inches, left_out = series.bars(ok, 0.8, 0.34)
    drawn = [row for of in kinds.values() for row in of]
    names = [name for name in METRICS if any(row["ranks"].get(name) for row in drawn)]
    figure = look.new_figure(14, 1.3 + sum(inches.values()), "Times of ranks in a step")
    grid = figure.subplots(len(kinds), len(names), squeeze=False, sharey="row", height_ratios=list(inches.values()))
    for panels, (kind, of) in zip(grid, kinds.items()):
        _kind(panels, names, of, labels[kind])
        title = panels[0].get_title("left")
        panels[0].set_title(f"{kind}\n{title}" if len(kinds) > 1 else title, loc="left")
    grid[0, 0].plot([], [], "|", color=look.BLACK, markersize=12, label="least and most")
    grid[0, 0].plot([], [], "o", color=look.BLUE, label="median rank")
    figure.legend(loc="outside right upper", frameon=False)
    look.annotate(figure, [
        f"Mean over {look.samples_text(drawn, 'step_s')} steps, of each rank; numbers: the ranks with the least and the most.",
        "Who computes longest holds the others up: it is the one that waits least. Stages of a pipeline compute differently "
        "by design.", *notes, *left_out], drawn)
    return figure


def _kind(panels, names, rows, labels):
    most = max(row["ranks"][name]["max"] for row in rows for name in names if name in row["ranks"])
    factor, unit = look.time_unit(most or 1e-9)
    for ax, name in zip(panels, names):
        for at, row in enumerate(rows):
            if found := row["ranks"].get(name):
                _line(ax, at, found, factor)
        ax.set_title(METRICS[name], loc="left")
        ax.set_xlabel(f"time in a step ({unit})")
        ax.set_xlim(-0.05 * ax.get_xlim()[1], 1.1 * max(ax.get_xlim()[1], 1e-9))
        series.grid_lines(ax, "x")
    panels[0].set_yticks(range(len(rows)), labels, fontsize=9)
    panels[0].set_ylim(len(rows) - 0.4, -0.6)


def _line(ax, at, found, factor):
    low, middle, high = (factor * found[key] for key in ("min", "median", "max"))
    ax.plot([low, high], [at, at], color=look.GREY, linewidth=2, zorder=1)
    ax.plot([low, high], [at, at], "|", color=look.BLACK, markersize=14, zorder=2)
    ax.plot([middle], [at], "o", color=look.BLUE, markersize=6, zorder=3)
    ends = [(high, "max_rank", 5, "left"), (low, "min_rank", -5, "right")]
    for x, key, shift, align in ends if high > low else ends[:1]:
        if key in found:
            ax.annotate(str(found[key]), (x, at), xytext=(shift, 7), textcoords="offset points", ha=align, fontsize=8)
