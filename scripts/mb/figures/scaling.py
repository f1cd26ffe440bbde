"""Throughput and MFU over devices: strong scaling (the batch stays) and weak scaling (it grows with the devices)."""

import math
from collections import defaultdict

from mb import rows as rows_of
from mb.figures import look, series

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
    """Upper panels: tokens a second with the ideal line; lower: MFU, and which worlds ran out of memory."""
    look.measured(rows)
    rows = [row for row in rows if row["suite"] == "step" and "global_batch" in row["params"]
            and (row["status"] in OOM or row["status"] == "ok" and rows_of.metric(row, "mfu"))]
    found = {kind: lines for kind, lines in curves(rows).items() if lines}
    if not found:
        raise look.NoData("no two rows differ in the number of ranks alone, at the same global_batch= or the same a rank; "
                          "run mesh=dp1, dp2, dp4 ... with one global_batch=")
    figure = look.new_figure(5.4 * len(found) + 4.6, 7.4, "Scaling over devices")
    panels = figure.subplots(2, len(found), squeeze=False, sharex="col")
    handles, notes = {}, []
    for (upper, lower), (kind, lines) in zip(zip(*panels), found.items()):
        lines, rest = series.first(lines, f"lines of {kind} scaling")
        notes += rest
        for at, (name, worlds) in enumerate(lines.items()):
            handles[f"{kind}: {name}"] = _line(upper, lower, at, worlds, handles)
        _axes(upper, lower, kind, {w for worlds in lines.values() for w in worlds})
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=8)
    conventions = sorted({f"{row['convention']['name']} convention" for row in rows if "convention" in row})
    peaks = sorted({f"{row['peak']['flops_per_s'] / 1e12:.4g} TFLOP/s {row['peak']['dtype']}" for row in rows if "peak" in row})
    look.annotate(figure, [
        f"Points: the best row of a number of devices, median of {look.samples_text(rows, 'step_s')} steps, whiskers slowest "
        "and fastest. Grey: ideal, from the smallest.",
        f"MFU ({', '.join(conventions)}, nothing recomputed counts) of {', '.join(peaks[:3])} a device. x at the bottom: "
        "every row of that number ran, or would run, out of memory.", *notes], rows)
    return figure


def best(rows):
    """The row with the most tokens a second of those that ran; None if none did."""
    ran = [row for row in rows if row["status"] == "ok" and rows_of.value(row, "tokens_per_s")]
    return max(ran, key=lambda row: rows_of.value(row, "tokens_per_s"), default=None)


def _line(upper, lower, at, worlds, handles):
    ran = {w: row for w, group in worlds.items() if (row := best(group))}
    look_of = {**series.style(at), "markersize": 5, "linewidth": 1.4, "capsize": 3}
    shown = None
    for ax, name, factor in ((upper, "tokens_per_s", 1), (lower, "mfu", 100)):
        values = [rows_of.metric(row, name) for row in ran.values()]
        y = [factor * v["value"] for v in values]
        ends = [[factor * (v["value"] - v["min"]) for v in values], [factor * (v["max"] - v["value"]) for v in values]]
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


def _axes(upper, lower, kind, worlds):
    upper.set_title(f"{kind} scaling: " + ("the same batch" if kind == "strong" else "the batch grows with the devices"))
    upper.set_yscale("log")
    upper.set_ylabel("throughput (tokens/s)")
    lower.set_ylabel("MFU (%)")
    lower.set_ylim(0, max(10, 1.1 * lower.get_ylim()[1]))
    lower.set_xlabel("devices")
    for ax in (upper, lower):
        series.log2_ticks(ax, worlds)
        series.grid_lines(ax)
