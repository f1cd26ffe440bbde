"""Times of ranks: least, median and most, and which rank has them."""

from mb.figures import look, series

# Metric of a rank -> title.
METRICS = {"compute_s": "computes", "exposed_comm_s": "exposed communication", "idle_s": "idle"}


def straggler(rows):
    """A panel for each metric; a line a row from the rank with the least to the one with the most."""
    ok, notes = look.measured(rows)
    ok = [row for row in ok if any(row["ranks"].get(name) for name in METRICS)]
    if not ok:
        raise look.NoData("no row has times of its ranks; make one with meshbench run ... --out FILE")
    ok, left_out = look.first_bars(ok)
    names = [name for name in METRICS if any(row["ranks"].get(name) for row in ok)]
    most = max(row["ranks"][name]["max"] for row in ok for name in names if name in row["ranks"])
    factor, unit = look.time_unit(most or 1e-9)
    labels = look.labels(ok)
    figure = look.new_figure(14, 2.1 + sum(0.16 + 0.15 * (1 + label.count("\n")) for label in labels), "Times of ranks in a step")
    panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for ax, name in zip(panels, names):
        for at, row in enumerate(ok):
            if found := row["ranks"].get(name):
                _line(ax, at, found, factor)
        ax.set_title(METRICS[name], loc="left")
        ax.set_xlabel(f"time in a step ({unit})")
        ax.set_xlim(-0.05 * ax.get_xlim()[1], 1.1 * max(ax.get_xlim()[1], 1e-9))
        series.grid_lines(ax, "x")
    panels[0].set_yticks(range(len(ok)), labels, fontsize=9)
    panels[0].set_ylim(len(ok) - 0.4, -0.6)
    panels[0].plot([], [], "|", color=look.BLACK, markersize=12, label="least and most")
    panels[0].plot([], [], "o", color=look.BLUE, label="median rank")
    figure.legend(loc="outside right upper", frameon=False)
    look.annotate(figure, [
        f"Mean over {look.samples_text(ok, 'step_s')} steps, of each rank; numbers: the ranks with the least and the most.",
        "Who computes longest holds the others up: it is the one that waits least. Stages of a pipeline compute differently "
        "by design.", *notes, *left_out], ok)
    return figure


def _line(ax, at, found, factor):
    low, middle, high = (factor * found[key] for key in ("min", "median", "max"))
    ax.plot([low, high], [at, at], color=look.GREY, linewidth=2, zorder=1)
    ax.plot([low, high], [at, at], "|", color=look.BLACK, markersize=14, zorder=2)
    ax.plot([middle], [at], "o", color=look.BLUE, markersize=6, zorder=3)
    ends = [(high, "max_rank", 5, "left"), (low, "min_rank", -5, "right")]
    for x, key, shift, align in ends if high > low else ends[:1]:
        if key in found:
            ax.annotate(str(found[key]), (x, at), xytext=(shift, 7), textcoords="offset points", ha=align, fontsize=8)
