"""What a report is made of: rows, and the traces that they name or that are given beside them."""

from mb import rows as rows_of
from mb.figures import gantt


def load(paths, verdict=None):
    """(rows, [(trace, row or None)], lines on traces that are not there); a verdict among the files is no row."""
    rows, traces, notes = [], [], []
    for path in (f for p in paths for f in rows_of.files_of(p)):
        if verdict is not None and path.resolve() == verdict.resolve():
            continue
        if path.suffix == ".json" and (trace := gantt.trace_in(path)) is not None:
            traces.append((trace, None))
            continue
        for row in rows_of.load([path]):
            rows.append(row)
            if "trace" in row["artifacts"]:
                try:
                    traces.append((gantt.trace_of(row, path), row))
                except rows_of.RowError:
                    notes.append(f"{path.name} names a trace that is not there: {row['artifacts']['trace']}")
    return rows, _once(traces), notes


def _once(traces):
    """Each trace once, with its row where one names it, in the order in which they come."""
    of_rows = [trace["traceEvents"] for trace, row in traces if row]
    return [(trace, row) for trace, row in traces if row or trace["traceEvents"] not in of_rows]
