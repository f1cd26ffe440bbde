"""mb gate history: the newest campaign of nightly runs beside earlier ones, where no base build is at hand.

A campaign's value is the median over its launches. Ten earlier campaigns of the same case on the same machine are the
least. An alert asks for a comparison of two builds in one job; it fails nothing unless --history-blocking is given.
Change points of the whole series are told, and never gate.
"""

import math
import pathlib

import numpy as np

from mb import rows as rows_of
from mb.errors import UserError
from mb.exit_codes import ExitCode
from mb.gate import evidence, outputs, registry, statistics
from mb.gate.evidence import RAN

LEVEL = 0.001
ORDER = ["ALERT", "MISSING", "INCONCLUSIVE", "PASS"]


def campaigns(paths):
    """[(source, rows)] by time: each path is a campaign, and of a single folder each entry is."""
    paths = [pathlib.Path(path) for path in paths]
    if len(paths) == 1 and paths[0].is_dir() and not rows_of.is_sweep(paths[0]):
        paths = sorted(entry for entry in paths[0].iterdir() if not entry.name.startswith("."))
    found = [(str(path), [row for row in rows_of.load([path], foreign=True)
                          if row["role"] != "base" and row["status"] in RAN]) for path in paths]
    found = [(source, rows) for source, rows in found if rows]
    if not found:
        raise UserError(f"{', '.join(map(str, paths)) or 'the folder'}: no row of a launch that ran; "
                        "name a folder of rows for each campaign")
    return sorted(found, key=lambda campaign: (min(row["time_utc"] for row in campaign[1]), campaign[0]))


def series(found):
    """{(key, metric, fingerprint): [(source, time, value, git)]} of timed metrics, by time.

    Machines are never joined: another fingerprint is another series.
    """
    values = {}
    for source, rows in found:
        of_campaign = {}
        for row in rows:
            for name, metric in row["metrics"].items():
                entry = registry.find(name, bool(row.get("virtual_time")))
                timed = entry and entry["class"] == "timed"
                if timed and evidence.finite(metric["value"]) and metric["value"] > 0:
                    of_campaign.setdefault((evidence.key_of(row), name, row["fingerprint"]["id"]), []).append(row)
        for key, launches in of_campaign.items():
            middle = float(np.median([row["metrics"][key[1]]["value"] for row in launches]))
            first = min(row["time_utc"] for row in launches)
            values.setdefault(key, []).append((source, first, middle, launches[0]["build"]["git"]))
    return values


def judge(found):
    """A finding for each series, alerts first."""
    newest = found[-1][0]
    findings = []
    for (key, name, fingerprint), points in sorted(series(found).items()):
        sign = registry.DIRECTIONS[registry.find(name, False)["direction"]]
        logs = sign * np.log([value for _, _, value, _ in points])
        told = {"suite": key[0], "case": key[1], "detail": key[3], "metric": name, "fingerprint": fingerprint,
                "unit": registry.find(name, False)["unit"], "p": None, "worse": None, "reason": None,
                "points": [dict(zip(("source", "time_utc", "value", "git"), point)) for point in points],
                "change_points": statistics.change_points(logs)}
        if points[-1][0] != newest:
            told |= {"verdict": "MISSING", "reason": f"{newest} does not have it on this machine"}
        elif (p := statistics.history_p(logs[:-1], logs[-1])) is None:
            told |= {"verdict": "INCONCLUSIVE",
                     "reason": f"no history: {len(points) - 1} earlier campaigns, 10 are the least"}
        else:
            told |= {"verdict": "ALERT" if p <= LEVEL else "PASS", "p": p,
                     "worse": math.expm1(float(logs[-1] - logs[:-1].mean()))}
            if p <= LEVEL:
                verb = {"coll": "coll "}.get(key[0], "")
                told["reason"] = f"compare the builds in one job: mb gate --builds BASE CANDIDATE '{verb}{key[1]}'"
        findings.append(told)
    return sorted(findings, key=lambda f: (ORDER.index(f["verdict"]), f["case"], f["detail"], f["metric"]))


def exit_code(findings, blocking, strict=False):
    verdicts = {finding["verdict"] for finding in findings}
    if not findings:
        return ExitCode.NO_DATA
    if blocking and "ALERT" in verdicts:
        return ExitCode.REGRESSION
    return ExitCode.INCONCLUSIVE if strict and "INCONCLUSIVE" in verdicts else ExitCode.OK


def text(findings, code):
    """What is told on a terminal."""
    lines = []
    for f in findings:
        last, before = f["points"][-1], len(f["points"]) - 1
        change = f"{100 * f['worse']:+.3g} % worse than {before} before, p {f['p']:.2g}" if f["p"] is not None else ""
        told = (f["metric"], outputs.quantity(last["value"], f["unit"]), change, f"{f['case']} {f['detail']}".rstrip())
        lines.append("  ".join([f"{f['verdict']:<12}", *filter(None, told)]))
        lines += [f"    {f['reason']}"] if f["reason"] else []
        for point in (f["points"][at] for at in f["change_points"]):
            commit = f", commit {point['git'][:12]}" if point["git"] else ""
            lines.append(f"    its level changed at {point['source']}, {point['time_utc']}{commit}")
    counts = {v: sum(f["verdict"] == v for f in findings) for v in ORDER}
    said = ", ".join(f"{n} {name}" for name, n in counts.items() if n) or "no timed metric"
    return "\n".join([*lines, f"history: {said}; exit {int(code)}"])
