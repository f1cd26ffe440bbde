"""Peak memory by class: closed form, plan and measurement side by side."""

from mb.figures import look

CLASSES = {
    "parameter": (look.BLUE, ""), "gradient": (look.SKY, "//"), "main_parameter": (look.BLACK, ""),
    "moment": (look.GREEN, "\\\\"), "activation": (look.ORANGE, ""), "gathered": (look.YELLOW, "xx"),
    "bucket": (look.PURPLE, ""), "workspace": (look.VERMILION, ".."), "input": (look.GREY, "++")}
# A capacity further away than this many times the longest bar would leave no room for the bars: it is told as text.
MOST_TIMES = 4
COLUMNS = (("closed_form_bytes", "closed form"), ("plan_bytes", "plan"), ("measured_bytes", "measured"))


def memory(rows):
    """Three bars for each row, stacked by memory class; a line marks the peak of the sum, a dashed one the capacity."""
    ok, notes = look.measured(rows)
    ok, left_out = look.first_bars(ok)
    scale, unit = _unit(ok)
    names_of_rows = look.labels(ok)
    figure = look.new_figure(10, 2.1 + look.row_height(names_of_rows, 0.95) * len(ok),
                             "Peak memory of the fullest rank, by class")
    ax = figure.subplots()
    longest = max(_longest(row, scale) for row in ok)
    handles, ticks, names = {}, [], []
    for at, (row, label) in enumerate(zip(ok, names_of_rows)):
        capacity = capacity_bytes(row)
        near = capacity is not None and capacity / scale <= MOST_TIMES * longest
        if near:
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
    ax.set_ylim(len(ok) * 4 - 1.2, -0.8)
    ax.set_xlim(0, 1.14 * max([longest, *(c / scale for row in ok if (c := capacity_bytes(row)) is not None
                                          and c / scale <= MOST_TIMES * longest)]))
    ax.set_xlabel(f"memory ({unit})")
    ax.xaxis.grid(True, color=look.PALE, linewidth=0.6)
    ax.set_axisbelow(True)
    order = [*(name for name in CLASSES if name in handles), *(n for n in handles if n not in CLASSES)]
    figure.legend([handles[name] for name in order], [name.replace("_", " ") for name in order],
                  loc="outside right upper", frameon=False)
    look.annotate(figure, [
        "Each class at its own peak. They need not peak together: the line marks the largest sum at one instant.",
        "Closed form: textbook parameters, gradients, moments and activations, without temporaries. n = 1: every "
        "step is the same.",
        *(["Of: what the simulated device has, beside context and libraries."] if any(map(capacity_bytes, ok)) else []),
        *notes, *left_out], ok)
    return figure


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
