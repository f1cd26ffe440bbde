"""Collectives over sizes and operations: bus bandwidth, its share of the ceiling, time, distribution of completion."""

import statistics

from mb import rows as rows_of
from mb.figures import coll_rows, look

# Share of operations that are slower -> its name on the axis.
TAIL = {1.0: "fastest", 0.5: "p50", 0.1: "p90", 0.01: "p99", 0.001: "p99.9", 0.0001: "p99.99"}

# Lines of a panel whose bands can still be told apart; more are drawn without.
MOST_BANDS = 4


def busbw(rows):
    """Bus bandwidth over size: a panel for each operation, or one where nothing else differs."""
    return _over_size(
        rows, _busbw, "Bus bandwidth of collectives", "busbw (GB/s)", log=True,
        missing="busbw, which one rank and barriers have not",
        caption=["busbw: bytes over time times nccl-tests' factor of the operation, from the median; 1 GB = 1e9 B, one "
                 "direction; sizes binary, as nccl-tests means them.",
                 f"Bands, up to {MOST_BANDS} lines: 95 % interval of the median; of a size that was measured several times, "
                 "the middle one's line and all intervals. Dashed: ceiling."])


def ceiling(rows):
    """Share of its ceiling that busbw reaches, over size."""
    return _over_size(
        rows, _share, "Share of the ceiling that collectives reach", "busbw over its ceiling (%)", log=False,
        missing="a ceiling",
        caption=["Ceiling: what links admit of a machine, or one pass over memory as measured before the run, for "
                 "buffers that caches do not hold.",
                 f"Bands, up to {MOST_BANDS} lines: 95 % interval of the median. Above 100 %: caches hold a part, or "
                 "memory was slower when its rate was measured."])


def latency(rows):
    """Time over size, both logarithmic, with the latency and the rate that go best with each line."""
    return _over_size(
        rows, _time, "Time of collectives", "time (us)", log=True, fitted=True, bound="predicted",
        missing="a size, which barriers have not",
        caption=["Median from the last start to the last end. Dotted, with its numbers: latency + size / rate, by the "
                 "least squares of relative errors; the rate is bytes over time (algbw), 1 GB = 1e9 B.",
                 f"Bands, up to {MOST_BANDS} lines: 95 % interval of the median. Dashed: what the row predicts."])


def fit(points):
    """(latency, time per byte) that go best with [(bytes, time)] by relative error, neither below 0; None for fewer than
    three sizes."""
    import numpy as np

    sizes, times = np.array(points, float).T
    if len(sizes) < 3 or not (times > 0).all():
        return None
    whole = np.stack([1 / times, sizes / times], axis=1)
    latency, per_byte = np.linalg.lstsq(whole, np.ones(len(times)), rcond=None)[0]
    if latency < 0:
        latency, per_byte = 0.0, float((whole[:, 1] @ np.ones(len(times))) / (whole[:, 1] @ whole[:, 1]))
    return (float(latency), float(per_byte)) if per_byte > 0 else None


def _time(row):
    times = row["coll"]["completion"]
    if not times["p50_s"]:
        return None
    expected = row["coll"]["expected"]["seconds"]
    low, high = (times[end] or times["p50_s"] for end in ("low_s", "high_s"))
    return 1e6 * times["p50_s"], 1e6 * low, 1e6 * high, 1e6 * expected if expected else None


def _busbw(row):
    """(value, low, high, ceiling), GB/s; None where there is none."""
    value = rows_of.value(row, "busbw_bytes_per_s")
    if not value:
        return None
    top = row["coll"]["expected"]["busbw_ceiling_bytes_per_s"]
    return *_interval(row, 1e-9 * value), None if top is None else 1e-9 * top


def _share(row):
    fraction = row["coll"]["expected"]["fraction"]
    return None if fraction is None else (*_interval(row, 100 * fraction), None)


def _interval(row, value):
    """A rate from the median time, and as the ends of the median's interval would have it."""
    times = row["coll"]["completion"]
    if times["low_s"] is None:
        return value, value, value
    return value, value * times["p50_s"] / times["high_s"], value * times["p50_s"] / times["low_s"]


