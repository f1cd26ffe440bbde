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


def bandwidth_of(rows):
    """(name, function of a row) of the link whose bandwidth the rows vary."""
    for name, rate in LINKS.items():
        if len({rate(row) for row in rows if rate(row)}) > 1:
            return name, rate
    raise look.NoData("rows do not differ in the bandwidth of a link; vary machine.nic_gb_per_s=, "
                      "machine.link_gb_per_s= or link=")


def crossover(points):
    """Bandwidth at which communication takes as long as computation, from [(bandwidth, comm_s, compute_s)] by bandwidth;
    None if it does nowhere. Between points, the ratio is taken to follow a power of the bandwidth."""
    logs = [(math.log(rate), math.log(comm / compute)) for rate, comm, compute in points if comm > 0 and compute > 0]
    for (x0, y0), (x1, y1) in zip(logs, logs[1:]):
        if y0 >= 0 > y1:
            return math.exp(x0 + (x1 - x0) * y0 / (y0 - y1))
    return None


def exposure(rows):
    """Left: exposed communication as share of the step; right: share of communication behind computation."""
    ok, notes = look.measured(rows)
    ok = [row for row in ok if rows_of.value(row, "exposed_fraction") is not None]
    if not ok:
        raise look.NoData("no row of a step with communication; make some with meshbench run ... --out FILE")
    link, rate = bandwidth_of(ok)
    lines = series.split([row for row in ok if rate(row)], IGNORED)
    single = [name for name, group in lines.items() if len({rate(row) for row in group}) < 2]
    lines = {name: group for name, group in lines.items() if name not in single}
    if not lines:
        raise look.NoData("no two rows differ in the bandwidth of a link alone; vary machine.nic_gb_per_s=, "
                          "machine.link_gb_per_s= or link= and nothing else")
    if single:
        notes = [*notes, f"Left out, of one bandwidth: {len(single)} line{'s'[:len(single) != 1]}."]
    ok = [row for group in lines.values() for row in group]
    figure = look.new_figure(13.5, 5.4, f"Communication over the bandwidth {link}")
    left, right = figure.subplots(1, 2)
    groups, rest = series.first(lines)
    handles, crossings = {}, []
    for at, (name, group) in enumerate(groups.items()):
        group.sort(key=rate)
        for ax, metric in ((left, "exposed_fraction"), (right, "overlap_ratio")):
            points = [(rate(row), found) for row in group if (found := rows_of.metric(row, metric))]
            if not points:
                continue
            y = [100 * found["value"] for _, found in points]
            ends = [[100 * (f["value"] - f["min"]) for _, f in points], [100 * (f["max"] - f["value"]) for _, f in points]]
            handles[name or group[0]["mesh"]["text"]] = ax.errorbar(
                [x for x, _ in points], y, yerr=ends, markersize=5, linewidth=1.4, capsize=3, **series.style(at))
        crossing = crossover([(rate(row), rows_of.value(row, "comm_s") or 0, rows_of.value(row, "compute_s") or 0)
                              for row in group])
        if crossing:
            crossings.append(f"{crossing:.3g}")
    for at, crossing in enumerate(dict.fromkeys(crossings)):
        handles["communication = computation"] = left.axvline(float(crossing), color=look.BLACK, linestyle=":", linewidth=1.4)
        left.annotate(crossing, (float(crossing), 1), xycoords=("data", "axes fraction"), xytext=(3, -10 - 10 * at),
                      textcoords="offset points", fontsize=8)
    for ax, label in ((left, "exposed communication (% of the step)"), (right, "hidden (% of communication)")):
        series.log2_ticks(ax, [rate(row) for row in ok])
        ax.set_xlabel(f"bandwidth {link}, one way (GB/s)")
        ax.set_ylabel(label)
        ax.set_ylim(0, 100)
        series.grid_lines(ax)
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=8)
    look.annotate(figure, [
        f"Median of {look.samples_text(ok, 'step_s')} steps, mean over ranks; whiskers: least and most of a step. "
        "Hidden: behind computation.",
        "Dotted: the bandwidth at which all communication, hidden or not, takes as long as computation; to its left no "
        "overlap can hide it all.", *notes, *rest], ok)
    return figure
