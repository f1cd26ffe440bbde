"""How far a sweep is: counts, what runs where, what failed and why, the best so far.

DIR is the folder that mb sweep -o made.
"""

import argparse
import collections
import json

from mb import color, exit_codes, rows
from mb.sweep import claims, slurm
from mb.sweep.estimate import Estimate, duration_text
from mb.sweep.store import Store

EXAMPLES = """Examples:
  mb status results/mine
  mb status results/mine --json
"""
SHOWN = 10  # of a kind of failure


def best(found):
    """The row of most tokens a second in each mode."""
    by_mode = {}
    for row in found:
        rate = rows.value(row, "tokens_per_s") if row["status"] == "ok" else None
        mode = row.get("mode", "threads")
        if rate is not None and (mode not in by_mode or rate > rows.value(by_mode[mode], "tokens_per_s")):
            by_mode[mode] = row
    return by_mode


def summary(name, total, found, folder):
    """What came of the cases, as text."""
    counts = collections.Counter(row["status"] for row in found)
    told = ", ".join(color.paint(f"{n} {status}", color.of_status(status)) for status, n in sorted(counts.items())) or "nothing yet"
    lines = [f"sweep {name}: {len(found)} of {total} cases: {told}"]
    rules = collections.Counter((row["status"], row["sweep"]["rule"] or "", row["status_detail"].get("message", ""))
                                for row in found if row["status"] != "ok")
    lines += [f"  {n:4} {color.paint(f'{status:13}', color.of_status(status))} {message}" for (status, _, message), n in rules.most_common(SHOWN)]
    if len(rules) > SHOWN:
        lines.append(f"       and {len(rules) - SHOWN} other reasons: mb status")
    for mode, row in sorted(best(found).items()):
        lines.append(f"best of mode={mode}: {row['case']}: {rows.value(row, 'tokens_per_s'):.6g} tokens/s")
    if not best(found):
        lines.append("best: none")
    lines.append(f"rows: {folder}/results")
    return "\n".join(lines)


def collect(store):
    """Everything that status tells, as one object."""
    plan = store.read_plan()
    found, broken = store.rows()
    by_key = {row["sweep"]["key"]: row for row in found}
    by_config = {row["sweep"]["config"]: row for row in found}
    running, pending, done = [], [], []
    estimate = Estimate()
    queued = slurm.queued(slurm.submitted(store))
    for case in plan["cases"]:
        row = by_key.get(case["key"]) or by_config.get(case["config"])
        claim = claims.read(store.claims / case["key"])
        if claim and not claims.is_dead(*claim):
            running.append({**case, "host": claim[0].get("host"), "pid": claim[0].get("pid"), "beat_s": claim[1]})
        elif row and row["status"] != "cancelled":
            done.append(row)
            if row["status"] == "ok" and "observed_s" in row["sweep"]:
                estimate.observe(case["mode"], row["sweep"]["predicted_s"], row["sweep"]["observed_s"])
        else:
            pending.append({**case, "task": queued.get(case["config"])})
    low, middle, high = estimate.left([(case["mode"], case["predicted_s"]) for case in pending + running],
                                      max(1, len(running)))
    others = set(by_key) - {case["key"] for case in plan["cases"]}
    return {"name": plan["name"], "total": len(plan["cases"]), "done": done, "running": running, "pending": pending,
            "left_s": [low, middle, high], "broken": [str(file) for file in broken],
            "of_other_sweeps_or_builds": len(others)}


def to_json(state):
    """The same as one JSON document, with what a sweep knows of its results in the place of their rows."""
    counts = collections.Counter(row["status"] for row in state["done"])
    done = [{**row["sweep"], "status": row["status"], "status_detail": row["status_detail"]} for row in state["done"]]
    keys = {mode: row["sweep"]["key"] for mode, row in best(state["done"]).items()}
    return json.dumps({**state, "counts": counts, "best": keys, "done": done}, allow_nan=False, indent=1)


def _text(state, folder):
    lines = [summary(state["name"], state["total"], state["done"], folder)]
    lines += [f"runs: {case['case']} on {case['host']}, process {case['pid']}" for case in state["running"]]
    if state["pending"] or state["running"]:
        low, middle, high = map(duration_text, state["left_s"])
        waiting = sum(case["task"] is not None for case in state["pending"])
        lines.append(f"pending: {len(state['pending'])}, of these {waiting} in Slurm's queue; about {middle} left "
                     f"({low} to {high})")
    if state["broken"]:
        lines.append(f"{len(state['broken'])} results cannot be read and will run again: {state['broken'][0]}")
    if state["of_other_sweeps_or_builds"]:
        lines.append(f"{state['of_other_sweeps_or_builds']} more results are of other cases or builds")
    return "\n".join(lines)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="mb status", description=__doc__, epilog=f"{EXAMPLES}\n{exit_codes.HELP}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args(argv)
    store = Store(args.folder)
    state = collect(store)
    if args.json:
        print(to_json(state))
    else:
        print(_text(state, args.folder))
    return exit_codes.ExitCode.OK
