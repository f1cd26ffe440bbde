"""Communication over the bandwidth of a link: what share of the step is exposed, what share of it is hidden."""

import math
import re

from mb import rows as rows_of
from mb.figures import look, series

RATE = {"GB": 1, "MB": 1e-3, "KB": 1e-6}


def _shaped(row, link):
    """GB/s that link= gives a class of links."""
    found = re.search(rf"{link}:([\d.]+)([GMK]B)/s", str(row["params"].get("link", "")))
    return float(found[1]) * RATE[found[2]] if found else None


# Which bandwidth may be what rows differ in, and where it stands in a row; GB/s.
LINKS = {"between nodes": lambda row: _shaped(row, "inter") or row.get("machine", {}).get("nic_gb_per_s"),
         "within nodes": lambda row: _shaped(row, "intra") or row.get("machine", {}).get("link_gb_per_s")}
IGNORED = ("link", "machine.nic_gb_per_s", "machine.link_gb_per_s", "machine.nic_latency_us", "machine.link_latency_us")
WANTED = "vary machine.nic_gb_per_s=, machine.link_gb_per_s= or link="


def bandwidth_of(rows):
    """(name, function of a row) of the link whose bandwidth the rows vary; None if they do not."""
    return next(((name, rate) for name, rate in LINKS.items() if len({rate(row) for row in rows if rate(row)}) > 1), None)


def crossover(points):
    """Bandwidth at which communication takes as long as computation, from [(bandwidth, comm_s, compute_s)] by bandwidth;
    None if it does nowhere. Between points, the ratio is taken to follow a power of the bandwidth."""
    logs = [(math.log(rate), math.log(comm / compute)) for rate, comm, compute in points if comm > 0 and compute > 0]
    for (x0, y0), (x1, y1) in zip(logs, logs[1:]):
        if y0 >= 0 > y1:
            return math.exp(x0 + (x1 - x0) * y0 / (y0 - y1))
    return None


def lines_of(rows):
    """[(kind of rows, (link, rate), {line: its rows by bandwidth})], and how many lines had a single bandwidth."""
    found, single = [], 0
    for kind, of in series.kinds(rows).items():
        link = bandwidth_of(of)
        rate = link[1] if link else next(iter(LINKS.values()))
        lines = series.split([row for row in of if not link or rate(row)], IGNORED)
        drawn = {name: sorted(group, key=rate) for name, group in lines.items()
                 if link and len({rate(row) for row in group}) > 1}
        single += len(lines) - len(drawn)
        if drawn:  # named anew, by what differs between those that are drawn
            rows_drawn = [row for group in drawn.values() for row in group]
            found.append((kind, link, {name: sorted(group, key=rate) for name, group in
                                       series.split(rows_drawn, IGNORED).items()}))
    return found, single


def exposure(rows):
    """A line of panels for each kind of rows. Left: exposed communication as share of the step; right: share of
    communication behind computation."""
    ok, notes = look.measured(rows)
    ok = [row for row in ok if rows_of.value(row, "exposed_fraction") is not None]
    if not ok:
        raise look.NoData("no row of a step with communication; make some with meshbench run ... --out FILE")
    if not bandwidth_of(ok):
        raise look.NoData(f"rows do not differ in the bandwidth of a link; {WANTED}")
    found, single = lines_of(ok)
    if not found:
        raise look.NoData(f"no two rows differ in the bandwidth of a link alone; {WANTED} and nothing else")
    if single:
        notes = [*notes, f"Left out, of one bandwidth: {single} line{'s'[:single != 1]}."]
    shown = dict(list(enumerate(found))[:series.MOST_KINDS])
    if len(found) > len(shown):
        notes = [*notes, f"The first {len(shown)} of {len(found)} kinds of rows; choose others with --where."]
    drawn = []
    heights = [max(3.9, 1.4 + series.legend_height(list(lines)[:series.MOST])) for _, _, lines in shown.values()]
    figure = look.new_figure(14, 1.5 + sum(heights), "Communication over the bandwidth of a link")
    grid = figure.subplots(len(shown), 2, squeeze=False, height_ratios=heights)
    for panels, (kind, link, lines) in zip(grid, shown.values()):
        lines, rest = series.first(lines, f"lines of {kind}")
        drawn += [row for group in lines.values() for row in group]
        notes = [*notes, *rest]
        _kind(*panels, kind, *link, lines)
    look.annotate(figure, [
        f"Median of {look.samples_text(drawn, 'step_s')} steps, mean over ranks; whiskers: least and most of a step. "
        "Hidden: behind computation.",
        "Dotted: the bandwidth at which all communication, hidden or not, takes as long as computation; to its left no "
        "overlap can hide it all.", *notes], drawn)
    return figure


def _kind(left, right, kind, link, rate, lines):
    """The two panels of one kind of rows."""
    rows = [row for group in lines.values() for row in group]
    crossings = []
    for at, (name, group) in enumerate(lines.items()):
        for ax, metric in ((left, "exposed_fraction"), (right, "overlap_ratio")):
            points = [(rate(row), share) for row in group if (share := rows_of.metric(row, metric))]
            if points:
                y = [100 * share["value"] for _, share in points]
                ends = [[100 * (s["value"] - s["min"]) for _, s in points], [100 * (s["max"] - s["value"]) for _, s in points]]
                ax.errorbar([x for x, _ in points], y, yerr=ends, markersize=5, linewidth=1.4, capsize=3, **series.style(at))
        right.plot([], [], linewidth=1.4, markersize=5, label=series.legend_name(name or group[0]["mesh"]["text"]),
                   **series.style(at))
        crossing = crossover([(rate(row), rows_of.value(row, "comm_s") or 0, rows_of.value(row, "compute_s") or 0)
                              for row in group])
        if crossing:
            crossings.append(f"{crossing:.3g}")
    for at, crossing in enumerate(dict.fromkeys(crossings)):
        left.axvline(float(crossing), color=look.BLACK, linestyle=":", linewidth=1.4)
        left.annotate(crossing, (float(crossing), 1), xycoords=("data", "axes fraction"), xytext=(3, -10 - 10 * (at % 5)),
                      textcoords="offset points", fontsize=8)
    if crossings:
        right.plot([], [], ":", color=look.BLACK, linewidth=1.4, label="communication =\ncomputation")
    for ax, label in ((left, "exposed communication (% of the step)"), (right, "hidden (% of communication)")):
        series.log2_ticks(ax, [rate(row) for row in rows])
        ax.set_xlabel(f"bandwidth {link}, one way (GB/s)")
        ax.set_ylabel(label)
        ax.set_ylim(0, 100)
        series.grid_lines(ax)
    said = look.common(rows, (*IGNORED, "model", "mode", "machine"))
    left.set_title("\n".join([kind, *look.wrapped(said, 72)]), loc="left")
    right.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
