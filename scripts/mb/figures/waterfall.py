"""From one step to another, part by part: what became slower and what faster."""

from mb.figures import breakdown, look, rounds, series


def parts(row):
    """{legend of a part: seconds}, which add up to the step."""
    found = {}
    if "explained" in row:
        for part in row["explained"]["parts"]:
            name = {"exposed": f"exposed {part['name']}", "wait": "bubble and waiting"}.get(part["kind"], part["name"] or part["kind"])
            found[name] = found.get(name, 0) + part["seconds"]
        return found
    for part in row["breakdown"]["parts"]:
        legend = breakdown.look_of(part["name"], part["axis"])[2]
        found[legend] = found.get(legend, 0) + part["mean_s"]
    return found


def changes(base, candidate):
    """[(part, seconds more)], the largest first; those below a thousandth of the step as one."""
    before, after = parts(base), parts(candidate)
    found = {name: after.get(name, 0) - before.get(name, 0) for name in dict.fromkeys([*before, *after])}
    least = 1e-3 * sum(before.values())
    small = [name for name, more in found.items() if abs(more) < least]
    rest = [("the rest", sum(found.pop(name) for name in small))]
    return [*sorted(found.items(), key=lambda change: -abs(change[1])), *(rest if rest[0][1] else [])]


def waterfall(rows):
    """The first row's step, the change of each part, the second row's step."""
    ok, notes = look.launches(rows)
    ok = [row for row in ok if "breakdown" in row or "explained" in row]
    if len(ok) != 2:
        ok = rounds.as_one(ok)
        notes = [*rounds.note(ok), *notes]
    if len(ok) != 2:
        raise look.NoData(f"a waterfall goes from one step to another, but there {'is' if len(ok) == 1 else 'are'} {len(ok)}; "
                          "give two rows, or choose two with --where")
    base, candidate = ok
    start, end = (sum(parts(row).values()) for row in ok)
    factor, unit = look.time_unit(max(start, end))
    steps = changes(base, candidate)
    figure = look.new_figure(11.5, 2.6 + 0.42 * (len(steps) + 2), "What a step's time changed by")
    ax = figure.subplots()
    names = look.labels(ok)
    ax.barh(0, factor * start, 0.7, color=look.BLUE, edgecolor="black", linewidth=0.5, label="step")
    at, level = 1, start
    for at, (name, more) in enumerate(steps, 1):
        colour, hatch, label = (look.VERMILION, "", "slower") if more > 0 else (look.GREEN, "//", "faster")
        ax.barh(at, factor * more, 0.7, left=factor * level, color=colour, hatch=hatch, edgecolor="black", linewidth=0.5,
                label=label)
        ax.annotate(f"{factor * more:+.3g}", (factor * max(level, level + more), at), xytext=(5, 0),
                    textcoords="offset points", va="center", fontsize=9)
        level += more
    ax.barh(at + 1, factor * end, 0.7, color=look.BLUE, edgecolor="black", linewidth=0.5)
    for y, total in ((0, start), (at + 1, end)):
        ax.annotate(f"{factor * total:.4g}", (factor * total, y), xytext=(5, 0), textcoords="offset points", va="center",
                    fontsize=9, fontweight="bold")
    if names[0] == names[1]:
        names = ["base", "candidate"]
    ax.set_yticks(range(len(steps) + 2), [names[0], *(name for name, _ in steps), names[1]])
    ax.set_ylim(len(steps) + 1.6, -0.6)
    ax.set_xlim(0, 1.12 * factor * max(start, end, level))
    ax.set_xlabel(f"time of one step, mean over ranks and steps ({unit})")
    series.grid_lines(ax, "x")
    handles = dict(zip(*reversed(ax.get_legend_handles_labels())))
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False)
    look.annotate(figure, [
        f"{100 * (end / start - 1):+.3g} %: + is slower. Changes add up to the difference of the steps; "
        f"{look.samples_text(ok, 'step_s')} steps, no interval: see mb gate.", *notes], ok)
    return figure
