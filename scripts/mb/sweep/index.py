"""Makes one file of all results of a sweep: DIR/index.jsonl, a row a line, DIR/index.csv, their scalars, and
DIR/index.sqlite, the same scalars as table "cases" with the whole row as JSON in "row".

All follow from DIR/results alone and can be made again at any time.
"""

import argparse
import csv
import contextlib
import io
import json
import os
import sqlite3
import sys

from mb import exit_codes
from mb.errors import UserError
from mb.exit_codes import ExitCode
from mb.sweep.store import HOST, Store, cannot_write, write_whole, writing

EXAMPLES = """Examples:
  mb index results/mine
  mb index results/mine && mb rows results/mine/index.jsonl
  sqlite3 results/mine/index.sqlite 'select "case", "step_s [s]" from cases order by 2 limit 5'
"""


def _scalars(row):
    """One line of the table: what the case is, what came of it, its metrics with their unit in the name."""
    detail = row["status_detail"]
    cells = {"key": row["sweep"]["key"], "config": row["sweep"]["config"], "status": row["status"],
             "rule": row["sweep"]["rule"], "message": detail.get("message"), "case": row["case"]}
    cells |= {f"point.{key}": value for key, value in row["sweep"]["point"].items()}
    cells |= {f"{name} [{metric['unit']}]": metric["value"] for name, metric in row["metrics"].items()}
    return cells


def _places(store):
    """Where each case stands in the sweep, as far as its plan is there."""
    try:
        return {case["key"]: number for number, case in enumerate(store.read_plan()["cases"])}
    except UserError:
        return {}


def _columns(cells):
    return list(dict.fromkeys(column for line in cells for column in line))


def csv_of(rows):
    cells = [_scalars(row) for row in rows]
    text = io.StringIO()
    table = csv.DictWriter(text, _columns(cells), restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(cells)
    return text.getvalue()


def write_sqlite(file, rows):
    """A database of one table, made beside and renamed: whoever reads the old one goes on with it."""
    cells = [{**_scalars(row), "row": json.dumps(row, allow_nan=False)} for row in rows]
    columns = _columns(cells)
    # SQLite takes names of columns that differ in case alone for one.
    names = {column: column for column in columns}
    for number, column in enumerate(columns):
        if column.lower() in {other.lower() for other in columns[:number]}:
            names[column] = f"{column} ({number})"
    quoted = [f'"{names[column].replace(chr(34), chr(34) * 2)}"' for column in columns]
    beside = file.with_name(f".{file.name}.tmp.{HOST}.{os.getpid()}")
    with writing(file):
        beside.unlink(missing_ok=True)
        try:
            with contextlib.closing(sqlite3.connect(beside)) as database, database:
                database.execute(f"create table cases ({', '.join(quoted)})")
                database.executemany(f"insert into cases values ({', '.join('?' * len(columns))})",
                                     [[line.get(column) for column in columns] for line in cells])
            os.rename(beside, file)
        except sqlite3.Error as error:
            raise cannot_write(file, error) from None
        finally:
            beside.unlink(missing_ok=True)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="mb index", description=__doc__, epilog=f"{EXAMPLES}\n{exit_codes.HELP}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    args = parser.parse_args(argv)
    store = Store(args.folder)
    rows, broken = store.rows()
    place = _places(store)
    rows.sort(key=lambda row: place.get(row["sweep"]["key"], len(place)))
    if not rows:
        raise UserError(f"{args.folder}: no result is here; make some with mb sweep FILE.yaml -o {args.folder}", ExitCode.NO_DATA)
    lines = "".join(f"{json.dumps(row, allow_nan=False)}\n" for row in rows)
    for name, text in (("index.jsonl", lines), ("index.csv", csv_of(rows))):
        write_whole(store.folder / name, text)
        print(f"{args.folder}/{name}: {len(rows)} rows")
    write_sqlite(store.folder / "index.sqlite", rows)
    print(f"{args.folder}/index.sqlite: {len(rows)} rows")
    if broken:
        print(f"mb index: left out {len(broken)} files that are no results, such as {broken[0]}", file=sys.stderr)
    return ExitCode.OK
