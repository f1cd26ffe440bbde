"""Tells all about one case of a sweep: what it is, what came of it and why, and every attempt at it.

KEY is the first digits of its key or of its config, as mb status --json, mb index and file names have them; without
KEY all cases are listed.
"""

import argparse

from mb import color, exit_codes
from mb.errors import UserError
from mb.exit_codes import ExitCode
from mb.sweep import claims, outcome
from mb.sweep.estimate import duration_text
from mb.sweep.store import Store

EXAMPLES = """Examples:
  mb explain results/mine
  mb explain results/mine 3f2a
"""
LAST_LINES = 10


def _state(store, case):
    """(status, row) of a case of the plan, pending and running included."""
    row = store.read(case["key"])
    claim = claims.read(store.claims / case["key"])
    if claim and not claims.is_dead(*claim):
        return "running", row
    return (row["status"] if row else "pending"), row


def _painted(status):
    return color.paint(status, color.STATUSES.get(status.strip()))


def _tell(store, case):
    status, row = _state(store, case)
    lines = [case["case"], f"key        {case['key']}", f"config     {case['config']} (the case with all defaults; the "
             "key is also of build and machine)", f"status     {_painted(status)}"]
    if row:
        sweep, detail = row["sweep"], row["status_detail"]
        if sweep["rule"]:
            lines.append(f"rule       {sweep['rule']}")
        lines += [f"{name:10} {detail[name]}" for name in ("message", "phase", "code", "signal", "needed_bytes", "capacity_bytes")
                  if detail.get(name) is not None]
        if "judged_by" in sweep:
            lines.append("judged by  what the program said")
        if "observed_s" in sweep:
            lines.append(f"took       {duration_text(sweep['observed_s'])}; predicted {duration_text(sweep['predicted_s'])}")
        if "reused" in sweep:
            lines.append(f"reused     from {sweep['reused']}, of another build")
        lines.append(f"build      {row['build']['git']}{', changed' if row['build']['dirty'] else ''}, "
                     f"{row['build']['type']}, machine {row['fingerprint']['id']}")
        lines.append(f"row        {store.result(case['key'])}")
    else:
        lines.append(f"predicted  {duration_text(case['predicted_s'])}")
    for folder in store.attempts_of(case["key"]):
        command = "".join(outcome.tail(folder / "command"))
        lines += [f"attempt {folder.name}: {command}", *(f"  | {line}" for line in outcome.tail(folder / "stderr", LAST_LINES))]
    return "\n".join(lines)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="mb explain", description=__doc__, epilog=f"{EXAMPLES}\n{exit_codes.HELP}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("key", metavar="KEY", nargs="?", default="")
    args = parser.parse_args(argv)
    store = Store(args.folder)
    cases = [case for case in store.read_plan()["cases"]
             if case["key"].startswith(args.key) or case["config"].startswith(args.key)]
    if not cases:
        raise UserError(f"{args.key}: no case of {args.folder} has such a key; mb explain {args.folder} lists them")
    if args.key and len(cases) > 1:
        raise UserError(f"{args.key}: {len(cases)} cases begin so; give more digits", ExitCode.USAGE)
    if args.key:
        print(_tell(store, cases[0]))
    else:
        print("\n".join(f"{case['key']}  {_painted(f'{_state(store, case)[0]:13}')}  {case['case']}" for case in cases))
    return ExitCode.OK
