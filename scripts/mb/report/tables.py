"""Rows and findings as tables of a page: cells with a text and, for sorting, a number."""

import collections
import dataclasses
import shlex

from mb import color
from mb import rows as rows_of
from mb.figures import coll_rows

# Status -> what to call it. The first three are normal ends of a sweep's cases.
STATUSES = {"ok": "ran", "oom": "out of memory", "oom_predicted": "would not fit", "invalid": "breaks a rule",
            "unsupported": "not in this build", "timeout": "timed out", "crash": "crashed", "cancelled": "cancelled"}
NAMES = ("findings", "outcomes", "cases", "collectives")
# Findings of a page; beyond, those that pass are counted only.
MOST_FINDINGS = 2000


@dataclasses.dataclass
class Cell:
    text: str
    number: float | None = None  # to sort by, where the text is none
    kind: str = ""  # "code", or good, fair, bad
    title: str = ""


@dataclasses.dataclass
class Table:
    name: str  # of its place in the page and of the files it is saved to
    caption: str
    columns: list  # (title, whether it holds numbers)
    lines: list


def command(row):
    """The command that makes a row anew."""
    verb = row["suite"] if row["suite"] in ("coll", "place") else "run"
    try:
        told = shlex.split(row["case"])
    except ValueError:  # a quote that nothing closes
        told = row["case"].split()
    words = (word if not any(c in word for c in " ;<>&|$`\"'\\*?!(){}") else shlex.quote(word) for word in told)
    return " ".join(["meshbench", verb, *words])


def number(value, factor=1):
    """At least five digits that count, and no more than are known of an integer."""
    if value is None:
        return Cell("–")
    scaled = value * factor
    if isinstance(scaled, int) or abs(scaled) >= 1e4:
        return Cell(f"{scaled:,.0f}")
    return Cell("0" if scaled == 0 else f"{scaled:#.5g}" if abs(scaled) >= 1e-4 else f"{scaled:.4e}")


def how(row):
    if "mode" not in row:
        return "not run"
    return coll_rows.carrier(row) if row.get("virtual_time") or "mpi" in row else row["mode"]


def status(row):
    name, kind = _told(row["status"])
    return Cell(name, kind=kind, title=row["status_detail"].get("message", ""))


def cases(rows):
    """A line a training step."""
    columns = [("mesh", False), ("outcome", False), ("run on", False), ("step, ms", True), ("fastest", True), ("slowest", True),
               ("steps", True), ("tokens/s", True), ("MFU, %", True), ("bubble, %", True), ("exposed, %", True),
               ("peak, MiB", True), ("equals one rank", False), ("command", False)]
    return Table("cases", "Training steps: medians over steps", columns, [_case(row) for row in rows])


def _case(row):
    step = rows_of.metric(row, "step_s") or {"value": None, "min": None, "max": None, "n": None}
    verified = row.get("verified", {}).get("ok")
    held = Cell("–") if verified is None or row.get("virtual_time") else Cell("yes") if verified else Cell("no", kind="bad")
    bubble = rows_of.value(row, "bubble_fraction") if rows_of.stages(row) > 1 else None
    return [Cell(str(row["params"].get("mesh", "–"))), status(row), Cell(how(row)), number(step["value"], 1e3),
            number(step["min"], 1e3), number(step["max"], 1e3), number(step["n"], 1),
            number(rows_of.value(row, "tokens_per_s"), 1), number(rows_of.value(row, "mfu"), 100),
            number(bubble, 100), number(rows_of.value(row, "exposed_fraction"), 100),
            number(rows_of.value(row, "peak_bytes"), 2**-20), held, Cell(command(row), kind="code")]


