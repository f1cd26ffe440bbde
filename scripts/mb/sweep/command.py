"""Runs every case of a sweep that has no result yet; all that came of each is kept, and started again it goes on.

FILE.yaml has base, axes, zip, presets, include, exclude and constraints (mb/sweep/sweep.schema.json). Several drivers
may work on one folder at once. mb rows, plot, report and gate take DIR for the rows of its cases.
"""

import argparse
import json
import pathlib
import shlex
import sys

from mb import exit_codes
from mb.errors import UserError
from mb.exit_codes import ExitCode
from mb.sweep import launch, points, slurm, spec
from mb.sweep.driver import Driver, Options
from mb.sweep.estimate import Estimate, duration_text
from mb.sweep.order import ORDERS, ordered
from mb.sweep.progress import Progress
from mb.sweep.status import collect, summary, to_json
from mb.sweep.store import Store

STATUSES = ("ok", "oom", "oom_predicted", "invalid", "unsupported", "timeout", "crash", "cancelled")
EXAMPLES = """Examples:
  mb sweep scripts/sweeps/mesh_shapes.yaml --dry-run
  mb sweep scripts/sweeps/schedules.yaml -o results/mine
  mb sweep scripts/sweeps/mesh_shapes.yaml -o results/mine --retry-status crash,timeout

The first Ctrl-C starts no more cases, the second stops those that run. MESHBENCH names the program."""


def _parser():
    parser = argparse.ArgumentParser(prog="mb sweep", description=__doc__,
                                     epilog=f"{EXAMPLES}\n\n{exit_codes.HELP}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE.yaml")
    parser.add_argument("-o", "--out", metavar="DIR", help="what is kept (default: sweeps/NAME)")
    parser.add_argument("--dry-run", action="store_true", help="say what would run and for how long; write nothing")
    parser.add_argument("--order", choices=ORDERS, default="spread",
                        help="spread (default): every value of every axis early, by cheap cases")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cases at once; 1 (default) does not disturb times")
    parser.add_argument("--reuse", choices=["same-build", "any-build"], default="same-build",
                        help="whether results of another build count as done")
    parser.add_argument("--retry-status", default="", metavar="STATUS,...", help="run cases again that ended so")
    parser.add_argument("--force", nargs="+", default=[], metavar="KEY", help="run these again (first digits will do)")
    parser.add_argument("--only", nargs="+", default=[], metavar="KEY", help="run no others")
    parser.add_argument("--run-predicted-oom", action="store_true", help="run what does not fit by prediction")
    parser.add_argument("--keep-going", action="store_true", help="also after 10 equal crashes in a row")
    parser.add_argument("--slurm", action="store_true", help="submit arrays by sbatch instead of running here")
    parser.add_argument("--json", action="store_true", help="print one JSON document: what mb status --json prints, or the counts of --dry-run or --slurm")
    parser.add_argument("--no-progress", action="store_true", help="no progress line on stderr")
    return parser


def _chosen(keys, all_points):
    """The points that first digits of keys or config hashes name."""
    chosen = []
    for text in keys:
        found = [p for p in all_points if p.key.startswith(text) or p.config_hash.startswith(text)]
        if not found:
            raise UserError(f"{text}: no case of this sweep has such a key; mb explain DIR lists them", ExitCode.NO_DATA)
        chosen += found
    return chosen


def _wanted(args, sweep, store):
    """Of a point and its row, or None: whether to run it."""
    retried = {status for status in args.retry_status.split(",") if status}
    if unknown := retried - set(STATUSES):
        raise UserError(f"--retry-status {','.join(sorted(unknown))}: give some of {', '.join(STATUSES)}", ExitCode.USAGE)
    forced = {point.key for point in _chosen(args.force, sweep.points)}

    def wanted(point, row):
        if point.key in forced or row is None:
            return True
        again = args.run_predicted_oom and row["status"] == point.status == "oom_predicted"
        return row["status"] == "cancelled" or row["status"] in retried or again
    return wanted


def _adopt(sweep, store):
    """--reuse any-build: results of the same case on the same machine count, whatever build they are of."""
    known = {(row["sweep"]["config"], row["sweep"].get("machine", row["fingerprint"]["id"])): row
             for row in store.rows()[0]}
    for point in sweep.points:
        row = known.get((point.config_hash, point.machine))
        if row and store.stamp(point.key) is None:
            store.write(point.key, {**row, "sweep": {**row["sweep"], "key": point.key, "reused": row["sweep"]["key"]}})