def _over_size(rows, quantity, title, label, log, missing, caption, bound=coll_rows.CEILING, fitted=False):
    ok, notes = coll_rows.colls(rows)
    drawn = [row for row in ok if row["coll"]["bytes"] and quantity(row)]
    if not drawn:
        raise look.NoData(f"no row has {missing}; {coll_rows.MAKE}")
    if len(drawn) < len(ok):
        notes = [*notes, f"Left out, without {missing}: {len(ok) - len(drawn)}."]
    fields = coll_rows.differing(drawn)
    panels = coll_rows.by(drawn, lambda row: row["coll"]["operation"] if fields else "")
    panels, rest = coll_rows.first(panels, coll_rows.MOST_PANELS, "operations")
    figure, axes = coll_rows.grid(f"{title}: {coll_rows.common(drawn)}".rstrip(": "), len(panels),
                                  3, 3.7 if len(panels) > 1 else 7, 3.1 if len(panels) > 1 else 4.6)
    lines, notes = coll_rows.Lines(), [*notes, *rest]
    for ax, (operation, group) in zip(axes, panels.items()):
        series = coll_rows.by(group, lambda row: coll_rows.name_of(row, fields or ["operation"]))
        series, rest = coll_rows.first(series, coll_rows.MOST_LINES, f"lines of {operation}".rstrip(" of"))
        notes += rest
        for name, members in series.items():
            _line(ax, name, members, quantity, lines, bound, fitted, band=len(series) <= MOST_BANDS)
        ax.set_title(operation)
        _size_axis(ax, group)
        _value_axis(ax, label, log)
    lines.legend(figure)
    look.annotate(figure, [*caption, *notes], drawn)
    return figure


def _line(ax, name, members, quantity, lines, bound, fitted, band):
    points = []
    for size, same in sorted(coll_rows.by(members, lambda row: row["coll"]["bytes"]).items()):
        values, lows, highs, tops = zip(*map(quantity, same))
        tops = [top for top in tops if top is not None]
        points.append((size, statistics.median(values), min(lows), max(highs),
                       statistics.median(tops) if tops else None))
    sizes, values, lows, highs, tops = zip(*points)
    style = lines.look_of(name)
    handle, = ax.plot(sizes, values, markersize=4.5, linewidth=1.4, zorder=3, **style)
    if fitted and (found := fit(list(zip(sizes, values)))):
        start, slope = found
        shown = [sizes[0] * (sizes[-1] / sizes[0]) ** (k / 40) for k in range(41)]
        ax.plot(shown, [start + slope * size for size in shown], ":", color=style["color"], linewidth=1.2, zorder=2)
        ax.annotate(f"{start:.3g} us + size / {1e-3 / slope:.3g} GB/s", (0, 1), xycoords="axes fraction",
                    xytext=(5, -9 - 9 * len(ax.texts)), textcoords="offset points", fontsize=7, color=style["color"])
    lines.handles[name] = handle
    if band:
        ax.fill_between(sizes, lows, highs, color=style["color"], alpha=0.2, linewidth=0, zorder=2)
    bounded = [(size, top) for size, top in zip(sizes, tops) if top is not None]
    if bounded:
        ax.plot(*zip(*bounded), "--", marker="_", markersize=16, color=style["color"], linewidth=1.2, zorder=4)
        shown, = ax.plot([], [], "--", marker="_", markersize=16, color=look.GREY, linewidth=1.2)
        lines.handles.setdefault(bound, shown)


def _size_axis(ax, rows):
    sizes = sorted({row["coll"]["bytes"] for row in rows})
    ticks = sizes[::-(-len(sizes) // 9)]
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [coll_rows.size_text(size) for size in ticks], fontsize=8)
    ax.set_xticks([], minor=True)
    ax.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.5)
    ax.set_xlabel("size (B)")


def _value_axis(ax, label, log):
    if log:
        ax.set_yscale("log")
        coll_rows.log_ticks(ax.yaxis, *ax.get_ylim())
        ax.grid(axis="y", which="minor", color=look.PALE, linewidth=0.3)
    else:
        ax.set_ylim(0, max(110, 1.05 * ax.get_ylim()[1]))
        ax.axhline(100, color=look.GREY, linestyle="--", linewidth=1)
    ax.set_ylabel(label)
    ax.grid(axis="both", color=look.PALE, linewidth=0.6)
    ax.set_axisbelow(True)


