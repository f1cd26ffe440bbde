"""Orders of axes over ranks: what each sends between nodes, and how long its step takes."""

from collections import defaultdict

from mb import rows as rows_of
from mb.figures import breakdown, look

SIMULATED, MEASURED = ("simulated_step_s", look.PALE, "//", "virtual time"), ("step_s", look.GREEN, "", "measured")


def placement(rows):
    """For each case: bytes between nodes by axis, and step times, a bar an order, the fastest first."""
    ok, notes = look.measured(rows)
    ok = [row for row in ok if "placement" in row]
    if not ok:
        raise look.NoData("no row of an order; make some with meshbench place ... --out FILE.jsonl")
    ok, left_out = look.first_bars(ok)
    cases = defaultdict(list)
    for row in ok:
        cases[_case(row)].append(row)
    figure = look.new_figure(12, 1.6 + sum(0.9 + 0.62 * len(group) for group in cases.values()),
                             "Orders of axes over ranks, fastest axis first")
    grid = figure.subplots(len(cases), 2, squeeze=False, sharey="row", width_ratios=[1, 1.1],
                           height_ratios=[0.9 + 0.62 * len(group) for group in cases.values()])
    handles = {}
    for (left, right), (case, group) in zip(grid, cases.items()):
        group.sort(key=lambda row: rows_of.value(row, "simulated_step_s"))
        left.set_title(case, loc="left", fontweight="bold")
        _bytes(left, group, handles)
        _times(right, group, handles)
        left.set_yticks(range(len(group)), [_orders(row) for row in group], fontsize=9)
        left.set_ylim(len(group) - 0.4, -0.6)
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False)
    look.annotate(figure, [
        "Left: what all ranks send over links between nodes in a step, by axis; where rings go round nodes, every "
        "boundary is crossed.",
        "Right: step time; the number is times the best. Measured: median of steps on threads with link=, whiskers "
        "fastest and slowest.",
        "Orders that put the same ranks together on nodes are one bar.", *notes, *left_out], ok)
    return figure


def _case(row):
    params = row["params"]
    where = row["machine"]["name"] if params.get("link", "none") == "none" else params["link"]
    return f"{params['model']} {params['mesh']} on {row['placement']['nodes']} nodes, {where}"


def _orders(row):
    first, *others = row["placement"]["orders"]
    if not others:
        return first
    return f"{first}\n= {', '.join(others)}" if len(others) < 3 else f"{first}\nand {len(others)} like it"


def _style(ax, label):
    ax.set_xlabel(label)
    ax.xaxis.grid(True, color=look.PALE, linewidth=0.6)
    ax.set_axisbelow(True)


def _bytes(ax, group, handles):
    most = max(row["placement"]["inter_bytes"] for row in group)
    scale, unit = next((s for s in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB")) if most >= s[0]), (2**10, "KiB"))
    for at, row in enumerate(group):
        left = 0.0
        for axis in row["placement"]["axes"]:
            if axis["inter_bytes"] == 0:
                continue
            bar = ax.barh(at, axis["inter_bytes"] / scale, 0.6, left=left, edgecolor="black", linewidth=0.5,
                          color=breakdown.AXIS_COLOURS.get(axis["axis"], look.GREY))
            if axis["inter_bytes"] > 0.005 * most:
                handles.setdefault(f"{axis['axis']} between nodes", bar)
            left += axis["inter_bytes"] / scale
        ax.annotate(f"{left:.3g}", (left, at), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9)
    ax.set_xlim(0, 1.15 * max(most / scale, 1e-9))
    _style(ax, f"sent between nodes in a step ({unit})")


def _times(ax, group, handles):
    kinds = [kind for kind in (SIMULATED, MEASURED) if all(rows_of.metric(row, kind[0]) for row in group)]
    longest = max(rows_of.metric(row, name)["max"] for row in group for name, *_ in kinds)
    factor, unit = look.time_unit(longest)
    height = 0.7 / len(kinds)
    for k, (name, colour, hatch, legend) in enumerate(kinds):
        best = min(rows_of.value(row, name) for row in group)
        for at, row in enumerate(group):
            found = rows_of.metric(row, name)
            y = at + (k - (len(kinds) - 1) / 2) * height
            bar = ax.barh(y, found["value"] * factor, height, color=colour, hatch=hatch, edgecolor="black",
                          linewidth=0.5)
            handles.setdefault(f"step, {legend}", bar)
            if found["n"] > 1:
                ends = [[(found["value"] - found["min"]) * factor], [(found["max"] - found["value"]) * factor]]
                ax.errorbar(found["value"] * factor, y, xerr=ends, color="black", capsize=3, linewidth=1)
            ax.annotate(f"{found['value'] / best:.2f}", (found["max"] * factor, y), xytext=(6, 0),
                        textcoords="offset points", va="center", fontsize=9)
    ax.set_xlim(0, 1.15 * longest * factor)
    _style(ax, f"time of a step ({unit})")
