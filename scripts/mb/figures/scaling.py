"""Throughput and MFU over devices: strong scaling (the batch stays) and weak scaling (it grows with the devices)."""

import math
from collections import defaultdict

from mb import rows as rows_of
from mb.figures import breakdown, look, rounds, series

OOM = ("oom", "oom_predicted")
IGNORED = ("mesh", "micro_batch", "global_batch", "order", "nodes", "ranks_per_node")


def world(row):
    return math.prod(rows_of.axes(row).values())


def curves(rows):
    """{"strong" or "weak": {name: {world: rows}}}, each curve of one batch, or batch a device, over several worlds."""
    found = {"strong": {}, "weak": {}}
    for name, group in series.split(rows, IGNORED).items():
        for kind, share in (("strong", lambda row: int(row["params"]["global_batch"])),
                            ("weak", lambda row: int(row["params"]["global_batch"]) / world(row))):
            batches = defaultdict(lambda: defaultdict(list))
            for row in group:
                batches[share(row)][world(row)].append(row)
            for batch, worlds in sorted(batches.items()):
                if len(worlds) > 1:
                    text = f"batch {batch:g}" + (" a device" if kind == "weak" else "")
                    found[kind][", ".join(filter(None, (name, text)))] = dict(sorted(worlds.items()))
    return found


def scaling(rows):
    """Upper panels: tokens a second with the ideal line; then MFU, and which worlds ran out of memory; of predicted
    rows (meshbench scaling) also what the step is made of."""
    look.measured(rows)
    rows = [row for row in rows if row["suite"] in ("step", "scaling") and "global_batch" in row["params"]
            and (row["status"] in OOM or row["status"] == "ok" and rows_of.metric(row, "mfu"))]
    rows = rounds.as_one(rows)
    found = {kind: lines for kind, of in series.kinds(rows).items() if (lines := {k: v for k, v in curves(of).items() if v})}
    if not found:
        raise look.NoData("no two rows differ in the number of ranks alone, at the same global_batch= or the same a rank; "
                          "run mesh=dp1, dp2, dp4 ... with one global_batch=")
    found, left_out = series.first(found, "kinds of rows", series.MOST_KINDS)
    explained = {kind: any("explained" in row for line in lines.values() for worlds in line.values() for group in worlds.values()
                           for row in group) for kind, lines in found.items()}
    across = max(map(len, found.values()))
    heights = [inches for kind, lines in found.items() for inches in _heights(lines, explained[kind])]
    figure = look.new_figure(5.4 * across + 4.2, 1.3 + sum(heights), "Scaling over devices")
    grid = figure.subplots(len(heights), across, squeeze=False, height_ratios=heights)
    notes, down = [*rounds.note(rows), *left_out], 0
    for kind, lines in found.items():
        height = 2 + explained[kind]
        notes += _kind(grid[down:down + height], kind if len(found) > 1 else "", lines)
        down += height
    conventions = sorted({f"{row['convention']['name']} convention" for row in rows if "convention" in row})
    peaks = sorted({f"{row['peak']['flops_per_s'] / 1e12:.4g} TFLOP/s {row['peak']['dtype']}" for row in rows if "peak" in row})
    look.annotate(figure, [
        f"Points: the best row of a number of devices, median of {look.samples_text(rows, 'step_s')} steps, whiskers slowest "
        "and fastest; of predicted ones, what 80 % should lie in. Grey: ideal, from the smallest.",
        *(["At the bottom: shares of the step along its critical path, of the first line."] if any(explained.values()) else []),
        f"MFU ({', '.join(conventions)}, nothing recomputed counts) of {', '.join(peaks[:3])} a device. x at the bottom: "
        "every row of that number ran, or would run, out of memory.", *notes], rows)
    return figure


def _heights(lines, explained):
    """Inches of the panels of a kind, the first of which has the legend beside it."""
    names = [line for found in lines.values() for line in list(found)[:series.MOST]]
    return [max(3.6, 0.5 + series.legend_height(names) + (1.6 if explained else 0)), *[3.4] * (1 + explained)]


