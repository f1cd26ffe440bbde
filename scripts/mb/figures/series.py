"""What figures over one quantity share: what tells lines of rows apart, their names and looks."""

from collections import defaultdict

from mb.figures import look

COLOURS = (look.BLUE, look.ORANGE, look.BLACK, look.GREEN, look.PURPLE, look.VERMILION, look.SKY)
MARKERS = "osD^vPX<>*hd"
# Lines of a panel that can still be told apart.
MOST = 12
# Kinds of rows that a page can show one under the other.
MOST_KINDS = 4


def split(rows, ignored):
    """{name: rows}: rows that differ in no parameter but those ignored; named by what differs between them."""
    keys = look.differing(rows, look.UNTOLD - {"mesh"} | set(ignored))
    found = defaultdict(list)
    for row in rows:
        found[", ".join(look.pairs(row, keys))].append(row)
    return dict(found)


def kinds(rows):
    """{"gpt-1m, threads": rows}: what can be held to each other, by model and by what ran it."""
    named = {}  # of a model and mode, the first machine that a row names: refused cases leave out what they did not say
    for row in rows:
        named[_run_on(row)] = named.get(_run_on(row)) or row["params"].get("machine")
    found = defaultdict(list)
    for row in rows:
        model, mode = _run_on(row)
        machine = look.short(row["params"].get("machine") or named[model, mode] or "its machine")
        found[f"{model}, virtual time, {machine}" if mode == "sim" else f"{model}, {mode}"].append(row)
    return dict(found)


def bars(rows, height, least):
    """({kind: rows}, {kind: names of its rows}, {kind: inches}, lines on what is left out) for a panel of bars each.

    A bar of a row is `least` inches or what its name wants, and a panel `height` beside its bars.
    """
    rows, left_out = look.first_bars(rows)
    found, rest = first(kinds(rows), "kinds of rows", MOST_KINDS)
    names = {kind: look.numbered(look.labels(of)) for kind, of in found.items()}
    inches = {kind: height + look.row_height(names[kind], least) * len(of) for kind, of in found.items()}
    return found, names, inches, [*left_out, *rest]


def panels_of_bars(rows, height, least, around, title):
    """(figure, [(its axes, rows, their names)], lines on what is left out): a panel for each kind of rows, one above the
    other, with `around` inches beside them."""
    found, names, inches, left_out = bars(rows, height, least)
    figure = look.new_figure(10, around + sum(inches.values()), title)
    grid = figure.subplots(len(found), 1, squeeze=False, height_ratios=list(inches.values()))[:, 0]
    if len(found) > 1:
        for ax, kind in zip(grid, found):
            ax.set_title(kind, loc="left")
    return figure, [(ax, of, names[kind]) for ax, (kind, of) in zip(grid, found.items())], left_out


def _run_on(row):
    return look.short(row["params"].get("model", "model")), str(row["params"].get("mode", "threads"))


def first(groups, what="lines", most=MOST):
    """As many of the groups as can be told apart, and a line on the rest."""
    if len(groups) <= most:
        return groups, []
    return dict(list(groups.items())[:most]), [
        f"The first {most} of {len(groups)} {what}; choose others with --where."]


def legend_name(name):
    """A name in lines that a legend has room for."""
    return "\n".join(look.wrapped(name, 40))


def legend_height(names, size=8):
    """Inches of a legend of these names in points of that size."""
    return size / 72 * sum(1.75 + 1.2 * legend_name(name).count("\n") for name in names)


def style(at):
    return {"color": COLOURS[at % len(COLOURS)], "marker": MARKERS[at % len(MARKERS)]}


def grid_lines(ax, axis="both"):
    ax.grid(axis=axis, color=look.PALE, linewidth=0.6)
    ax.set_axisbelow(True)


def log2_ticks(ax, values):
    """A logarithmic x axis with the values themselves as ticks, at most ten."""
    values = sorted(set(values))
    shown = values[::-(-len(values) // 10)]
    ax.set_xscale("log", base=2)
    ax.set_xticks(shown, [f"{value:g}" for value in shown])
    ax.set_xticks([], minor=True)
    ax.set_xlim(values[0] / 1.4, values[-1] * 1.4)
