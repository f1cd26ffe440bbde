"""Verdicts on the exact and counted metrics of stored rows, one for each case and metric, worst first.

Times of stored rows are not judged: launches that were not interleaved cannot tell a build from an hour.
"""

import math

from mb.gate import registry

EXACT = 1e-9  # relative; what rounding may do to a number that a machine does not change
FAILS = ["REGRESSED"]
UNJUDGED = ["MISSING", "ERRORED", "NONDETERMINISTIC", "INCOMPARABLE", "INCONSISTENT"]
ORDER = [*FAILS, *UNJUDGED, "CHANGED", "INCONCLUSIVE", "NEW", "FIXED", "BOTH_ERRORED", "PASS"]
RAN = ["ok", "oom_predicted"]


def values_of(row):
    """{metric: (value, unit)} of a row, with calls and bytes of its planned traffic by axis and site."""
    values = {name: (metric["value"], metric["unit"]) for name, metric in row["metrics"].items()}
    for part in row.get("traffic", []):
        name = f"traffic_{part['rank']}_{part['axis']}_{part['site']}_{part['kind']}"
        for key, unit in (("bytes", "B"), ("calls", "1")):
            values[f"{name}_{key}"] = (part["plan"][key] if part["plan"] else None, unit)
    return values


def _by_case(rows):
    cases = {}
    for row in rows:
        cases.setdefault((row["suite"], row["case"], row["case_version"]), []).append(row)
    return cases


def _finite(value):
    return isinstance(value, (int, float)) and math.isfinite(value)


def _judge_values(entry, base, candidate):
    """(verdict, how much worse) of the launches' values of one metric."""
    if entry["class"] == "exact":
        if len(set(base)) > 1 or len(set(candidate)) > 1:
            return "NONDETERMINISTIC", None
        tolerance = EXACT * (abs(base[0]) if entry["scale"] == "difference" else 1)
    else:
        tolerance = entry["floor"]
    middle = [sorted(values)[len(values) // 2] for values in (base, candidate)]
    worse = registry.worse(entry, *middle)
    if worse > tolerance:
        return "REGRESSED", worse
    if worse < -tolerance:
        return ("CHANGED" if entry["class"] == "exact" else "PASS"), worse
    return "PASS", worse


def _judge_metric(name, virtual, base, candidate):
    """A finding on a metric, given [(value, unit)] of each side's launches; None if it never gates."""
    entry = registry.find(name, virtual)
    if entry is None or entry["class"] in ("info", "derived"):
        return None
    if not base:
        return {"verdict": "NEW"}
    if not candidate:
        return {"verdict": "MISSING", "reason": "the candidate does not write it"}
    if {unit for _, unit in base + candidate} != {entry["unit"]}:
        return {"verdict": "INCOMPARABLE", "reason": f"its unit is not {entry['unit']} everywhere"}
    before, after = ([value for value, _ in side] for side in (base, candidate))
    if all(v is None for v in before + after):
        return None
    if not all(map(_finite, before + after)):
        return {"verdict": "ERRORED", "reason": "a value is not a finite number"}
    told = {"base": before[0], "candidate": after[0], "unit": entry["unit"], "scale": entry["scale"]}
    if entry["class"] == "timed":
        return {**told, "verdict": "INCONCLUSIVE", "reason": "times of stored rows are not judged"}
    verdict, worse = _judge_values(entry, before, after)
    return {**told, "verdict": verdict, "worse": worse}


def _judge_case(base, candidate):
    """{metric: finding} of a case that both sides have."""
    ran = [all(row["status"] in RAN for row in side) for side in (base, candidate)]
    if not all(ran):
        verdict = "ERRORED" if ran[0] else "FIXED" if ran[1] else "BOTH_ERRORED"
        return {"status": {"verdict": verdict, "reason": f"{base[0]['status']} -> {candidate[0]['status']}"}}
    virtual = bool(base[0].get("virtual_time"))
    sides = [[values_of(row) for row in side] for side in (base, candidate)]
    findings = {}
    for name in sorted({name for side in sides for values in side for name in values}):
        finding = _judge_metric(name, virtual, *([v[name] for v in side if name in v] for side in sides))
        if finding:
            findings[name] = finding
    return findings


def compare(base_rows, candidate_rows):
    """Findings of all cases and metrics that gate, worst first."""
    base, candidate = _by_case(base_rows), _by_case(candidate_rows)
    findings = []
    for key in sorted({*base, *candidate}):
        if key not in candidate:
            judged = {"status": {"verdict": "MISSING", "reason": "the candidate has no row of it"}}
        elif key not in base:
            judged = {"status": {"verdict": "NEW"}}
        else:
            judged = _judge_case(base[key], candidate[key])
        findings += [{"case": key[1], "metric": name, **finding} for name, finding in judged.items()]
    return sorted(findings, key=lambda f: (ORDER.index(f["verdict"]), -(f.get("worse") or 0)))


def exit_code(findings):
    """0 passed, 1 regression, 3 something could not be judged, 4 nothing in common; 2 is usage, and make's."""
    verdicts = {finding["verdict"] for finding in findings}
    if not verdicts - {"MISSING", "NEW"}:
        return 4
    return 1 if verdicts & set(FAILS) else 3 if verdicts & set(UNJUDGED) else 0
