"""The pipeline bubble over the number of micro-batches, next to its closed form."""

from collections import defaultdict

from mb import rows as rows_of
from mb.figures import look

# Schedule -> colour, marker; in this order from left to right where several have as many micro-batches.
LOOKS = {"dualpipe-v": (look.YELLOW, "X"), "interleaved-zb": (look.SKY, "P"), "gpipe": (look.VERMILION, "s"),
         "zb-h1": (look.GREEN, "^"), "1f1b": (look.BLUE, "o"), "interleaved": (look.PURPLE, "D"), "zb-v": (look.ORANGE, "v")}
OTHER = (look.BLACK, "*")
# Kind of a number -> the metric that has it, by whether the row is of virtual time; how its markers are filled.
KINDS = {"measured": ("bubble_fraction", False, {"markersize": 6, "zorder": 4}),
         "a core for each rank": ("bubble_fraction_own_cores", False, {"markersize": 7, "fillstyle": "left", "zorder": 3}),
         "virtual time": ("bubble_fraction", True, {"markersize": 9, "fillstyle": "none", "zorder": 2})}
CLOSED_FORM = {"linestyle": "--", "marker": "_", "markersize": 13, "linewidth": 1.0, "zorder": 1}
# Octaves between schedules that have as many micro-batches, and between measured points and their replay.
APART, REPLAY_APART = 0.075, 0.02


def bubble(rows):
    """A panel for each number of stages and model: measured, simulated and closed-form share of idle time."""
    ok, notes = look.measured(rows)
    ok = [row for row in ok if rows_of.stages(row) > 1 and rows_of.metric(row, "bubble_fraction")]
    if not ok:
        raise look.NoData("no row with a pipeline; run one with mesh=pp2 or more")
    panels = defaultdict(list)
    for row in ok:
        panels[rows_of.stages(row), look.short(row["params"].get("model", "model"), 24)].append(row)
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure = look.new_figure(4.4 * across + 3.4, 4.6 * down + 0.6, "Pipeline bubble over the number of micro-batches")
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    models = {model for _, model in panels}
    kinds = {}
    for ax, ((stages, model), group) in zip(grid.flat, sorted(panels.items())):
        _panel(ax, group, kinds)
        ax.set_title(f"p = {stages} stages" + (f", {model}" if len(models) > 1 else ""))
    for ax in grid.flat[len(panels):]:
        ax.remove()
    for ax in grid[:, 0]:
        ax.set_ylabel("bubble, % of the pipeline window")
    _legend(figure, _in_order({_schedule(row) for row in ok}), kinds)
    look.annotate(figure, [
        f"Points: median over steps ({look.samples_text(ok, 'bubble_fraction')}), mean over stages; "
        "whiskers: smallest and largest step.",
        "Window: first forward start to last backward end. Measured includes waiting for a core, where ranks share them;",
        "a core for each rank: the same steps replayed without that. Closed form: equal stages and free communication,",
        "while the last stage has the head and the loss as well. Schedules stand beside each other to be told apart.",
        *notes], ok)
    return figure


def closed_forms(rows):
    """{schedule: [(m, share)]} of the schedules that have one; times of virtual time go before measured ones."""
    found = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row["virtual_time"]):
        if (share := row["theory"]["bubble_fraction"]) is not None:
            found[_schedule(row)][rows_of.micro_batches(row)] = share
    return {schedule: sorted(shares.items()) for schedule, shares in found.items()}


def _schedule(row):
    return look.short(row["params"].get("schedule", "?"), 24)


def _in_order(schedules):
    order = list(LOOKS)
    return sorted(schedules, key=lambda name: (order.index(name) if name in LOOKS else len(order), name))


def _panel(ax, group, kinds):
    """Draws the rows of a panel; notes in `kinds` which of them it had."""
    schedules = _in_order({_schedule(row) for row in group})
    shifts = {name: 2 ** (APART * (at - (len(schedules) - 1) / 2)) for at, name in enumerate(schedules)}
    for schedule, points in closed_forms(group).items():
        kinds["closed form"] = CLOSED_FORM
        ax.plot([m * shifts[schedule] for m, _ in points], [100 * share for _, share in points],
                color=LOOKS.get(schedule, OTHER)[0], **CLOSED_FORM)
    for kind, (metric, virtual, filled) in KINDS.items():
        members = defaultdict(list)
        for row in group:
            if row["virtual_time"] == virtual and (share := rows_of.metric(row, metric)):
                members[_schedule(row)].append((rows_of.micro_batches(row), share))
        replay = 2**REPLAY_APART if metric == "bubble_fraction_own_cores" else 1
        for schedule in _in_order(members):
            kinds[kind] = filled
            _points(ax, LOOKS.get(schedule, OTHER), shifts[schedule] * replay, sorted(members[schedule], key=lambda m: m[0]),
                    filled)
    ticks = sorted({rows_of.micro_batches(row) for row in group})
    shown = ticks[::-(-len(ticks) // 10)]
    ax.set_xscale("log", base=2)
    ax.set_xticks(shown, [str(m) for m in shown])
    ax.set_xticks([], minor=True)
    ax.set_xlim(ticks[0] / 1.4, ticks[-1] * 1.4)
    ax.set_ylim(0, 100)
    ax.set_xlabel("micro-batches m")
    ax.grid(axis="y", color=look.PALE, linewidth=0.6)


def _points(ax, how, shift, members, filled):
    colour, marker = how
    shares = [share for _, share in members]
    y = [100 * share["value"] for share in shares]
    spread = [[100 * (s["value"] - s["min"]) for s in shares], [100 * (s["max"] - s["value"]) for s in shares]]
    ax.errorbar([m * shift for m, _ in members], y, yerr=spread, linestyle="none", marker=marker,
                color=colour, markerfacecoloralt="white", capsize=3, linewidth=1.2, **filled)


def _legend(figure, schedules, kinds):
    """Schedules by colour and marker; below them kinds of numbers by how a marker is filled."""
    from matplotlib.lines import Line2D

    def sample(colour, **how):
        return Line2D([], [], **{"color": colour, "linestyle": "none", "marker": "o", "markerfacecoloralt": "white", **how})

    nothing = Line2D([], [], linestyle="none")
    named = [(name, sample(LOOKS.get(name, OTHER)[0], marker=LOOKS.get(name, OTHER)[1])) for name in schedules]
    filled = [(name, sample(look.BLACK, **{**kinds[name], "markersize": 7})) for name in (*KINDS, "closed form") if name in kinds]
    names, handles = zip(("Schedule", nothing), *named, ("", nothing), ("Number", nothing), *filled)
    legend = figure.legend(handles, names, loc="outside right upper", frameon=False, handlelength=2.6)
    for text in legend.get_texts():
        if text.get_text() in ("Schedule", "Number"):
            text.set_fontweight("bold")
