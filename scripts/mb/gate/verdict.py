"""Verdicts on the rows of two builds, one for each case and metric, worst first.

Exact and counted metrics are judged from the rows alone. Times are judged by what a paired test decided (see
timed.py); times of stored rows are not judged: launches that were not interleaved cannot tell a build from an hour.
"""

import math

from mb.exit_codes import ExitCode
from mb.gate import derived, evidence, registry
from mb.gate.evidence import RAN
from mb.rows import NOT_FINITE

EXACT = 1e-9  # relative; what rounding may do to a number that a machine does not change
FAILURE_LEVEL = 0.05  # at which a candidate's launches fail more often than the base's
FAILS = ["REGRESSED"]
UNJUDGED = ["ERRORED", "MISSING", "NONDETERMINISTIC", "INCOMPARABLE", "INCONSISTENT"]
ORDER = [*FAILS, *UNJUDGED, "INCONCLUSIVE", "WAIVED", "CHANGED", "IMPROVED", "FIXED", "NEW", "BOTH_ERRORED", "PASS",
         "PASS(certified)"]
# Facts of a machine that change an exact metric: rows in virtual time gate on any machine and compiler.
EXACT_FACTS = {"simulated_machine"}
# Every finding has all of these; null where a field says nothing.
FIELDS = ["suite", "case", "detail", "metric", "class", "unit", "direction", "scale", "verdict", "gates", "base",
          "candidate", "worse", "low", "high", "n", "noise", "detectable", "pairs", "pairs_to_resolve", "reason"]


def _told(verdict, **fields):
    return {**dict.fromkeys(FIELDS), "verdict": verdict, "gates": True, **fields}


