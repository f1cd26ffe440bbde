"""Where the step went: parts that add up to it, stacked."""

from mb import rows as rows_of
from mb.figures import look, series

# name, axis -> colour, hatch. Transfer is plain, waiting for other ranks is striped.
AXIS_COLOURS = {"tp": look.ORANGE, "dp": look.PURPLE, "pp": look.SKY, "embedding": look.YELLOW,
                "cp": look.VERMILION, "ep": look.BLACK, "world": look.GREY}
PLAIN = {"compute": (look.BLUE, "", "compute"), "optimizer": (look.GREEN, "..", "optimizer"),
         "memory": (look.VERMILION, "xx", "memory copies"),
         "idle_in_pipeline": (look.PALE, "++", "idle in the window"),
         "idle": ("#FFFFFF", "", "idle outside the window")}
ORDER = ["compute", "optimizer", "memory", "exposed_transfer", "exposed_wait", "idle_in_pipeline", "idle"]


def look_of(name, axis):
    """(colour, hatch, legend) of a part."""
    if axis is None or name in PLAIN:
        return PLAIN[name]
    colour = AXIS_COLOURS.get(axis, look.GREY)
    return (colour, "", f"{axis} transfer") if name == "exposed_transfer" else (colour, "////", f"{axis} wait")


def breakdown(rows):
    """A stacked bar for each row, a panel for each kind; communication hidden behind compute is a thin bar under it."""
    ok, notes = look.measured(rows)
    figure, panels, left_out = series.panels_of_bars(ok, 0.9, 0.62, 1.5, "Where the step time goes")
    handles = {}
    for ax, of, names in panels:
        _panel(ax, of, names, handles)
    order = sorted(handles, key=lambda key: handles[key][0])
    figure.legend([handles[key][1] for key in order], order, loc="outside right upper", frameon=False)
    drawn = [row for _, of, _ in panels for row in of]
    look.annotate(figure, [
        f"Parts add up to the step. {look.samples_text(drawn, 'step_s')} steps; whiskers: fastest and slowest step. "
        "Striped: waiting for other ranks.",
        "Window: first forward start to last backward end; pp wait and idle in it are the pipeline's bubble. Where ranks "
        "outnumber cores,",
        "idle is waiting for a core too. Thin bars: communication hidden behind compute, not added.",
        *notes, *left_out], drawn)
    return figure


def _panel(ax, rows, names, handles):
    longest = max(row["breakdown"]["window_ns"] / max(1, row["breakdown"]["steps"]) for row in rows) / 1e9
    factor, unit = look.time_unit(longest)
    for at, row in enumerate(rows):
        _bar(ax, at, row, factor, handles)
    ax.set_yticks(range(len(rows)), names, fontsize=9)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(0, 1.14 * max(end for row in rows for end in _ends(row, factor)))
    ax.set_xlabel(f"time of one step, mean over ranks and steps ({unit})")
    ax.xaxis.grid(True, color=look.PALE, linewidth=0.6)
    ax.set_axisbelow(True)


def _ends(row, factor):
    yield row["breakdown"]["window_ns"] / max(1, row["breakdown"]["steps"]) / 1e9 * factor
    if step := rows_of.metric(row, "step_s"):
        yield step["max"] * factor


def _rank_of(part):
    return ORDER.index(part["name"]), part["axis"] or ""


def _bar(ax, at, row, factor, handles):
    left = 0.0
    for part in sorted(row["breakdown"]["parts"], key=_rank_of):
        if part["total_ns"] == 0:
            continue
        colour, hatch, legend = look_of(part["name"], part["axis"])
        bar = ax.barh(at, part["mean_s"] * factor, 0.6, left=left, color=colour, hatch=hatch,
                      edgecolor="black", linewidth=0.5)
        handles.setdefault(legend, (_rank_of(part), bar))
        left += part["mean_s"] * factor
    start = 0.0
    for hidden in sorted(row["breakdown"]["overlapped"], key=lambda h: h["axis"]):
        if hidden["total_ns"] == 0:
            continue
        bar = ax.barh(at + 0.38, hidden["mean_s"] * factor, 0.12, left=start, hatch="\\\\\\\\", linewidth=0.5,
                      color=AXIS_COLOURS.get(hidden["axis"], look.GREY), edgecolor="black")
        handles.setdefault(f"{hidden['axis']} hidden behind compute", ((len(ORDER), hidden["axis"]), bar))
        start += hidden["mean_s"] * factor
    end = left
    if step := rows_of.metric(row, "step_s"):
        middle = step["value"] * factor
        ax.errorbar(middle, at + 0.2, xerr=[[middle - step["min"] * factor], [step["max"] * factor - middle]],
                    color="black", capsize=3, linewidth=1)
        end = max(end, step["max"] * factor)
    ax.annotate(f"{left:.3g}", (end, at), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)
