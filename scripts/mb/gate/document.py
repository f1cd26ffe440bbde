"""The result of a gate as one plain value, which every output shows; verdict.schema.json describes it."""

import fnmatch
import itertools
import json
import pathlib
import shlex

from mb.gate import evidence, registry, verdict
from mb.gate.evidence import RAN
from mb.exit_codes import ExitCode

SCHEMA = pathlib.Path(__file__).with_name("verdict.schema.json")
WORDS = {ExitCode.OK: "PASSED", ExitCode.REGRESSION: "FAILED", ExitCode.NO_VERDICT: "NOT JUDGED",
         ExitCode.NO_DATA: "NOTHING TO JUDGE", ExitCode.INCONCLUSIVE: "INCONCLUSIVE"}


def _side(source, rows):
    first = next((row for row in rows if row["status"] in RAN), None)
    return {"source": str(source), "rows": len(rows), "build": first and first["build"],
            "fingerprint": first and first["fingerprint"]["id"]}


def _reproduce(finding, builds):
    """The command that measures a finding's case again."""
    verb = {"coll": "coll ", "place": "place "}.get(finding["suite"], "")
    if builds:
        return shlex.join(["mb", "gate", "--builds", *map(str, builds), verb + finding["case"]])
    return f"meshbench {verb or 'run '}{finding['case']}"


def _trade_offs(findings):
    """Times that fell where memory grew in the same case, and the reverse."""
    found = []
    better, worse = ([f for f in findings if f["verdict"] in verdicts and f["unit"] in ("s", "B")]
                     for verdicts in (("IMPROVED", "CHANGED"), ("REGRESSED", "WAIVED")))
    for a, b in itertools.product(better, worse):
        if a["unit"] != b["unit"] and all(a[name] == b[name] for name in ("suite", "case", "detail")):
            found.append({"case": a["case"], "detail": a["detail"], "better": a["metric"], "worse": b["metric"]})
    return found


def _warnings(rows, findings, waivers):
    unpaired = sum(map(verdict.is_unpaired, findings))
    said = f"{unpaired} times of stored rows are not judged; mb gate --builds launches two builds in turns"
    found = [said] if unpaired else []
    found += [f"{d['fact']} differs: {d['base']}, candidate {d['candidate']}"
             for d in evidence.differences(rows[0], rows[1], "soft") if d["base"] != d["candidate"]]
    names = sorted({name for side in rows for row in side if row["status"] in RAN for name in row["metrics"]
                    if registry.find(name, False) is None})
    if names:
        found.append(f"not in scripts/mb/gate/metrics.json, so not judged: {', '.join(names)}")
    for waiver in waivers:
        states = {"unused": "meets no regression", "expired": f"ended on {waiver['expires']}", "used": None}
        said = states[waiver["state"]]
        found += [f"the waiver for {waiver['metric']} of {waiver['case']} {said}"] if said else []
    return found


def _unused_rules(rows):
    """Patterns of the registry that no metric of the rows meets."""
    names = {name for side in rows for row in side if row["status"] in RAN for name in evidence.values_of(row)}
    return [entry["name"] for entry in registry.entries()
            if entry["class"] != "info" and not any(fnmatch.fnmatchcase(name, entry["name"]) for name in names)]


def make(sources, rows, findings, waivers=(), builds=None, strict=False, warnings=(), **more):
    """The document of findings on (base rows, candidate rows) from two sources."""
    findings = verdict.ordered(findings)
    code = verdict.exit_code(findings, strict)
    counts = {name: n for name in verdict.ORDER if (n := sum(f["verdict"] == name for f in findings))}
    return {"schema": "meshbench-gate/1", "exit": int(code), "verdict": WORDS[code], "counts": counts,
            "base": _side(sources[0], rows[0]), "candidate": _side(sources[1], rows[1]),
            "campaign": None, "seed": None, "test": None, "self_test": None, **more,
            "findings": [{**finding, "reproduce": _reproduce(finding, builds)} for finding in findings],
            "trade_offs": _trade_offs(findings), "waivers": list(waivers),
            "warnings": [*warnings, *_warnings(rows, findings, waivers)], "unused_rules": _unused_rules(rows)}


def to_json(document):
    return json.dumps(document, allow_nan=False, indent=1, ensure_ascii=False)