def colls(rows):
    """A line a collective."""
    columns = [("operation", False), ("outcome", False), ("run on", False), ("axis", False), ("ranks", True), ("size", True),
               ("p50, us", True), ("p99, us", True), ("busbw, GB/s", True), ("of its ceiling, %", True), ("wrong", True),
               ("verdict", False), ("command", False)]
    lines = []
    for row in rows:
        coll = row["coll"]
        fault = coll["verdict"]["fault"].replace("_", " ")
        lines.append([
            Cell(coll["operation"] + (", in place" if coll["in_place"] else "")), status(row), Cell(how(row)), Cell(coll["axis"]),
            number(coll["members"], 1), Cell(coll_rows.size_text(coll["bytes"]), coll["bytes"]),
            number(coll["completion"]["p50_s"], 1e6), number(coll["completion"]["p99_s"], 1e6),
            number(rows_of.value(row, "busbw_bytes_per_s"), 1e-9), number(coll["expected"]["fraction"], 100),
            number(coll["check"]["wrong"], 1), Cell(fault, kind="" if fault == "none" else "fair",
                                                       title=coll["verdict"]["text"]),
            Cell(command(row), kind="code")])
    return Table("collectives", "Collectives: completion from the last start to the last end", columns, lines)


def outcomes(rows):
    """A line a row that did not run, with the reason."""
    columns = [("outcome", False), ("mesh", False), ("why", False), ("needs, GiB", True), ("has, GiB", True), ("command", False)]
    lines = [[status(row), Cell(str(row["params"].get("mesh", "–"))), Cell(row["status_detail"].get("message", "–")),
              number(row["status_detail"].get("needed_bytes"), 2**-30), number(row["status_detail"].get("capacity_bytes"), 2**-30),
              Cell(command(row), kind="code")] for row in rows if row["status"] != "ok"]
    return Table("outcomes", "Rows without measurements", columns, lines)


def change(finding):
    """How much worse a finding is, in words: "+8.00 %"; "" where nothing is known."""
    worse = finding.get("worse")
    if worse is None:
        return ""
    if worse == 0:
        return "0"
    unit = finding.get("unit") or ""
    return f"{100 * worse:+.3g} %" if finding.get("scale") == "ratio" else f"{worse:+.6g} {unit if unit != '1' else ''}".strip()


def findings(document):
    """A line a finding of the gate, worst first, and how many that pass were left out."""
    columns = [("verdict", False), ("metric", False), ("worse by", True), ("95 % interval", False), ("base", True),
               ("candidate", True), ("unit", False), ("n", True), ("detectable, %", True), ("reason", False), ("command", False)]
    found = document["findings"]
    told = [f for f in found if f["verdict"] not in color.PASSES]
    room = max(0, MOST_FINDINGS - len(told))
    passing = [f for f in found if f["verdict"] in color.PASSES]
    lines = []
    for finding in told + passing[:room]:
        ends = [finding.get("low"), finding.get("high")]
        interval = " to ".join(change({**finding, "worse": end}) for end in ends) if None not in ends else "–"
        detectable = finding.get("detectable")
        lines.append([
            Cell(finding["verdict"], kind=color.of_verdict(finding["verdict"])), Cell(finding["metric"]),
            Cell(change(finding) or "–", finding.get("worse")), Cell(interval), _value(finding.get("base")),
            _value(finding.get("candidate")), Cell(finding.get("unit") or "–"), number(finding.get("n"), 1),
            number(detectable, 100), Cell(finding.get("reason") or "–"),
            Cell(finding.get("reproduce") or f"meshbench run {finding['case']}", kind="code")])
    left = len(passing) - min(room, len(passing))
    caption = "Findings of the gate, worst first; + is worse" + (f"; {left} more pass" if left else "")
    return Table("findings", caption, columns, lines)


def _value(value):
    return Cell("–") if value is None else Cell(f"{value:.6g}")


def counts(rows):
    """[(what to call it, kind of its colour, how many)] of the outcomes, ok first."""
    found = collections.Counter(row["status"] for row in rows)
    order = [*STATUSES, *sorted(set(found) - set(STATUSES))]
    return [(*_told(name), found[name]) for name in order if found[name]]


def _told(name):
    return STATUSES.get(name, name), color.of_status(name)
