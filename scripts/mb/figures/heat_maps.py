"""Collectives as heat maps: who arrives last and who is slow, and which axis gets in the way of which."""

import statistics

from mb.figures import coll_rows, look

# Light to dark, so that a print in grey has the same order.
COLOURS = "Blues"
# Cells beyond which numbers in them cannot be read.
MOST_NUMBERS = 400


def _heat_map(ax, values, names, ticks, low, high, cell_text):
    """values[row][column], None where there is none; rows and columns have names."""
    import matplotlib

    shade = matplotlib.colormaps[COLOURS]
    shown = [[float("nan") if value is None else value for value in line] for line in values]
    image = ax.imshow(shown, cmap=shade, vmin=low, vmax=max(high, low + 1e-9), aspect="auto")
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.set_xticks(range(len(ticks)), ticks, fontsize=8)
    ax.tick_params(length=0)
    if len(names) * len(ticks) <= MOST_NUMBERS:
        for y, line in enumerate(values):
            for x, value in enumerate(line):
                dark = value is not None and value > low + 0.55 * (high - low)
                ax.text(x, y, "-" if value is None else cell_text(y, x), ha="center", va="center", fontsize=8,
                        color="white" if dark else "black")
    return image


def skew(rows):
    """By rank and size: how often it arrives last, how long it waits, how its transfer compares with its group's."""
    ok, notes = coll_rows.colls(rows)
    ok = [row for row in ok if row["coll"]["members"] > 1]
    if not ok:
        raise look.NoData("no row has more than one rank to compare; run with mesh=dp2 or more")
    fields = coll_rows.differing(ok, without=("operation", "group"))
    blocks = coll_rows.by(ok, lambda row: coll_rows.name_of(row, ["operation", *fields]))
    blocks, rest = coll_rows.first(blocks, 6, "operations")
    heights = [0.9 + 0.28 * min(40, len({rank for row in block for rank in row["coll"]["ranks"]}))
               for block in blocks.values()]
    figure = look.new_figure(14.5, 1.9 + sum(heights) + 0.5 * len(heights),
                             f"Who arrives last and who is slow: {coll_rows.common(ok)}".rstrip(": "))
    panels = figure.subplots(len(blocks), 3, squeeze=False, height_ratios=heights)
    for line, (name, block) in zip(panels, blocks.items()):
        _block(figure, line, name, block)
    look.annotate(figure, [
        "Arrives last: share of the operations that this rank starts last; alike for all where none is late. Waits: "
        "median from its start until the last rank's.",
        "Transfer: median from the last start to its own end, over the median of its group's ranks; above 1 it ends "
        "after the others.",
        "Framed: the rank that the row's verdict names. White lines part process groups.", *notes, *rest], ok)
    return figure


def _block(figure, panels, name, block):
    cells = {}  # (rank, size): (row, member)
    for row in coll_rows.once(block, lambda r: (r["coll"]["group"], r["coll"]["bytes"]),
                              lambda r: f"{name}, group {r['coll']['group']} at "
                                        f"{coll_rows.size_text(r['coll']['bytes'])}").values():
        for member in row["coll"]["members_times"]:
            cells[member["rank"], row["coll"]["bytes"]] = row, member
    groups = {row["coll"]["group"]: row["coll"]["ranks"] for row, _ in cells.values()}
    ranks = [rank for _, members in sorted(groups.items()) for rank in members]
    sizes = sorted({size for _, size in cells}, key=lambda size: size or 0)
    factor, unit = look.time_unit(max(member["wait_s"] for _, member in cells.values()) or 1e-6)
    shown = (("arrives last (% of operations)", 0, 100, "{:.0f}",
              lambda row, m: 100 * m["arrived_last"] / row["coll"]["completion"]["n"]),
             (f"waits for the last ({unit})", 0, None, "{:.3g}", lambda row, m: factor * m["wait_s"]),
             ("transfer over its group's median", 1, None, "{:.2f}", _transfer_ratio))
    for ax, (title, low, high, form, quantity) in zip(panels, shown):
        values = [[quantity(*cells[rank, size]) if (rank, size) in cells else None for size in sizes]
                  for rank in ranks]
        most = max(value for line in values for value in line if value is not None)
        image = _heat_map(ax, values, [f"rank {rank}" for rank in ranks],
                          [coll_rows.size_text(size) for size in sizes], low, high or max(most, 1.1 * low),
                          lambda y, x, v=values, f=form: f.format(v[y][x]))
        figure.colorbar(image, ax=ax, pad=0.02, format="{x:g}")
        ax.set_title("\n".join([*(look.wrapped(name, 120) if ax is panels[0] else []), title]), loc="left", fontsize=10)
        ax.set_xlabel("size (B)")
        _part_groups(ax, groups)
        _frame(ax, ranks, sizes, cells)