def completion(rows):
    """Which share of operations is slower than a time, on scales that show the tail; p99 and p99.9 marked."""
    ok, notes = coll_rows.colls(rows)
    raw = [row for row in ok if row["coll"].get("samples_s")]
    if not raw:
        raise look.NoData("no row has the time of every operation; make some with meshbench coll ... --raw -o FILE.jsonl")
    if len(raw) < len(ok):
        notes = [*notes, f"Left out, without --raw: {len(ok) - len(raw)}."]
    fields = coll_rows.differing(raw)
    panels = coll_rows.by(raw, lambda row: _panel_of(row, bool(fields)))
    panels, rest = coll_rows.first(panels, coll_rows.MOST_PANELS, "panels")
    figure, axes = coll_rows.grid(f"Completion of every operation: {coll_rows.common(raw)}".rstrip(": "), len(panels),
                                  3, 4.2 if len(panels) > 1 else 7, 3.4 if len(panels) > 1 else 4.8)
    lines, notes = coll_rows.Lines(), [*notes, *rest]
    for ax, (title, group) in zip(axes, panels.items()):
        series = coll_rows.by(group, lambda row: coll_rows.name_of(row, fields) if fields else
                              coll_rows.size_text(row["coll"]["bytes"]))
        series, rest = coll_rows.first(series, coll_rows.MOST_LINES, f"lines of {title}")
        notes += rest
        shown = [row for members in series.values() for row in members]
        factor, unit = look.time_unit(max(row["coll"]["completion"]["p50_s"] for row in shown))
        for name, members in series.items():
            for row in members:
                _distribution(ax, name, row, factor, lines)
        _tail_axis(ax, shown)
        ax.set_title(title)
        ax.set_xlabel(f"completion, last start to last end ({unit})")
    lines.legend(figure)
    counts = sorted(len(row["coll"]["samples_s"]) for row in raw)
    look.annotate(figure, [
        "Up: further into the tail; at p99 one operation of a hundred takes longer than the time below it. Both scales "
        "are logarithmic.",
        "Triangle: p99 of the row; star: its p99.9; each where at least one operation lies beyond it. "
        f"{counts[0]} to {counts[-1]} operations a line.", *notes], raw)
    return figure


def _panel_of(row, sized):
    operation = row["coll"]["operation"]
    return f"{operation}, {coll_rows.size_text(row['coll']['bytes'])}" if sized else operation


def _distribution(ax, name, row, factor, lines):
    times = sorted(factor * time for time in row["coll"]["samples_s"])
    n = len(times)
    style = lines.look_of(name)
    at_least = [(n - k) / n for k in range(n)]
    lines.handles[name], = ax.step(times, at_least, where="pre", linewidth=1.4, color=style["color"],
                                   linestyle=style["linestyle"], marker=style["marker"], markersize=4.5,
                                   markevery=_first_of_each_half(at_least))
    for key, share, marker in (("p99_s", 0.01, "^"), ("p999_s", 0.001, "*")):
        if n * share >= 1:
            ax.plot(factor * row["coll"]["completion"][key], share, marker, markersize=11, zorder=4,
                    color=style["color"], markeredgecolor="black")


def _first_of_each_half(at_least):
    """Places of markers that are evenly apart on the scale of the tail."""
    found, wanted = [], 0.9
    for k, share in enumerate(at_least):
        if share <= wanted:
            found.append(k)
            wanted = share / 4
    return found


def _tail_axis(ax, rows):
    least = 1 / max(len(row["coll"]["samples_s"]) for row in rows)
    ax.set_xscale("log")
    coll_rows.log_ticks(ax.xaxis, *ax.get_xlim())
    ax.set_yscale("log")
    ax.set_ylim(1.3, least / 2)
    shown = [share for share in TAIL if share >= least / 2]
    ax.set_yticks(shown, [TAIL[share] for share in shown])
    ax.set_yticks([], minor=True)
    for share in (0.01, 0.001):
        ax.axhline(share, color=look.GREY, linestyle=":", linewidth=1.2, zorder=1)
    ax.grid(axis="both", color=look.PALE, linewidth=0.6)
    ax.set_axisbelow(True)
