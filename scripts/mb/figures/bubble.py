"""The pipeline bubble over the number of micro-batches, next to its closed form."""

from collections import defaultdict

from mb import rows as rows_of
from mb.figures import look

LOOKS = {"1f1b": (look.BLUE, "o", 2**0.07), "gpipe": (look.VERMILION, "s", 2**-0.07),
         "interleaved": (look.PURPLE, "D", 2**0.14), "zb-h1": (look.GREEN, "^", 1.0),
         "interleaved-zb": (look.SKY, "P", 2**-0.14), "zb-v": (look.ORANGE, "v", 2**0.21),
         "dualpipe-v": (look.YELLOW, "X", 2**-0.21)}
OTHER = (look.BLACK, "x", 1.0)
# By virtual_time: the metrics that are drawn, and what to call them.
KINDS = {True: [("bubble_fraction", "virtual time")],
         False: [("bubble_fraction", "measured"), ("bubble_fraction_own_cores", "a core for each rank")]}
MARKERS = {"measured": {"markersize": 6, "zorder": 3}, "a core for each rank":
           {"markersize": 7, "fillstyle": "left", "zorder": 4},
           "virtual time": {"markersize": 9, "fillstyle": "none", "zorder": 2}}


def bubble(rows):
    """A panel for each number of stages: measured, simulated and closed-form share of idle time."""
    ok, notes = look.measured(rows)
    ok = [row for row in ok if rows_of.stages(row) > 1 and rows_of.metric(row, "bubble_fraction")]
    if not ok:
        raise look.NoData("no row with a pipeline; run one with mesh=pp2 or more")
    panels = defaultdict(list)
    for row in ok:
        panels[rows_of.stages(row)].append(row)
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure = look.new_figure(4.4 * across + 4.6, 4.6 * down + 0.6,
                             "Pipeline bubble over the number of micro-batches")
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    handles = {}
    for ax, (stages, group) in zip(grid.flat, sorted(panels.items())):
        _panel(ax, stages, group, handles)
    for ax in grid.flat[len(panels):]:
        ax.remove()
    for ax in grid[:, 0]:
        ax.set_ylabel("bubble, % of the pipeline window")
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False)
    look.annotate(figure, [
        f"Points: median over steps ({look.samples_text(ok, 'bubble_fraction')}), mean over stages; "
        "whiskers: smallest and largest step.",
        "Window: first forward start to last backward end. Measured includes waiting for a core, where ranks share them;",
        "a core for each rank: the same steps replayed without that. Closed form: equal stages and free communication,",
        "while the last stage has the head and the loss as well.",
        *notes], ok)
    return figure


def closed_forms(rows):
    """[(schedules, [(m, share)])], one for those that are alike; times of virtual time go before measured ones."""
    by_schedule = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row["virtual_time"]):
        if (share := row["theory"]["bubble_fraction"]) is not None:
            by_schedule[_schedule(row)][rows_of.micro_batches(row)] = share
    alike = defaultdict(list)
    for schedule, shares in sorted(by_schedule.items()):
        alike[tuple(sorted((m, round(share, 9)) for m, share in shares.items()))].append(schedule)
    return [(schedules, list(points)) for points, schedules in alike.items()]


def _schedule(row):
    return look.short(row["params"].get("schedule", "?"))


def _panel(ax, stages, group, handles):
    for schedules, points in closed_forms(group):
        colour = LOOKS.get(schedules[0], OTHER)[0] if len(schedules) == 1 else look.BLACK
        line, = ax.plot([m for m, _ in points], [100 * share for _, share in points], "--",
                        color=colour, marker="_", markersize=14, linewidth=1.2, zorder=1)
        handles[f"closed form, {' and '.join(schedules)}"] = line
    series = defaultdict(list)
    for row in group:
        for metric, kind in KINDS[row["virtual_time"]]:
            if share := rows_of.metric(row, metric):
                series[_schedule(row), kind].append((rows_of.micro_batches(row), share))
    for (schedule, kind), members in sorted(series.items(), key=lambda s: (s[0][0], list(MARKERS).index(s[0][1]))):
        handles[f"{schedule}, {kind}"] = _points(ax, schedule, kind, sorted(members, key=lambda m: m[0]))
    ticks = sorted({rows_of.micro_batches(row) for row in group})
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [str(m) for m in ticks])
    ax.set_xticks([], minor=True)
    ax.set_xlim(ticks[0] / 1.4, ticks[-1] * 1.4)
    ax.set_ylim(0, 100)
    ax.set_title(f"p = {stages} stages")
    ax.set_xlabel("micro-batches m")
    ax.grid(axis="y", color=look.PALE, linewidth=0.6)


def _points(ax, schedule, kind, members):
    colour, marker, dodge = LOOKS.get(schedule, OTHER)
    shares = [share for _, share in members]
    y = [100 * share["value"] for share in shares]
    spread = [[100 * (s["value"] - s["min"]) for s in shares], [100 * (s["max"] - s["value"]) for s in shares]]
    return ax.errorbar([m * dodge for m, _ in members], y, yerr=spread, linestyle="none", marker=marker,
                       color=colour, markerfacecoloralt="white", capsize=3, linewidth=1.2, **MARKERS[kind])
