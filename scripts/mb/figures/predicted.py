"""Predicted against measured: step times, collectives, peak memory; how far off each source is."""

import statistics
from collections import defaultdict

from mb import rows as rows_of
from mb.figures import coll_rows, look, series

# How a step was run, rather than which: a measured row and one in virtual time of one case differ in these alone.
HOW = {"mode", "machine", "steps", "warm_up", "verify", "timeout_s", "seed", "data", "link", "ranks_per_node", "nodes"}
# Quantity -> (name of the axes, unit, factor).
QUANTITIES = {"step": ("step time", "ms", 1e3), "collective": ("time of a collective", "us", 1e6),
              "memory": ("peak memory of a rank", "MiB", 2**-20)}


def _which(row):
    return tuple(sorted((key, str(value)) for key, value in row["params"].items()
                        if key not in HOW and not key.startswith("machine.")))


def pairs(rows):
    """{quantity: {source: [(predicted, measured, low, high)]}}, in SI units."""
    found = {name: defaultdict(list) for name in QUANTITIES}
    virtual = defaultdict(list)
    for row in rows:
        if row["suite"] == "step" and row["virtual_time"] and rows_of.value(row, "step_s"):
            virtual[_which(row)].append(row)
    for row in rows:
        if row["suite"] == "coll":
            if (seconds := row["coll"]["expected"]["seconds"]) and not row["virtual_time"]:
                times = row["coll"]["completion"]
                found["collective"]["alpha-beta"].append(
                    (seconds, times["p50_s"], times["low_s"] or times["p50_s"], times["high_s"] or times["p50_s"]))
        elif step := rows_of.metric(row, "step_s"):
            measured = step["value"], step["min"], step["max"]
            if simulated := rows_of.value(row, "simulated_step_s"):
                found["step"][f"virtual time, {row['machine']['name']}"].append((simulated, *measured))
            elif not row.get("virtual_time"):
                for twin in virtual[_which(row)]:
                    source = f"virtual time, {twin['params'].get('machine', 'machine')}"
                    found["step"][source].append((rows_of.value(twin, "step_s"), *measured))
            _memory(row, found["memory"])
    return {name: dict(sources) for name, sources in found.items() if sources}


def _memory(row, sources):
    total = row.get("memory", {}).get("total", {})
    measured = total.get("measured_bytes")
    for key, source in (("closed_form_bytes", "closed form"), ("plan_bytes", "plan")):
        if measured and total.get(key):
            sources[source].append((total[key], measured, measured, measured))


def mape(points):
    """Mean absolute error of the predictions, as share of what was measured."""
    return statistics.fmean(abs(predicted - measured) / measured for predicted, measured, *_ in points)


def predicted(rows):
    """A panel for each quantity; on the line the prediction is right, in the band it is off by up to a tenth."""
    ok, notes = look.measured(rows)
    found = pairs(ok)
    if not found:
        raise look.NoData("no row has both a prediction and a measurement; measure a case and run it with mode=sim, or "
                          "meshbench place ... --run")
    most = max(series.legend_height(sources) for sources in found.values())
    figure = look.new_figure(max(10.5, 5.2 * len(found) + 1.2), 5.6 + most, "Predicted against measured")
    for ax, (name, sources) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items()):
        _panel(ax, *QUANTITIES[name], sources)
    count = sum(len(points) for sources in found.values() for points in sources.values())
    look.annotate(figure, [
        f"{count} pairs. Measured: medians; bars: fastest and slowest step, of collectives the 95 % interval of the median. "
        "Band: +-10 % of what was measured.",
        "MAPE: mean of |predicted - measured| / measured. Closed form: textbook parameters, gradients, moments, activations.",
        *notes], ok)
    return figure


def _panel(ax, label, unit, factor, sources):
    values = [factor * value for points in sources.values() for point in points for value in point]
    low, high = min(values) / 1.5, max(values) * 1.5
    ax.fill_between([low, high], [0.9 * low, 0.9 * high], [1.1 * low, 1.1 * high], color=look.PALE, zorder=0)
    ax.plot([low, high], [low, high], "--", color=look.GREY, linewidth=1, zorder=1)
    for at, (source, points) in enumerate(sources.items()):
        guesses, seen, lows, highs = ([factor * value for value in column] for column in zip(*points))
        ends = [[max(0, s - a) for s, a in zip(seen, lows)], [max(0, b - s) for s, b in zip(seen, highs)]]
        ax.errorbar(seen, guesses, xerr=ends, linestyle="none", markersize=6, linewidth=1, capsize=2,
                    **series.style(at), fillstyle="none", zorder=3,
                    label=series.legend_name(f"{source}: n = {len(points)}, MAPE {100 * mape(points):.3g} %"))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_aspect("equal")
    for axis in (ax.xaxis, ax.yaxis):
        coll_rows.log_ticks(axis, low, high)
    ax.set_xlabel(f"measured {label} ({unit})")
    ax.set_ylabel(f"predicted {label} ({unit})")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.01), frameon=False, fontsize=8)
    series.grid_lines(ax)