def _kind(grid, kind, found):
    """The panels of one kind of rows; returns lines on what was left out."""
    handles, notes = {}, []
    for (upper, lower, *shares), (name, lines) in zip(grid.T, found.items()):
        lines, rest = series.first(lines, " ".join(filter(None, ["lines of", name, "scaling", kind and f"of {kind}"])))
        notes += rest
        for at, (line, worlds) in enumerate(lines.items()):
            handles[f"{name}: {line}"] = _line(upper, lower, at, worlds, handles)
        _axes([upper, lower, *shares], name, {w for worlds in lines.values() for w in worlds})
        if kind and upper is grid[0, 0]:
            upper.set_title(f"{kind}\n{upper.get_title()}")
        if shares:
            _shares(shares[0], next(iter(lines.values())), handles)
    for ax in grid[:, len(found):].flat:
        ax.remove()
    grid[0, len(found) - 1].legend(handles.values(), map(series.legend_name, handles.keys()), loc="upper left",
                                   bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
    return notes


def best(rows):
    """The row with the most tokens a second of those that ran; None if none did."""
    ran = [row for row in rows if row["status"] == "ok" and rows_of.value(row, "tokens_per_s")]
    return max(ran, key=lambda row: rows_of.value(row, "tokens_per_s"), default=None)


def _line(upper, lower, at, worlds, handles):
    ran = {w: row for w, group in worlds.items() if (row := best(group))}
    look_of = {**series.style(at), "markersize": 5, "linewidth": 1.4, "capsize": 3}
    shown = None
    for ax, name, factor in ((upper, "tokens_per_s", 1), (lower, "mfu", 100)):
        y = [factor * rows_of.value(row, name) for row in ran.values()]
        spread = [_spread(row, name) for row in ran.values()]
        ends = [[factor * (value - low) for value, low, _ in spread], [factor * (high - value) for value, _, high in spread]]
        shown = ax.errorbar(list(ran), y, yerr=ends, **look_of)
        if ax is upper and ran:
            start = min(ran)
            ideal, = ax.plot(list(worlds), [y[0] * w / start for w in worlds], "--", color=look.GREY, linewidth=1,
                             zorder=1)
            handles.setdefault("ideal", ideal)
    without = [w for w, group in worlds.items() if w not in ran and any(row["status"] in OOM for row in group)]
    if without:
        mark, = lower.plot(without, [1.5] * len(without), "x", color=look.VERMILION, markersize=9, markeredgewidth=2,
                           clip_on=False)
        handles["out of memory"] = mark
    return shown


def _spread(row, name):
    """(value, low, high) of a rate: of measured steps the slowest and fastest, of a predicted one its interval."""
    metric = rows_of.metric(row, name)
    if row["suite"] != "scaling":
        return metric["value"], metric["min"], metric["max"]
    step, interval = rows_of.value(row, "step_s"), row["prediction"]
    return (metric["value"], metric["value"] * step / interval["step_high_s"],
            metric["value"] * step / interval["step_low_s"])


def _look_of(part):
    """(colour, hatch, legend) of a part of an explained step."""
    if part["kind"] == "exposed":
        return breakdown.AXIS_COLOURS.get(part["name"], look.GREY), "", f"exposed {part['name']}"
    return {"compute": (look.BLUE, "", "compute"), "recompute": (look.BLUE, "//", "recompute"),
            "optimizer": (look.GREEN, "..", "optimizer"), "copy": (look.VERMILION, "xx", "memory copies"),
            "wait": (look.PALE, "++", "bubble and waiting"), "host": ("#FFFFFF", "", "host")}[part["kind"]]


def _shares(ax, worlds, handles):
    """Stacked shares of the steps of one line; families of computation as one."""
    ran = {w: row for w, group in worlds.items() if (row := best(group)) and "explained" in row}
    stacks = defaultdict(dict)
    for at, row in ran.items():
        for part in row["explained"]["parts"]:
            stack = stacks[_look_of(part)]
            stack[at] = stack.get(at, 0) + 100 * part["share"]
    level = dict.fromkeys(ran, 0.0)
    for (colour, hatch, legend), stack in stacks.items():
        below = list(level.values())
        level = {at: level[at] + stack.get(at, 0) for at in ran}
        handles[legend] = ax.fill_between(list(ran), below, list(level.values()), facecolor=colour, hatch=hatch,
                                          edgecolor="black", linewidth=0.4)
    ax.set_ylim(0, 100)
    ax.set_ylabel("share of the step (%)")


def _axes(panels, kind, worlds):
    upper, lower = panels[:2]
    upper.set_title(f"{kind} scaling: " + ("the same batch" if kind == "strong" else "the batch grows with the devices"))
    upper.set_yscale("log")
    upper.set_ylabel("throughput (tokens/s)")
    lower.set_ylabel("MFU (%)")
    lower.set_ylim(0, max(10, 1.1 * lower.get_ylim()[1]))
    panels[-1].set_xlabel("devices")
    for ax in panels:
        series.log2_ticks(ax, worlds)
        series.grid_lines(ax)
        ax.tick_params(labelbottom=ax is panels[-1])
