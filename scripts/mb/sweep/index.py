"""Makes one file of all results of a sweep: DIR/index.jsonl, a row a line, and DIR/index.csv, their scalars.

Both follow from DIR/results alone and can be made again at any time.
"""

import argparse
import csv
import io
import json
import sys

from mb import exit_codes
from mb.errors import UserError
from mb.exit_codes import ExitCode
from mb.sweep.store import Store, write_whole

EXAMPLES = """Examples:
  mb index results/mine
  mb index results/mine && mb rows results/mine/index.jsonl
"""


def _scalars(row):
    """One line of the table: what the case is, what came of it, its metrics with their unit in the name."""
    detail = row["status_detail"]
    cells = {"key": row["sweep"]["key"], "config": row["sweep"]["config"], "status": row["status"],
             "rule": row["sweep"]["rule"], "message": detail.get("message"), "case": row["case"]}
    cells |= {f"point.{key}": value for key, value in row["sweep"]["point"].items()}
    cells |= {f"{name} [{metric['unit']}]": metric["value"] for name, metric in row["metrics"].items()}
    return cells


def csv_of(rows):
    cells = [_scalars(row) for row in rows]
    columns = list(dict.fromkeys(column for line in cells for column in line))
    text = io.StringIO()
    table = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(cells)
    return text.getvalue()


def main(argv=None):
    parser = argparse.ArgumentParser(prog="mb index", description=__doc__, epilog=f"{EXAMPLES}\n{exit_codes.HELP}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    args = parser.parse_args(argv)
    store = Store(args.folder)
    rows, broken = store.rows()
    if not rows:
        raise UserError(f"{args.folder}: no result is here; make some with mb sweep FILE.yaml -o {args.folder}", ExitCode.NO_DATA)
    lines = "".join(f"{json.dumps(row, allow_nan=False)}\n" for row in rows)
    for name, text in (("index.jsonl", lines), ("index.csv", csv_of(rows))):
        write_whole(store.folder / name, text)
        print(f"{args.folder}/{name}: {len(rows)} rows")
    if broken:
        print(f"mb index: left out {len(broken)} files that are no results, such as {broken[0]}", file=sys.stderr)
    return ExitCode.OK
