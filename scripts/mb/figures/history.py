"""A metric over campaigns, with change points; different machines are never joined."""

from collections import defaultdict
import math

from mb import rows as rows_of
from mb.figures import look, series

MOST_PANELS = 8


def metric_of(row):
    return "completion_s" if row["suite"] == "coll" else "step_s"


def histories(rows):
    """{case: rows that have its time, oldest first}, of cases with at least two."""
    cases = defaultdict(list)
    for row in rows:
        if row["status"] == "ok" and rows_of.value(row, metric_of(row)):
            cases[row["case"]].append(row)
    return {case: sorted(group, key=lambda row: row["time_utc"]) for case, group in cases.items() if len(group) > 1}


def machines(rows):
    """[(first, last + 1, fingerprint id)]: stretches of one machine in rows sorted by time."""
    found = []
    for at, row in enumerate(rows):
        name = row["fingerprint"]["id"]
        if found and found[-1][2] == name:
            found[-1] = (found[-1][0], at + 1, name)
        else:
            found.append((at, at + 1, name))
    return found


def changes(rows):
    """Places at which the level of a time changes, judged on each machine by itself."""
    from mb.gate.statistics import change_points

    found = []
    for name in dict.fromkeys(row["fingerprint"]["id"] for row in rows):
        places = [at for at, row in enumerate(rows) if row["fingerprint"]["id"] == name]
        values = [math.log(rows_of.value(rows[at], metric_of(rows[at]))) for at in places]
        found += [places[k] for k in change_points(values)]
    return sorted(found)


def history(rows):
    """A panel for each case, campaigns in the order of their time."""
    _, notes = look.launches(rows)
    found = histories(rows)
    if not found:
        raise look.NoData("no case was measured twice; give the rows of several campaigns")
    if len(found) > MOST_PANELS:
        notes = [*notes, f"The first {MOST_PANELS} of {len(found)} cases; choose others with --where."]
        found = dict(list(found.items())[:MOST_PANELS])
    figure = look.new_figure(12.5, 1.5 + 2.6 * len(found), "Times over campaigns")
    handles = {}
    for ax, (case, group) in zip(figure.subplots(len(found), 1, squeeze=False)[:, 0], found.items()):
        _panel(ax, case, group, handles)
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False)
    drawn = [row for group in found.values() for row in group]
    look.annotate(figure, [
        "Points: median of a launch, whiskers its fastest and slowest step; "
        f"{sum(map(len, found.values()))} launches. A line joins launches of one machine only; dotted: the machine changes.",
        "Change points: splits that shuffles of the series reach in fewer than one of a thousand; with the commit that first "
        "had the new level.", *notes], drawn)
    return figure


def _panel(ax, case, group, handles):
    times = [rows_of.metric(row, metric_of(row)) for row in group]
    factor, unit = look.time_unit(max(time["value"] for time in times))
    ids = list(dict.fromkeys(row["fingerprint"]["id"] for row in group))
    for first, last, name in machines(group):
        x, part = range(first, last), times[first:last]
        y = [factor * time["value"] for time in part]
        ends = [[factor * (t["value"] - t["min"]) for t in part], [factor * (t["max"] - t["value"]) for t in part]]
        handles[f"machine {name[:8]}"] = ax.errorbar(x, y, yerr=ends, markersize=4, linewidth=1.4, elinewidth=0.5,
                                                     **series.style(ids.index(name)))
        if first:
            handles["another machine"] = ax.axvline(first - 0.5, color=look.BLACK, linestyle=":", linewidth=1.4)
    for at in changes(group):
        handles["change point"] = ax.axvline(at - 0.5, color=look.VERMILION, linewidth=2, alpha=0.8)
        ax.annotate(look.commit(group[at]["build"]), (at - 0.5, 1), xycoords=("data", "axes fraction"), xytext=(3, -9),
                    textcoords="offset points", fontsize=8, color=look.VERMILION)
    ticks = range(0, len(group), -(-len(group) // 8))
    one_day = len({row["time_utc"][:10] for row in group}) == 1
    ax.set_xticks(list(ticks), [group[at]["time_utc"][slice(11, 16) if one_day else slice(10)] for at in ticks], fontsize=8)
    ax.set_xlim(-0.7, len(group) - 0.3)
    ax.set_ylim(0, 1.1 * factor * max(time["max"] for time in times))
    ax.set_title(case if len(case) < 130 else case[:127] + "...", loc="left", fontsize=9)
    if one_day:
        ax.set_xlabel(f"time of {group[0]['time_utc'][:10]} (UTC)", fontsize=8)
    ax.set_ylabel(f"{'completion' if metric_of(group[0]) == 'completion_s' else 'step'} ({unit})")
    series.grid_lines(ax, "y")
