"""python -m mb.gate [--json] BASE CANDIDATE: exact and counted metrics of rows held to those of a base.

BASE and CANDIDATE are files or folders of rows, as meshbench writes them with -o. Exits with 0 if none became
worse, 1 if one did, 3 if one could not be judged, 4 if the two have no case in common or cannot be read.
"""

import argparse
import json
import sys

import rows
from mb.gate import verdict


def _line(finding):
    change = "" if finding.get("worse") is None else (
        f"{100 * finding['worse']:+.4g} % worse" if finding["scale"] == "ratio" else
        f"{finding['worse']:+.6g} {finding['unit']} worse")
    values = f"{finding['base']:.9g} -> {finding['candidate']:.9g} {finding['unit']}" if "base" in finding else ""
    told = "  ".join(part for part in (values, change, finding.get("reason", "")) if part)
    return f"{finding['verdict']:<16}  {finding['metric']}  {told}\n{'':18}meshbench run {finding['case']}"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m mb.gate", description=__doc__.split("\n\n", 1)[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("candidate")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    try:
        base, candidate = rows.load([options.base]), rows.load([options.candidate])
    except rows.RowError as error:
        print(f"gate: {error}", file=sys.stderr)
        return 4
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


if __name__ == "__main__":
    sys.exit(main())
