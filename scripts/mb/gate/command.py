"""Says which metrics of a candidate became worse than those of a base, and fails if any did.

  mb gate BASE CANDIDATE                  rows that are stored: exact and counted metrics
  mb gate --builds BASE CANDIDATE CASE... two programs, launched in turns: times too
  mb gate self-test [PROGRAM CASE...]     whether the gate tells equal builds from a planted regression
  mb gate history PATH...                 the newest campaign of nightly runs beside earlier ones

A CASE is the words of meshbench run in quotes, or those of another verb with the verb in front.
"""

import argparse
import contextlib
import datetime
import json
import pathlib
import signal
import sys

from mb import exit_codes, rows
from mb.errors import UserError
from mb.exit_codes import ExitCode
from mb.gate import campaign, document, history, launch, outputs, self_test, statistics, verdict, waivers

EXAMPLES = """A file of waivers, all of which a waiver has to have:
  waivers:
    - {case: "model=gpt-1m mesh=dp2*", metric: peak_bytes, allowed: 5 %, reason: a second bucket is live,
       issue: "12", expires: 2026-03-01}

Examples:
  mb gate results/baselines/rows.jsonl new.jsonl
  mb gate --builds old/build/cpu/bench/meshbench build/cpu/bench/meshbench \\
      'model=gpt-1m mesh=dp2 steps=10' 'coll op=all_reduce mesh=dp2 size=1M' 'sim case=textbook-100b'
  mb gate --json base/ candidate/
  mb gate base.jsonl new.jsonl --markdown "$GITHUB_STEP_SUMMARY" --annotations
  mb gate self-test build/cpu/bench/meshbench 'model=gpt-1m mesh=dp2'
  mb gate history nightly/ --history-blocking
"""


def _parser(name, description, epilog):
    return argparse.ArgumentParser(prog=f"mb {name}", description=description, epilog=f"{epilog}\n{exit_codes.HELP}",
                                   formatter_class=argparse.RawDescriptionHelpFormatter)


def _description(module):
    """The docstring of a module, without the name of its verb in front."""
    text = module.__doc__.split(": ", 1)[1]
    return text[0].upper() + text[1:]


def _gate_parser():
    parser = _parser("gate", __doc__, EXAMPLES)
    parser.add_argument("base", metavar="BASE", help="file or folder of rows; with --builds, meshbench of a build")
    parser.add_argument("candidate", metavar="CANDIDATE")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="with --builds")
    parser.add_argument("--builds", action="store_true", help="launch two builds in turns")
    _add_launching(parser)
    parser.add_argument("--waivers", metavar="FILE", help="YAML of regressions that are allowed for a while")
    parser.add_argument("--any-fingerprint", action="store_true",
                        help="judge rows of other machines or flags too; that is advice and never fails")
    parser.add_argument("--test", choices=statistics.TESTS, default="t",
                        help="of times: t (default), or signflip, which asks nothing of the noise but that builds share it")
    parser.add_argument("--any-load", action="store_true", help="let times gate on a busy machine too")
    parser.add_argument("--strict", action="store_true", help="exit with 5 if something is inconclusive")
    parser.add_argument("--json", action="store_true",
                        help="print one JSON document, see scripts/mb/gate/verdict.schema.json")
    parser.add_argument("--markdown", metavar="FILE", help="append a table, for $GITHUB_STEP_SUMMARY")
    parser.add_argument("--comment", metavar="FILE", help="write the table as short as a comment on a pull request has to be")
    parser.add_argument("--junit", metavar="FILE", help="write a JUnit report")
    parser.add_argument("--annotations", action="store_true",
                        help="say the worst on stderr as GitHub's ::error, ::warning and ::notice")
    return parser


def _add_launching(parser):
    parser.add_argument("-o", "--out", metavar="FOLDER",
                        help="where launches are kept; the same command goes on from there (default: gate/ID)")
    parser.add_argument("--seed", type=int, default=1, help="of the order of launches (default: 1)")


def main(argv=None):
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["self-test"]:
        return _self_test(words[1:])
    if words[:1] == ["history"]:
        return _history(words[1:])
    parser = _gate_parser()
    options = parser.parse_args(words)
    if options.cases and not options.builds:
        parser.error(f"CASEs such as {options.cases[0]!r} go with --builds")
    allowed = waivers.load(options.waivers) if options.waivers else []
    told = _of_builds(options) if options.builds else _of_rows(options)
    today = datetime.datetime.now(datetime.timezone.utc).date()
    findings, allowed = waivers.apply(told.pop("findings"), allowed, today)
    result = document.make((options.base, options.candidate), told.pop("rows"), findings, allowed,
                           strict=options.strict, **told)
    _write_outputs(result, options)
    return ExitCode(result["exit"])


def _of_rows(options):
    sides = [rows.load([path], foreign=True) for path in (options.base, options.candidate)]
    for path, side in zip((options.base, options.candidate), sides):
        if not side:
            raise UserError(f"{path}: holds no row; make one with meshbench run ... -o FILE")
    return {"rows": sides, "findings": verdict.compare(*sides, any_fingerprint=options.any_fingerprint)}