def _dry_run(sweep, store, wanted, order):
    """Counts, the time and the first commands."""
    decided = {"invalid": 0, "unsupported": 0, "oom_predicted": 0}
    cached, to_run = 0, []
    for point in sweep.points:
        if not wanted(point, store.read(point.key)):
            cached += 1
        elif point.status:
            decided[point.status] += 1
        else:
            to_run.append(point)
    left = [(point.mode, point.predicted_s) for point in to_run]
    low, middle, high = Estimate().left(left)
    hours = sum((1 if point.mode == "sim" else point.ranks) * point.predicted_s for point in to_run) / 3600
    commands = [launch.pasteable(sweep.program, point.words, point.ranks, sweep.spec.get("mpi"))
                for point in ordered(to_run, order)[:5]]
    return {"name": sweep.name, "total": len(sweep.points), "duplicates": sweep.duplicates, "excluded": sweep.excluded,
            "decided": decided, "done": cached, "to_run": len(to_run), "left_s": [low, middle, high], "rank_hours": hours,
            "first_commands": commands}


def _dry_run_text(told):
    low, middle, high = map(duration_text, told["left_s"])
    lines = [f"sweep {told['name']}: {told['total']} cases", f"  {told['duplicates']:5} equal to another, left out",
             f"  {told['excluded']:5} excluded, left out"]
    lines += [f"  {n:5} {name}" for name, n in told["decided"].items()]
    lines += [f"  {told['done']:5} done before", f"  {told['to_run']:5} to run, about {middle} ({low} to {high}) one after "
              f"the other, {told['rank_hours']:.3g} rank hours"]
    return "\n".join([*lines, *(f"  {command}" for command in told["first_commands"])])


def _plan(sweep):
    return {"name": sweep.name, "file": str(sweep.file), "build": sweep.build,
            "cases": [{"key": p.key, "config": p.config_hash, "case": p.line, "mode": p.mode, "point": p.config,
                       "predicted_s": p.predicted_s} for p in sweep.points]}


def _submit(sweep, store, wanted, as_json):
    """--slurm: what is neither done, decided nor queued."""
    for point in sweep.points:
        if point.status and wanted(point, store.read(point.key)):
            Driver(sweep, store, Options(), None).record(point, slurm.Outcome(point.status, point.detail))
    before = slurm.submitted(store)
    queued = slurm.queued(before)
    done_configs = {row["sweep"]["config"]: row for row in store.rows()[0]}
    todo = []
    for point in sweep.points:
        if point.status or point.config_hash in queued or not wanted(point, done_configs.get(point.config_hash)):
            continue
        found = slurm.lost(before[point.config_hash]) if point.config_hash in before else None
        if found and point.config_hash not in done_configs:
            Driver(sweep, store, Options(), None).record(point, found)
        else:
            todo.append(point)
    jobs = slurm.submit(sweep, store, todo)
    if as_json:
        print(json.dumps({"jobs": [{"job": job, "cases": tasks} for job, tasks in jobs], "submitted": len(todo),
                          "queued": len(queued)}, indent=1))
        return ExitCode.OK
    for job, tasks in jobs:
        print(f"job {job}: {tasks} cases; scancel {job}_K ends one, mb status {shlex.quote(str(store.folder))} shows all")
    print(f"{len(todo)} cases submitted, {len(queued)} already in the queue")
    return ExitCode.OK


def main(argv=None):
    args = _parser().parse_args(argv)
    if args.jobs < 1:
        raise UserError(f"--jobs {args.jobs}: give 1 or more", ExitCode.USAGE)
    sweep = points.make(args.file, spec.load(args.file))
    for rule in sweep.idle_excludes:
        print(f"mb sweep: {args.file}: exclude {rule} matches no case", file=sys.stderr)
    store = Store(args.out or pathlib.Path("sweeps") / sweep.name)
    wanted = _wanted(args, sweep, store)
    if args.dry_run:
        told = _dry_run(sweep, store, wanted, args.order)
        print(json.dumps(told, allow_nan=False, indent=1) if args.json else _dry_run_text(told))
        return ExitCode.OK
    store.sweep_up()
    if args.reuse == "any-build":
        _adopt(sweep, store)
    if args.slurm:
        store.write_plan(_plan(sweep))
        return _submit(sweep, store, wanted, args.json)
    if not args.only:
        store.write_plan(_plan(sweep))
    chosen = _chosen(args.only, sweep.points) if args.only else sweep.points
    progress = Progress(len(chosen), wanted=not args.no_progress)
    driver = Driver(sweep, store, Options(args.jobs, args.keep_going, args.run_predicted_oom), progress)
    driver.run(ordered(chosen, args.order), wanted)
    rows = [row for row in map(store.read, dict.fromkeys(p.key for p in chosen)) if row]
    print(to_json(collect(store)) if args.json else summary(sweep.name, len(chosen), rows, store.folder))
    if driver.tripped:
        print(f"mb sweep: stopped: {driver.tripped}; --keep-going runs the rest", file=sys.stderr)
    if driver.signals or driver.tripped:
        again = shlex.join(["mb", "sweep", args.file, *(["-o", args.out] if args.out else [])])
        print(f"mb sweep: resume with {again}", file=sys.stderr)
    code = driver.exit_code
    return ExitCode.NO_VERDICT if code == ExitCode.OK and not any(row["status"] == "ok" for row in rows) else code
