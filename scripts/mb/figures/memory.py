"""Peak memory by class: closed form, plan and measurement side by side."""

from mb.figures import look, series

CLASSES = {
    "parameter": (look.BLUE, ""), "gradient": (look.SKY, "//"), "main_parameter": (look.BLACK, ""),
    "moment": (look.GREEN, "\\\\"), "activation": (look.ORANGE, ""), "gathered": (look.YELLOW, "xx"),
    "bucket": (look.PURPLE, ""), "workspace": (look.VERMILION, ".."), "input": (look.GREY, "++")}
# A capacity further away than this many times the longest bar would leave no room for the bars: it is told as text.
MOST_TIMES = 4
COLUMNS = (("closed_form_bytes", "closed form"), ("plan_bytes", "plan"), ("measured_bytes", "measured"))


def memory(rows):
    """Three bars for each row, stacked by memory class, a panel for each kind of rows; a line marks the peak of the sum,
    a dashed one the capacity."""
    ok, notes = look.measured(rows)
    figure, panels, left_out = series.panels_of_bars(ok, 0.8, 0.95, 1.3, "Peak memory of the fullest rank, by class")
    handles = {}
    for ax, of, names in panels:
        _panel(ax, of, names, handles)
    order = [*(name for name in CLASSES if name in handles), *(n for n in handles if n not in CLASSES)]
    figure.legend([handles[name] for name in order], [name.replace("_", " ") for name in order],
                  loc="outside right upper", frameon=False)
    drawn = [row for _, of, _ in panels for row in of]
    look.annotate(figure, [
        "Each class at its own peak. They need not peak together: the line marks the largest sum at one instant.",
        "Closed form: textbook parameters, gradients, moments and activations, without temporaries. n = 1: every "
        "step is the same.",
        *(["Of: what the simulated device has, beside context and libraries."] if any(map(capacity_bytes, drawn)) else []),
        *notes, *left_out], drawn)
    return figure


def _panel(ax, rows, labels, handles):
    scale, unit = _unit(rows)
    longest = max(_longest(row, scale) for row in rows)
    near = [capacity / scale for row in rows if (capacity := capacity_bytes(row)) is not None
            and capacity / scale <= MOST_TIMES * longest]
    ticks, names = [], []
    for at, (row, label) in enumerate(zip(rows, labels)):
        capacity = capacity_bytes(row)
        if capacity is not None and capacity / scale in near:
            line, = ax.plot([capacity / scale] * 2, [at * 4 - 0.6, at * 4 + 2.6], color=look.VERMILION, linestyle="--",
                            linewidth=1.6)
            handles.setdefault("capacity of the device", line)
        for column, (key, name) in enumerate(COLUMNS):
            y = at * 4 + column
            of = f" of {capacity / scale:,.1f}" if capacity is not None and key == "plan_bytes" else ""
            _bar(ax, y, row["memory"], key, scale, handles, of)
            ticks.append(y)
            names.append(name)
        ax.annotate(label, (0, at * 4 + 1), xycoords=("axes fraction", "data"), xytext=(-84, 0),
                    textcoords="offset points", ha="right", va="center", fontweight="bold", fontsize=9)
    ax.set_yticks(ticks, names, fontsize=8)
    ax.set_ylim(len(rows) * 4 - 1.2, -0.8)
    ax.set_xlim(0, 1.14 * max([longest, *near]))
    ax.set_xlabel(f"memory ({unit})")
    ax.xaxis.grid(True, color=look.PALE, linewidth=0.6)
    ax.set_axisbelow(True)


def _unit(rows):
    most = max(row["memory"]["total"]["plan_bytes"] for row in rows)
    return (2**30, "GiB") if most >= 10 * 2**30 else (2**20, "MiB")


def _longest(row, scale):
    sizes = [sum(c[key] or 0 for c in row["memory"]["classes"]) for key, _ in COLUMNS]
    return max(*sizes, *(row["memory"]["total"][key] or 0 for key, _ in COLUMNS), 1) / scale


def capacity_bytes(row):
    """What a simulated device has for tensors, beside context and libraries; None of other rows, whose ranks share."""
    machine = row.get("machine") or {}
    if not machine.get("memory_gb"):
        return None
    return 1e9 * (machine["memory_gb"] - machine.get("context_gb", 0) - machine.get("library_gb", 0))


def _deviation(total, key):
    """By how much a measurement is off its plan, as text."""
    if key != "measured_bytes" or not total["plan_bytes"] or total[key] is None:
        return ""
    return f" ({100 * (total[key] / total['plan_bytes'] - 1):+.1f} % of the plan)"


def _bar(ax, y, table, key, scale, handles, of):
    left = 0.0
    for row in sorted(table["classes"], key=lambda c: list(CLASSES).index(c["class"])):
        if not row[key]:
            continue
        colour, hatch = CLASSES[row["class"]]
        bar = ax.barh(y, row[key] / scale, 0.8, left=left, color=colour, hatch=hatch, edgecolor="black",
                      linewidth=0.5)
        handles.setdefault(row["class"], bar)
        left += row[key] / scale
    total = table["total"][key]
    if total is None and left == 0:
        ax.annotate("not measured", (0, y), xytext=(4, 0), textcoords="offset points", va="center",
                    fontsize=8, style="italic")
        return
    if total is not None:
        line, = ax.plot([total / scale] * 2, [y - 0.48, y + 0.48], color="black", linewidth=2.2)
        handles.setdefault("peak of the sum", line)
    shown = total / scale if total is not None else left
    number = f"{shown:,.1f}" if shown >= 0.1 else f"{shown:.2g}"
    ax.annotate(f"{number}{of}{_deviation(table['total'], key)}", (max(left, shown), y), xytext=(5, 0), textcoords="offset points",
                va="center", fontsize=8)
