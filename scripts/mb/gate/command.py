"""Holds exact and counted metrics of rows to those of a base: virtual time, traffic, planned memory.

BASE and CANDIDATE are files or folders of rows, as meshbench writes them with -o.
"""

import argparse
import json

from mb import exit_codes, rows
from mb.gate import verdict

EXAMPLES = """Examples:
  mb gate results/baselines/rows.jsonl new.jsonl
  mb gate --json base/ candidate/
"""


def _line(finding):
    change = "" if finding.get("worse") is None else (
        f"{100 * finding['worse']:+.4g} % worse" if finding["scale"] == "ratio" else
        f"{finding['worse']:+.6g} {finding['unit']} worse")
    values = f"{finding['base']:.9g} -> {finding['candidate']:.9g} {finding['unit']}" if "base" in finding else ""
    told = "  ".join(part for part in (values, change, finding.get("reason", "")) if part)
    return f"{finding['verdict']:<16}  {finding['metric']}  {told}\n{'':18}meshbench run {finding['case']}"


def main(argv=None):
    parser = argparse.ArgumentParser(prog="mb gate", description=__doc__,
                                     epilog=f"{EXAMPLES}\n{exit_codes.HELP}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE")
    parser.add_argument("candidate", metavar="CANDIDATE")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(argv)
    base, candidate = rows.load([options.base]), rows.load([options.candidate])
    findings = verdict.compare(base, candidate)
    code = verdict.exit_code(findings)
    counts = {name: n for name in verdict.ORDER if (n := sum(f["verdict"] == name for f in findings))}
    if options.json:
        print(json.dumps({"exit": code, "counts": counts, "findings": findings}, allow_nan=False, indent=1))
        return code
    for finding in findings:
        if finding["verdict"] != "PASS":
            print(_line(finding))
    said = ", ".join(f"{n} {name}" for name, n in counts.items()) or "nothing to compare"
    print(f"gate: {said}; {len(base)} rows of the base, {len(candidate)} of the candidate; exit {code}")
    return code