def middle(values):
    return sorted(values)[len(values) // 2]


def judge_values(entry, base, candidate):
    """(verdict, how much worse) of the launches' values of one exact or counted metric."""
    if entry["class"] == "exact":
        if len(set(base)) > 1 or len(set(candidate)) > 1:
            return "NONDETERMINISTIC", None
        whole = float(base[0]).is_integer() and float(candidate[0]).is_integer()  # a count, which is not rounded
        tolerance = 0 if whole else EXACT * (abs(base[0]) if entry["scale"] == "difference" else 1)
    else:
        tolerance = entry["floor"]
    worse = registry.worse(entry, middle(base), middle(candidate))
    if worse > tolerance:
        return "REGRESSED", worse
    if worse < -tolerance:
        return ("CHANGED" if entry["class"] == "exact" else "IMPROVED"), worse
    return "PASS", worse


def _numbers(entry, values):
    """(numbers in the registry's unit, why they cannot be judged or None) of the launches' Values."""
    numbers = []
    for value in values:
        number = value.value
        if (number is None and value.reason.startswith(NOT_FINITE)) or (number is not None
                                                                        and not math.isfinite(number)):
            return [], ("ERRORED", f"a value is not finite: {value.reason or number}")
        if number is None:
            continue
        number = registry.in_unit(number, value.unit, entry["unit"])
        if number is None:
            return [], ("INCOMPARABLE", f'its unit "{value.unit}" is not one of {entry["unit"]}')
        numbers.append(number)
    return numbers, None


def _judge_metric(entry, base, candidate, hard, decision):
    """A finding on a metric, given each side's Values; None if it never gates or nobody measured it."""
    if entry["class"] == "info":
        return None
    facts = {"class": entry["class"], "unit": entry["unit"], "direction": entry["direction"], "scale": entry["scale"]}
    sides, unjudged = zip(*(_numbers(entry, values) for values in (base, candidate)))
    for why in filter(None, unjudged):
        return _told(why[0], **facts, reason=why[1])
    if not sides[0] and not sides[1]:
        return None
    if not sides[0]:
        return _told("NEW", **facts, candidate=middle(sides[1]))
    if not sides[1]:
        said = candidate[0].reason if candidate else "the candidate does not write it"
        return _told("MISSING", **facts, base=middle(sides[0]), reason=said)
    if entry["class"] == "derived":
        return None
    facts |= {"base": middle(sides[0]), "candidate": middle(sides[1]), "n": min(map(len, sides))}
    differing = [d for d in hard if entry["class"] != "exact" or d["fact"] in EXACT_FACTS]
    if differing:
        said = "; ".join(f"{d['fact']} {d['base']} -> {d['candidate']}" for d in differing)
        return _told("INCOMPARABLE", **facts, reason=f"other machine or build: {said}")
    if entry["class"] == "timed":
        return _told(**{"verdict": "INCONCLUSIVE", "reason": "times of stored rows are not judged", **facts,
                        **(decision or {})})
    if entry["class"] == "exact" and any(len(side) < len(values) for side, values in zip(sides, (base, candidate))):
        return _told("NONDETERMINISTIC", **facts, reason="only some launches have a value")
    verdict, worse = judge_values(entry, *sides)
    return _told(verdict, **facts, worse=worse,
                 reason="launches of one build differ" if verdict == "NONDETERMINISTIC" else None)


def is_unpaired(finding):
    """Whether it is about the time of rows that were not launched in turns."""
    return finding["class"] == "timed" and finding["verdict"] == "INCONCLUSIVE" and finding["pairs"] is None


def _standing(rows):
    """(0 ran, 1 would not fit, 2 failed; status) of the best launch of a side."""
    return min(({"ok": 0, "oom_predicted": 1}.get(row["status"], 2), row["status"]) for row in rows)


def failures(rows):
    """What became of launches that did not run, in words; None if all ran."""
    failed = [row for row in rows if row["status"] not in RAN]
    if not failed:
        return None
    said = sorted({f"{row['status']}: {row['status_detail'].get('message') or 'no message'}" for row in failed})
    return f"{len(failed)} of {len(rows)} launches failed: {'; '.join(said[:3])}"


def _judge_status(base, candidate):
    """A finding where a side did not run as the other, or not always; else None."""
    before, after = _standing(base), _standing(candidate)
    said = "; ".join(f"{side}: {why}" for side, why in (("base", failures(base)), ("candidate", failures(candidate)))
                     if why)
    change = f"{before[1]} -> {after[1]}"
    if before[0] < after[0]:
        return _told("ERRORED", reason=f"{change}; {said}" if said else change)
    if before[0] > after[0]:
        return _told("FIXED", reason=change)
    if before[0] == 2:
        return _told("BOTH_ERRORED", reason=f"{change}; {said}")
    if not said:
        return None
    return _told("ERRORED" if _fails_more(base, candidate) else "PASS", reason=said)


def _fails_more(base, candidate):
    """Whether launches of the candidate fail more often, beyond chance, by Fisher's exact test."""
    from scipy import stats

    counts = [[sum((row["status"] in RAN) == ran for row in side) for ran in (False, True)]
              for side in (candidate, base)]
    return stats.fisher_exact(counts, alternative="greater").pvalue <= FAILURE_LEVEL


def _judge_case(key, base, candidate, decisions, any_fingerprint):
    """{metric: finding} of a case that both sides have."""
    status = _judge_status(base, candidate)
    findings = {"status": status} if status else {}
    sides = [[row for row in side if row["status"] in RAN] for side in (base, candidate)]
    if not all(sides):
        return findings
    hard = evidence.differences(*sides, "hard")
    virtual = bool(sides[0][0].get("virtual_time"))
    values = [[evidence.values_of(row) for row in side] for side in sides]
    for name in sorted({name for side in values for of_row in side for name in of_row}):
        entry = registry.find(name, virtual)
        if entry is None:
            continue
        launches = [[of_row[name] for of_row in side if name in of_row] for side in values]
        finding = _judge_metric(entry, *launches, [] if any_fingerprint else hard, decisions.get((key, name)))
        if finding is None and entry["class"] == "derived":
            wrong = derived.inconsistency(entry, name, sides)
            finding = wrong and _told("INCONSISTENT", **wrong, unit=entry["unit"], direction=entry["direction"],
                                      scale=entry["scale"], **{"class": "derived"})
        if finding:
            on_others = any_fingerprint and hard and entry["class"] in ("timed", "counted")
            findings[name] = {**finding, "gates": finding["gates"] and not on_others}
    return findings


def _other_version(key, cases):
    """The version of the same case that the other side has instead, if any."""
    same = [other[2] for other in cases if other != key and (other[0], other[1], other[3]) == (key[0], key[1], key[3])]
    return same[0] if same else None


def compare(base_rows, candidate_rows, decisions=None, any_fingerprint=False):
    """Findings of all cases and metrics that gate, worst first.

    `decisions` are the fields of findings on timed metrics by (key, metric); `any_fingerprint` judges what other
    machines measured too, without gating on it.
    """
    base, candidate = evidence.by_key(base_rows), evidence.by_key(candidate_rows)
    findings = []
    for key in sorted({*base, *candidate}):
        if key not in candidate:
            if _other_version(key, candidate) is not None:
                continue  # NEW, below
            judged = {"status": _told("MISSING", reason="the candidate has no row of it")}
        elif key not in base:
            version = _other_version(key, base)
            judged = {"status": _told("NEW", reason=version and f"version {version} of the case became {key[2]}")}
        else:
            judged = _judge_case(key, base[key], candidate[key], decisions or {}, any_fingerprint)
        findings += [{**finding, "suite": key[0], "case": key[1], "detail": key[3], "metric": name}
                     for name, finding in judged.items()]
    return ordered(findings)


def ordered(findings):
    """Worst first."""
    return sorted(findings, key=lambda f: (ORDER.index(f["verdict"]), -(f["worse"] or 0), f["case"], f["detail"],
                                           f["metric"]))


def exit_code(findings, strict=False):
    """What the process exits with: see ExitCode. Nothing in common is no pass."""
    if not {finding["verdict"] for finding in findings} - {"MISSING", "NEW", "BOTH_ERRORED"}:
        return ExitCode.NO_DATA
    gating = {finding["verdict"] for finding in findings if finding["gates"]}
    if gating & set(FAILS):
        return ExitCode.REGRESSION
    if gating & set(UNJUDGED):
        return ExitCode.NO_VERDICT
    return ExitCode.INCONCLUSIVE if strict and "INCONCLUSIVE" in gating else ExitCode.OK
