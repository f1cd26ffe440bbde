"""The best of each TP x PP and each DP x micro-batch; cells without a number say why."""

from collections import defaultdict

from mb import rows as rows_of
from mb.figures import look, rounds, series

# What a cell without a number stands for -> statuses, face, hatch. First that holds is drawn.
KINDS = {"oom": (("oom", "oom_predicted"), "#F6D9C9", "////"),
         "failed": (("crash", "timeout"), "#F2F2F2", "++"),
         "invalid": (("invalid", "unsupported"), "#E4E4E4", "xxxx"),
         "not run": (("cancelled",), "#FFFFFF", "..")}
COLOURS = "cividis"
# Name -> (key of a cell's line, key of its column, their names).
MAPS = {"tensor by pipeline": (lambda row: _ranks(row, "tp"), lambda row: _ranks(row, "pp"), "tp", "pp"),
        "data by micro-batch": (lambda row: _ranks(row, "dp") * _ranks(row, "rdp"),
                                lambda row: int(row["params"].get("micro_batch", 1)), "dp", "micro-batch")}
# Cells beyond which numbers in them cannot be read.
MOST_CELLS = 400


def _ranks(row, axis):
    return rows_of.axes(row).get(axis, 1)


def cells(rows, line, column):
    """{(line, column): best MFU, or the kind of a cell without one}; cells of no row are "not run"."""
    groups = defaultdict(list)
    for row in rows:
        groups[line(row), column(row)].append(row)
    found = {}
    for y in sorted({y for y, _ in groups}):
        for x in sorted({x for _, x in groups}):
            shares = [share for row in groups[y, x] if row["status"] == "ok"
                      and (share := rows_of.value(row, "mfu")) is not None]
            found[y, x] = max(shares) if shares else _kind({row["status"] for row in groups[y, x]})
    return found


def _kind(statuses):
    return next((name for name, (of, _, _) in KINDS.items() if statuses & set(of)), "not run")


def meshes(rows):
    """Heat maps of the best MFU; of rows that did not run, hatches that tell apart why."""
    if not rows:
        raise look.NoData("no row to draw; make some with mb sweep, or meshbench run ... --out FILE")
    rows = [row for row in rows if row["suite"] == "step" and rows_of.axes(row)]
    if not rows:
        raise look.NoData("no row of a training step; make some with meshbench run ... --out FILE")
    cases = rounds.as_one(rows)
    kinds, left_out = series.first(series.kinds(cases), "kinds of rows", series.MOST_KINDS)
    figure = look.new_figure(13.5, 1.4 + 4.6 * len(kinds), "Best MFU by mesh and micro-batch")
    handles = {}
    for panels, (name, of) in zip(figure.subplots(len(kinds), len(MAPS), squeeze=False), kinds.items()):
        _line(figure, panels, name, of, handles)
    if handles:
        figure.legend([handles[name] for name in KINDS if name in handles],
                      [name for name in KINDS if name in handles],
                      loc="outside right upper", frameon=False)
    counts = ", ".join(f"{len([row for row in rows if row['status'] == s])} {s}"
                       for s in sorted({row["status"] for row in rows}))
    look.annotate(figure, [
        f"Of each cell the best MFU over all else that the rows vary ({counts}; medians of "
        f"{look.samples_text(cases, 'step_s')} steps).",
        "oom: did not fit, or would not by prediction; invalid: breaks a rule, or is not in this build; not run: no row, or "
        "cancelled. None of these is 0.",
        *rounds.note(cases), *left_out], rows)
    return figure


def rows_with_cells(rows):
    """The rows of those kinds of which some map has more than one cell."""
    kinds = series.kinds([row for row in rows if row["suite"] == "step" and rows_of.axes(row)])
    return [row for of in kinds.values() for row in of
            if any(len(cells(of, line, column)) > 1 for line, column, *_ in MAPS.values())]


def _line(figure, panels, name, rows, handles):
    """The maps of one kind of rows, on one scale of colours."""
    maps = {title: cells(rows, line, column) for title, (line, column, *_) in MAPS.items()}
    shares = [100 * value for found in maps.values() for value in found.values() if not isinstance(value, str)]
    low, high = (min(shares), max(shares)) if shares else (0.0, 1.0)
    low = min(low, high - 1)  # a scale of at least a percent, or rounding would have all colours
    for ax, (title, found) in zip(panels, maps.items()):
        image = _map(ax, found, low, high, handles)
        ax.set_title(f"{name}\n{title}" if ax is panels[0] else title, loc="left")
        ax.set_ylabel(MAPS[title][2] + " ranks")
        ax.set_xlabel(MAPS[title][3] + (" ranks" if MAPS[title][3] == "pp" else " (samples)"))
    if shares:
        figure.colorbar(image, ax=list(panels), pad=0.02, label="MFU (%)")


def _map(ax, found, low, high, handles):
    import numpy as np
    from matplotlib.patches import Rectangle

    lines, columns = (sorted({key[i] for key in found}) for i in (0, 1))
    values = [[float("nan") if isinstance(found[y, x], str) else 100 * found[y, x] for x in columns] for y in lines]
    edges = [[k - 0.5 for k in range(len(sides) + 1)] for sides in (columns, lines)]
    image = ax.pcolormesh(*edges, np.ma.masked_invalid(values), cmap=COLOURS, vmin=low, vmax=high)
    ax.set_ylim(len(lines) - 0.5, -0.5)
    for at_y, y in enumerate(lines):
        for at_x, x in enumerate(columns):
            value = found[y, x]
            if isinstance(value, str):
                _, face, hatch = KINDS[value]
                cell = ax.add_patch(Rectangle((at_x - 0.5, at_y - 0.5), 1, 1, facecolor=face, hatch=hatch,
                                              edgecolor=look.GREY, linewidth=0.5))
                cell.set_gid(f"{value} {y} {x}")
                handles.setdefault(value, cell)
            elif len(lines) * len(columns) <= MOST_CELLS:
                bright = 100 * value > low + 0.55 * (high - low)
                ax.text(at_x, at_y, f"{100 * value:.1f}", ha="center", va="center", fontsize=9,
                        color="black" if bright else "white")
    ax.set_yticks(range(len(lines)), [str(y) for y in lines])
    ax.set_xticks(range(len(columns)), [str(x) for x in columns])
    ax.tick_params(length=0)
    return image
