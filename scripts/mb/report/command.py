"""mb report INPUT... -o report.html: one page that opens from disk and holds all it needs.

INPUT is a row, a file or a folder of rows, the folder of a sweep, or a trace that meshbench run --trace wrote; rows bring
their own traces along.
"""

import argparse
import pathlib
import shlex

from mb import exit_codes
from mb.errors import UserError
from mb.figures import forest
from mb.report import inputs, page


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="mb report", description=__doc__,
        epilog="Examples:\n"
               "  mb report results/quickstart -o report.html\n"
               "  mb report sweeps/schedules -o report.html\n"
               "  mb report rows.jsonl trace.json --verdict verdict.json -o report.html\n"
               "verdict.json is what mb gate --json BASE CANDIDATE prints.\n\n" + exit_codes.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("-o", "--out", required=True, type=pathlib.Path, metavar="FILE", help="the page to write")
    parser.add_argument("--verdict", type=pathlib.Path, metavar="FILE", help="what mb gate --json printed: comes first")
    parser.add_argument("--title", default="Meshbench report", help="heading of the page (default: %(default)s)")
    args = parser.parse_args(argv)
    verdict = forest.document(args.verdict) if args.verdict else None
    rows, traces, notes = inputs.load(args.inputs, args.verdict)
    if not rows and not traces and verdict is None:
        raise UserError(f"{' '.join(args.inputs)}: no row and no trace; make one with meshbench run ... --out FILE")
    words = ["mb", "report", *args.inputs, "-o", str(args.out)]
    words += ["--verdict", str(args.verdict)] if args.verdict else []
    text = page.render(args.title, rows, traces, verdict, notes, shlex.join(words))
    try:
        args.out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{args.out}: {error.strerror}; give a file that can be written with -o") from None
    print(args.out)
    return 0