def _transfer_ratio(row, member):
    middle = statistics.median(m["transfer_s"] for m in row["coll"]["members_times"])
    return member["transfer_s"] / middle if middle > 0 else None


def _part_groups(ax, groups):
    at = -0.5
    for _, members in sorted(groups.items())[:-1]:
        at += len(members)
        ax.axhline(at, color="white", linewidth=3)


def _frame(ax, ranks, sizes, cells):
    from matplotlib.patches import Rectangle

    for y, rank in enumerate(ranks):
        for x, size in enumerate(sizes):
            row, _ = cells.get((rank, size), (None, None))
            verdict = row["coll"]["verdict"] if row else {"fault": "none"}
            if verdict["fault"] in ("late_rank", "slow_rank", "slow_link") and rank in verdict["who"]:
                ax.add_patch(Rectangle((x - 0.46, y - 0.44), 0.92, 0.88, fill=False, edgecolor=look.VERMILION,
                                       linewidth=2))


def interference(rows):
    """Slow-down of each axis' operation while that of another axis runs beside it."""
    ok, notes = coll_rows.colls(rows)
    both = [row for row in ok if row["coll"]["beside"]["slow_down"] is not None]
    if not both:
        raise look.NoData("no row of an operation beside another; make some with meshbench coll mesh=dp2.tp2 size=1M "
                          "--matrix -o FILE.jsonl")
    if len(both) < len(ok):
        notes = [*notes, f"Left out, with nothing beside it: {len(ok) - len(both)}."]
    fields = coll_rows.differing(both, without=("axis", "group", "beside"))
    blocks = coll_rows.by(both, lambda row: coll_rows.name_of(row, ["operation", *fields]) + " of " +
                          coll_rows.size_text(row["coll"]["bytes"]))
    blocks, rest = coll_rows.first(blocks, 6, "operations")
    figure, panels = coll_rows.grid(
        f"Which collective gets in the way of which: {coll_rows.common(both)}".rstrip(": "), len(blocks), 2, 5.6, 3.4)
    for ax, (name, block) in zip(panels, blocks.items()):
        _pairs(figure, ax, name, block)
    look.annotate(figure, [
        "Slow-down: median while the other runs beside it, over the median alone, timed in turn; 1 is none. The slowest "
        "group's number;",
        "below it, where an axis has several groups, from the least to the most. Both run on threads of the same ranks: "
        "cores are shared too.", *notes, *rest], both)
    return figure


def _pairs(figure, ax, name, block):
    pairs = {}  # (operation's axis, what is beside it): slow-down by group
    for row in coll_rows.once(
            block, lambda r: (r["coll"]["axis"], _other(r), r["coll"]["group"]),
            lambda r: f"{name} over {r['coll']['axis']} beside {_other(r)}, group {r['coll']['group']}").values():
        pairs.setdefault((row["coll"]["axis"], _other(row)), []).append(row["coll"]["beside"]["slow_down"])
    axes = list(dict.fromkeys(axis for axis, _ in pairs))
    others = list(dict.fromkeys(other for _, other in pairs))
    values = [[max(pairs[axis, other]) if (axis, other) in pairs else None for other in others] for axis in axes]

    def text(y, x):
        found = pairs[axes[y], others[x]]
        spread = f"\n{min(found):.2f} to {max(found):.2f}" if len(found) > 1 else ""
        return f"{max(found):.2f}{spread}"

    most = max(value for line in values for value in line if value is not None)
    image = _heat_map(ax, values, [f"over {axis}" for axis in axes], [f"beside\n{other}" for other in others],
                      1, max(most, 1.1), text)
    figure.colorbar(image, ax=ax, pad=0.02, label="slow-down (times)")
    ax.set_title("\n".join(look.wrapped(name, 46)))


def _other(row):
    beside = row["coll"]["beside"]
    name = f"{beside['operation']} over {beside['axis']}"
    same = (beside["operation"], beside["bytes"]) == (row["coll"]["operation"], row["coll"]["bytes"])
    return f"that over {beside['axis']}" if same else f"{name}\n{coll_rows.size_text(beside['bytes'])}"
