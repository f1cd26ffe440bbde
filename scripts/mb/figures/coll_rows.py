"""What the figures of collectives share: their rows, what tells series apart, names of sizes, grids of panels."""

from collections import defaultdict

from mb.figures import look, series

# Lines of a panel and panels of a page that can still be told apart.
MOST_LINES, MOST_PANELS = 12, 12
# The first three differ in grey too.
COLOURS = (look.BLUE, look.ORANGE, look.BLACK, look.GREEN, look.PURPLE, look.VERMILION, look.SKY)
MARKERS = "osD^vPX<>*hd"
DASHES = ("-", (0, (1, 1)))
SIZE = 9  # of the legend, points

CEILING = "its ceiling"
MAKE = "make some with meshbench coll ... -o FILE.jsonl"


def colls(rows):
    """Rows of collectives that were measured, and lines on those left out. Throws NoData if there is none."""
    ok, notes = look.measured(rows)
    found = [row for row in ok if row["suite"] == "coll"]
    if not found:
        raise look.NoData(f"no row of a collective; {MAKE}")
    if len(found) < len(ok):
        notes = [*notes, f"Left out, of other suites: {len(ok) - len(found)}."]
    return found, notes


def carrier(row):
    """What moves the bytes: "threads", "Open MPI", "virtual time, h100x8"."""
    if row["virtual_time"]:
        return f"virtual time, {row['params'].get('machine', 'machine')}"
    return row["mpi"]["library"] if "mpi" in row else row["mode"]


def _group(row):
    ranks = [str(rank) for rank in row["coll"]["ranks"]]
    shown = " ".join(ranks) if len(ranks) <= 4 else f"{' '.join(ranks[:3])} ... {ranks[-1]}"
    return f"group {row['coll']['group']} (ranks {shown})"


def _beside(row):
    beside = row["coll"]["beside"]
    if beside["operation"] is None:
        return "alone"
    return f"beside {beside['operation']} over {beside['axis']} of {size_text(beside['bytes'])}"


# What may tell one series of rows from another, and how it is told.
FIELDS = {
    "operation": lambda row: row["coll"]["operation"],
    "carrier": carrier,
    "algorithm": lambda row: row["coll"]["algorithm"],
    "mesh": lambda row: f"mesh {row['mesh']['text']}",
    "axis": lambda row: f"over {row['coll']['axis']}",
    "group": _group,
    "place": lambda row: "in place" if row["coll"]["in_place"] else "out of place",
    "dtype": lambda row: str(row["coll"]["dtype"]),
    "redop": lambda row: str(row["coll"]["redop"]),
    "call": lambda row: f"{row['coll']['call']} calls",
    "cache": lambda row: f"{row['coll']['cache']} caches",
    "pages": lambda row: f"{row['coll']['pages']} pages",
    "link": lambda row: f"link {row['params'].get('link', 'none')}",
    "beside": _beside,
    "overlap": lambda row: f"overlap {row['coll']['overlap']['compute']}",
    "injected": lambda row: f"delayed by {row['coll'].get('injected_delay_s') or 0:g} s",
}


def differing(rows, without=("operation",)):
    """Names of the fields in which rows of one operation differ, in the order of FIELDS."""
    by_operation = defaultdict(list)
    for row in rows:
        by_operation[row["coll"]["operation"]].append(row)
    return [name for name, text in FIELDS.items() if name not in without and
            any(len({text(row) for row in group}) > 1 for group in by_operation.values())]


def name_of(row, fields):
    return ", ".join(FIELDS[field](row) for field in fields)


def common(rows):
    """What all rows share, for a title: "mesh dp2, threads, own algorithm"."""
    shared = [name for name in ("carrier", "mesh", "axis") if len({FIELDS[name](row) for row in rows}) == 1]
    return name_of(rows[0], shared)


def size_text(size):
    """1024 as 1K: binary, as the size= of a case, to four digits."""
    if size is None:
        return "no size"
    for scale, unit in ((2**40, "T"), (2**30, "G"), (2**20, "M"), (2**10, "K")):
        if size >= 0.9999 * scale:
            return f"{size / scale:.4g}{unit}"
    return str(size)


def by(rows, key):
    """Rows by key(row), keys in the order in which they come."""
    groups = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(groups)


def first(groups, most, what):
    """As many of the groups as can be shown, and a line on the rest."""
    if len(groups) <= most:
        return groups, []
    return dict(list(groups.items())[:most]), [
        f"The first {most} of {len(groups)} {what}; choose others with --where."]


def once(rows, key, what):
    """{key(row): row}. Throws NoData where two rows have the same key, which `what` tells for a row."""
    found = {}
    for row in rows:
        if key(row) in found:
            raise look.NoData(f"{what(row)} was measured more than once; give the rows of one run, or choose some "
                              "with --where")
        found[key(row)] = row
    return found


class Lines:
    """The look of each series, the same in all panels, and its entry in the legend."""

    def __init__(self):
        self.handles = {}
        self._at = {}

    def legend(self, figure):
        """All entries beside the panels, ceilings last."""
        names = sorted(self.handles, key=lambda name: name == CEILING)
        figure.set_figheight(max(figure.get_figheight(), 0.5 + series.legend_height(names, SIZE)))
        figure.legend([self.handles[name] for name in names], map(series.legend_name, names), loc="outside right upper",
                      frameon=False, fontsize=SIZE)

    def look_of(self, name):
        at = self._at.setdefault(name, len(self._at))
        return {"color": COLOURS[at % len(COLOURS)], "marker": MARKERS[at % len(MARKERS)],
                "linestyle": DASHES[at // len(COLOURS) % len(DASHES)]}


def log_ticks(axis, low, high):
    """Plain numbers on a logarithmic axis: 1, 10, 100; over less than two decades 2 and 5 as well."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def grid(title, count, across, width, height):
    """A figure with `count` panels, and the panels."""
    across = min(across, count)
    down = -(-count // across)
    figure = look.new_figure(max(width * across + 3.2, 9), height * down + 1.4, title)
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for panel in panels[count:]:
        panel.remove()
    return figure, panels[:count]
