"""Rounds: one case, measured again by the same build on the same machine, is one row to a figure."""

import statistics
from collections import defaultdict


def as_one(rows):
    """Steps that differ in nothing but when they ran as one row each, where the first of them stood.

    A metric is then the median of the rounds' medians over the samples of all of them, a part of the breakdown its mean.
    """
    found = defaultdict(list)
    for row in rows:
        found[_case(row)].append(row)
    return [rounds[0] if len(rounds) == 1 else _merged(rounds) for rounds in found.values()]


def count(row):
    """Launches that a row stands for."""
    return row.get("rounds", 1)


def note(rows):
    """A line of a caption on rows that stand for several launches; none where no row does."""
    several = sorted({count(row) for row in rows} - {1})
    if not several:
        return []
    many = f"{several[0]}" if len(several) == 1 else f"{several[0]} to {several[-1]}"
    return [f"Cases launched {many} times are drawn once: the median of their medians, whiskers over the steps of all launches."]


def _case(row):
    if row["status"] != "ok" or row["suite"] != "step":
        return id(row)
    params = tuple(sorted((key, str(value)) for key, value in row["params"].items()))
    carried = row.get("mpi", {}).get("library")
    return row["fingerprint"]["id"], row["build"]["git"], row["build"]["dirty"], carried, str(row.get("machine")), params


def _merged(rounds):
    names = dict.fromkeys(name for row in rounds for name in row["metrics"])
    whole = {**rounds[0], "rounds": len(rounds),
             "metrics": {name: _metric([row["metrics"][name] for row in rounds if name in row["metrics"]]) for name in names}}
    if all("breakdown" in row for row in rounds):
        whole["breakdown"] = _breakdown([row["breakdown"] for row in rounds])
    return whole


def _metric(found):
    known = [metric for metric in found if metric["value"] is not None]
    if not known:
        return found[0]
    samples = [sample for metric in known for sample in metric.get("samples") or [metric["value"]]]
    return {"value": statistics.median(metric["value"] for metric in known), "unit": known[0]["unit"],
            "n": sum(metric["n"] for metric in known), "samples": samples}


def _breakdown(tables):
    """Lengths add up over the rounds, as they do over steps."""
    return {**tables[0], "steps": sum(table["steps"] for table in tables),
            "window_ns": sum(table["window_ns"] for table in tables),
            "parts": _parts([table["parts"] for table in tables], ("name", "axis")),
            "overlapped": _parts([table["overlapped"] for table in tables], ("axis",))}


def _parts(tables, key):
    found = defaultdict(list)
    for part in (part for table in tables for part in table):
        found[tuple(part[name] for name in key)].append(part)
    return [{**parts[0], "total_ns": sum(part["total_ns"] for part in parts),
             "mean_s": sum(part["mean_s"] for part in parts) / len(tables)} for parts in found.values()]
