"""mb gate self-test: equal builds must pass and planted regressions must fail, by the code that judges real builds.

Each row stands there twice: as it is, and as a copy whose candidate takes 10 % longer, has a byte more of memory, and a
millionth more of what virtual time says exactly.
Without a program the launches are made up, with 3 % noise and a seed; `mb gate --builds` does that before it starts.
With a program, that build is held to itself on this machine: whether the noise here hides what should be found.
"""

import math

import numpy as np

from mb.errors import UserError
from mb.exit_codes import ExitCode
from mb.gate import campaign, evidence, registry, verdict
from mb.gate.evidence import RAN

# Class and unit -> what is planted, in words, and how much that is of a value.
PLANTED = {("timed", "s"): ("10 %", lambda value: 0.1 * value), ("exact", "B"): ("a byte", lambda value: 1),
           ("exact", "s"): ("a millionth", lambda value: 1e-6 * value)}
MARK = " # planted"
NOISE, CASES, SEED = 0.03, 2, 1


def planting(take):
    """A take() whose pairs hold each row and its copy with the planted regressions."""
    def take_both(case, number):
        pair = take(case, number)
        copies = [[_copy(row, worse=side == 1) for row in rows if row["status"] in RAN]
                  for side, rows in enumerate(pair.sides)]
        return campaign.Pair(case, number, tuple([*rows, *more] for rows, more in zip(pair.sides, copies)))
    return take_both


def _copy(row, worse):
    metrics = {}
    for name, metric in row["metrics"].items():
        entry = registry.find(name, bool(row.get("virtual_time")))
        if entry and evidence.finite(metric["value"]) and (found := PLANTED.get((entry["class"], entry["unit"]))):
            more = registry.DIRECTIONS[entry["direction"]] * found[1](metric["value"]) if worse else 0
            metrics[name] = {**metric, "value": metric["value"] + more}
    return {**row, "case": row["case"] + MARK, "metrics": metrics, "traffic": []}


def made_up(case, number):
    """A pair of equal builds: 100 ms with noise, 100 ms of virtual time and 1 GB."""
    def row(side):
        noise = np.random.default_rng([SEED, case, number, side]).standard_normal()
        return {"suite": "step", "case": f"made-up-{case}", "case_version": 1, "params": {}, "status": "ok",
                "status_detail": {}, "fingerprint": {"id": "0" * 16, "hard": {}, "soft": {}}, "metrics": {
                    "step_s": {"value": 0.1 * math.exp(NOISE * noise), "unit": "s", "n": 5},
                    "simulated_step_s": {"value": 0.1, "unit": "s", "n": 1},
                    "peak_bytes": {"value": 10**9, "unit": "B", "n": 1}}}
    return campaign.Pair(case, number, ([row(0)], [row(1)]))


def run(cases, take, say=lambda text: None, test="t"):
    """(what held, what did not, findings), the first two as lists of text."""
    pairs, decisions = campaign.measure(cases, planting(take), say, test)
    findings = campaign.judge(pairs, decisions)
    held, broken = [], []
    for finding in findings:
        planted = finding["case"].endswith(MARK)
        told = f"{finding['metric']} of {finding['case'].removesuffix(MARK)} {finding['detail']}".rstrip()
        why = finding["reason"] or "no more is known"
        if not planted and finding["verdict"] in (*verdict.FAILS, *verdict.UNJUDGED):
            broken.append(f"{told}: {finding['verdict']} though both builds are one ({why})")
        elif planted and finding["verdict"] != "REGRESSED":
            size = PLANTED[finding["class"], finding["unit"]][0]
            broken.append(f"{told}: {size} more was planted, and the verdict is {finding['verdict']} ({why})")
        elif finding["class"] is not None:
            held.append(f"{told}: {'failed as planted' if planted else 'passed'}")
    if not any(finding["case"].endswith(MARK) for finding in findings):
        broken.append("nothing was planted: no launch has a timed metric or planned memory")
    return held, broken, findings


def require(test="t"):
    """What the self-test said of a test of times, in words; an error if the gate cannot be believed."""
    held, broken, _ = run(CASES, made_up, test=test)
    if broken:
        raise UserError(f"the self-test does not hold, so no comparison is believed: {'; '.join(broken)}",
                        ExitCode.NO_VERDICT)
    return f"{len(held)} verdicts on equal builds and on planted regressions are as they should be"