def _require_cases(cases):
    if not cases or not all(case.strip() for case in cases):
        raise UserError("no case to launch; name some, such as 'model=gpt-1m mesh=dp2'")
    for case in cases:
        try:
            verb, _ = launch.words_of(case)
        except ValueError as error:
            raise UserError(f"{case}: {error}", ExitCode.USAGE) from None
        if verb not in launch.VERBS:
            raise UserError(f'"{case}": {verb} leaves no rows; verbs that do are {", ".join(launch.VERBS)}',
                            ExitCode.USAGE)
    twice = sorted({case for case in cases if cases.count(case) > 1})
    if twice:
        raise UserError(f'"{twice[0]}" is named twice', ExitCode.USAGE)


def _require_taken(programs, cases):
    """Refuses what no build takes before the machine is waited for. What one of them takes is a finding."""
    for case in cases:
        said = [launch.refusal(program, case) for program in programs]
        if all(said):
            raise UserError(f'"{case}": both builds refuse it: {said[-1]}', ExitCode.USAGE)


@contextlib.contextmanager
def _launching(store):
    """Says where launches are if these are interrupted; SIGTERM interrupts as Ctrl-C does."""
    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with campaign.machine_to_itself():
            yield
    except KeyboardInterrupt:
        print(f"gate: launches so far are kept in {store.folder}; the same command goes on from there", file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _of_builds(options):
    _require_cases(options.cases)
    believed = self_test.require(options.test)
    builds = {"base": options.base, "candidate": options.candidate}
    store = campaign.Store(options.out, builds, options.cases, options.seed)
    _require_taken(builds.values(), options.cases)
    say = campaign.Progress()
    with _launching(store):
        busy = None if options.any_load else campaign.wait_for_calm(say)
        pairs, decisions = campaign.measure(len(options.cases), store.take, say, options.test)
    findings = campaign.judge(pairs, decisions, options.any_fingerprint)
    if busy:
        findings = [{**f, "gates": f["gates"] and f["class"] != "timed"} for f in findings]
    warnings = [f"{busy}: times advise and never fail; --any-load lets them"] if busy else []
    if store.found:
        warnings.append(f"{store.found} of {len(pairs)} pairs were there already; -o names another folder for new ones")
    if store.digests["base"] == store.digests["candidate"]:
        warnings.append("both builds are the same program")
    sides = [[row for pair in pairs for row in pair.sides[side]] for side in range(2)]
    return {"rows": sides, "findings": findings, "builds": tuple(builds.values()), "campaign": str(store.folder),
            "seed": options.seed, "test": options.test, "self_test": believed, "warnings": warnings}


def _write_outputs(result, options):
    try:
        if options.markdown:
            with open(options.markdown, "a", encoding="utf-8") as out:
                out.write(outputs.markdown(result, outputs.SUMMARY_BYTES - out.tell()))
        if options.comment:
            pathlib.Path(options.comment).write_text(outputs.markdown(result, outputs.COMMENT_BYTES), encoding="utf-8")
        if options.junit:
            pathlib.Path(options.junit).write_text(outputs.junit(result), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be written: {error.strerror}; the verdict is {result['verdict']}, "
                        f"{outputs.summary(result)}") from None
    if options.annotations:
        print(*outputs.annotations(result), sep="\n", file=sys.stderr)
    print(document.to_json(result) if options.json else outputs.terminal(result))


def _self_test(words):
    parser = _parser("gate self-test", _description(self_test),
                     "Examples:\n  mb gate self-test\n"
                     "  mb gate self-test build/cpu/bench/meshbench 'model=gpt-1m mesh=dp2'\n")
    parser.add_argument("program", nargs="?", metavar="PROGRAM")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    _add_launching(parser)
    options = parser.parse_args(words)
    if options.program is None:
        print(f"self-test: {self_test.require()}")
        return ExitCode.OK
    _require_cases(options.cases)
    store = campaign.Store(options.out, dict.fromkeys(campaign.ROLES, options.program), options.cases, options.seed)
    with _launching(store):
        held, broken, _ = self_test.run(len(options.cases), store.take, campaign.Progress())
    print("\n".join([*(f"held    {text}" for text in held), *(f"BROKEN  {text}" for text in broken)]))
    code = ExitCode.NO_VERDICT if broken else ExitCode.OK
    print(f"self-test: {len(held)} verdicts held, {len(broken)} did not; launches are kept in {store.folder}; "
          f"exit {int(code)}")
    return code


def _history(words):
    parser = _parser("gate history", _description(history),
                     "Examples:\n  mb gate history nightly/\n  mb gate history nightly/*.jsonl --json\n")
    parser.add_argument("paths", nargs="+", metavar="PATH",
                        help="rows of a campaign; or one folder, each entry of which is a campaign")
    parser.add_argument("--history-blocking", action="store_true", help="exit with 1 on an alert")
    parser.add_argument("--strict", action="store_true", help="exit with 5 where there is too little history")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(words)
    findings = history.judge(history.campaigns(options.paths))
    code = history.exit_code(findings, options.history_blocking, options.strict)
    if options.json:
        told = {"schema": "meshbench-history/1", "exit": int(code), "findings": findings}
        print(json.dumps(told, allow_nan=False, indent=1))
    else:
        print(history.text(findings, code))
    return code
