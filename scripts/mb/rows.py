"""mb rows PATH...: the rows that meshbench wrote, checked against their schema, as a table.

PATH is a row (.json), a file of rows (.jsonl, one a line; .csv, as meshbench coll writes it), one of these in
xz (.jsonl.xz), or a folder of these; of a folder that mb sweep -o made its results.
"""

import argparse
import contextlib
import csv
import difflib
import functools
import io
import json
import lzma
import math
import pathlib
import re

from mb.errors import UserError
from mb.exit_codes import ExitCode

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "bench" / "report" / "row.schema.json"
NOT_FINITE = "not finite"  # how the reason of a metric begins that was NaN or infinite


class RowError(UserError):
    """What is wrong with a row, where, and what would do."""


def _no_constant(name):
    raise ValueError(f"{name} is not JSON")


def _parse(text, where, foreign=False):
    try:
        return _as_null(json.loads(text)) if foreign else json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise RowError(f"{where}: not a row: {error}; write it again with meshbench run --out") from None


def _as_null(value):
    """The same with null for numbers that are not finite, and with the reason where a metric takes one."""
    if isinstance(value, dict):
        if "unit" in value and "value" in value:
            numbers = [value["value"], *value.get("samples", []), *(value.get(key) for key in ("min", "median", "mean"))]
            wrong = [number for number in numbers if isinstance(number, float) and not math.isfinite(number)]
            if wrong:
                return {"value": None, "unit": value["unit"], "n": 0, "reason": f"{NOT_FINITE}: {wrong[0]} in the file"}
        return {key: _as_null(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_as_null(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@functools.cache
def _validator():
    import jsonschema

    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


@functools.cache
def _fast_validator():
    """One that says only whether a row is valid, in a hundredth of the time; None where it is not installed."""
    try:
        import jsonschema_rs
    except ImportError:
        return None
    return jsonschema_rs.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def fault(row):
    """The first thing that is wrong with a row by the schema, as jsonschema's error; None if nothing is."""
    import jsonschema

    fast = _fast_validator()
    with contextlib.suppress(ValueError):  # a number too large for it
        if fast is not None and fast.is_valid(row):
            return None
    return jsonschema.exceptions.best_match(_validator().iter_errors(row))


def _require_valid(row, where):
    error = fault(row)
    if error is not None:
        message = error.message if len(error.message) < 200 else error.message[:200] + "..."
        raise RowError(f"{where}: {error.json_path}: {message}; see bench/report/row.schema.json")


def _form(file):
    """How a file's text is written: ".jsonl" of rows.jsonl and of rows.jsonl.xz."""
    return pathlib.Path(file.stem).suffix if file.suffix == ".xz" else file.suffix


def _read(file):
    data = file.read_bytes()
    return (lzma.decompress(data) if file.suffix == ".xz" else data).decode("utf-8")


def is_sweep(folder):
    """Whether mb sweep -o made it."""
    folder = pathlib.Path(folder)
    return (folder / "plan.json").is_file() and (folder / "results").is_dir()


def _results_of(sweep):
    """The results in the folder of a sweep, in its order; those of other sweeps or builds behind."""
    try:
        cases = json.loads((sweep / "plan.json").read_text(encoding="utf-8"))["cases"]
        place = {case["key"]: number for number, case in enumerate(cases)}
    except (OSError, ValueError, KeyError, TypeError):
        place = {}
    return sorted((sweep / "results").rglob("*.json"), key=lambda file: (place.get(file.stem, len(place)), file))


def files_of(path):
    """The files of rows that a path stands for, sorted."""
    path = pathlib.Path(path)
    if is_sweep(path):
        return _results_of(path)
    if path.is_dir():
        sweeps = sorted(plan.parent for plan in path.rglob("plan.json") if is_sweep(plan.parent))
        files = sorted(f for f in path.rglob("*") if _form(f) in (".json", ".jsonl", ".csv")
                       and not any(f.is_relative_to(sweep) for sweep in sweeps))
        return files + [f for sweep in sweeps for f in _results_of(sweep)]
    if not path.exists():
        raise RowError(f"{path}: no such file; make it with meshbench run ... --out {path}")
    return [path]


def _is_text(path):
    """Whether the schema has text at a path of keys, so that 12e345678 is a name there and no number."""
    field = _validator().schema
    for key in path:
        field = field.get("properties", {}).get(key, {})
    return field.get("type") in ("string", ["string", "null"])


def _cell(path, text):
    """What a cell of a CSV holds: JSON, or text that JSON does not take."""
    if _is_text(path) and text != "null" and not text.startswith('"'):
        return text
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return text


def _from_cells(columns, cells):
    """A row of nested objects from JSON pointers and their cells; an empty cell is of another row."""
    row = {}
    for column, cell in zip(columns, cells):
        if cell == "":
            continue
        path = [key.replace("~1", "/").replace("~0", "~") for key in column.split("/")[1:]]
        place = row
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = _cell(path, cell)
    return row


def _rows_of(file, text, foreign):
    """(place, row) of all rows of a file."""
    if _form(file) == ".csv":
        columns, *lines = csv.reader(text.splitlines()) if text.strip() else [[]]
        if wrong := [column for column in columns if not column.startswith("/")]:
            raise RowError(f'{file}: its column "{wrong[0]}" is no place in a row, such as /coll/bytes; a CSV of rows is what '
                           "meshbench coll --csv writes")
        for number, cells in enumerate(lines, 2):
            if len(cells) != len(columns):
                raise RowError(f"{file}:{number}: has {len(cells)} cells for {len(columns)} columns")
            yield f"{file}:{number}", _from_cells(columns, cells)
    elif _form(file) == ".jsonl":
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield f"{file}:{number}", _parse(line, f"{file}:{number}", foreign)
    else:
        yield str(file), _parse(text, str(file), foreign)


def load(paths, foreign=False):
    """Rows of files and folders, in order, each valid.

    `foreign` takes the bare NaN and Infinity that other programs write for null.
    """
    rows = []
    for file in (f for path in paths for f in files_of(path)):
        try:
            text = _read(file)
        except (OSError, UnicodeDecodeError, lzma.LZMAError) as error:
            raise RowError(f"{file}: cannot be read: {error}") from None
        for where, row in _rows_of(file, text, foreign):
            _require_valid(row, where)
            rows.append(row)
    return rows


def select(rows, conditions):
    """Rows that meet every "key=value" of `conditions`: a field of params, or a scalar at the top."""
    wanted = []
    for condition in conditions:
        key, equals, value = condition.partition("=")
        if not equals or not key:
            raise RowError(f'"{condition}" is no condition; write key=value, for example mesh=pp4', ExitCode.USAGE)
        wanted.append((key, value))
    keys = {key for row in rows for key in row["params"]}
    keys |= {key for row in rows for key, value in row.items() if not isinstance(value, (dict, list))}
    for key, _ in wanted:
        if rows and key not in keys:
            near = difflib.get_close_matches(key, keys, 1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise RowError(f"no row has a key {key}; {meant}keys are {', '.join(sorted(keys))}")
    return [row for row in rows
            if all(_text(row["params"].get(key, row.get(key))) == value for key, value in wanted)]


def _text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def metric(row, name):
    """{value, min, max, n, ...} of a metric that was measured, else None."""
    found = row["metrics"].get(name)
    if found is None or found["value"] is None or not math.isfinite(found["value"]):
        return None
    samples = found.get("samples") or [found["value"]]
    return {**found, "min": min(samples), "max": max(samples)}


def value(row, name):
    found = metric(row, name)
    return None if found is None else found["value"]


def axes(row):
    """Ranks by axis; of a row that was not run, as its case says."""
    if "mesh" in row:
        return row["mesh"]["axes"]
    return {name: int(count) for name, count in re.findall(r"([a-z]+)(\d+)", str(row["params"].get("mesh", "")))}


def stages(row):
    return axes(row).get("pp", 1)


def micro_batches(row):
    """Micro-batches of a pipeline in a step."""
    params, ranks = row["params"], axes(row)
    if "micro_batches" in params:
        return int(params["micro_batches"])
    shares = ranks.get("rdp", 1) * ranks.get("dp", 1) * ranks.get("ep", 1)
    return int(params["global_batch"]) // int(params["micro_batch"]) // shares


def _scaled(number, factor, digits):
    return "-" if number is None else f"{number * factor:,.{digits}f}"


def losses(row):
    """The loss of every step, the warm-up included where the row has it; empty in virtual time."""
    trained = (row.get("training") or {}).get("losses")
    return trained or (row["metrics"].get("loss") or {}).get("samples") or []


COLUMNS = ("mesh", "step ms", "tokens/s", "MFU %", "bubble %", "own cores %", "theory %",
           "exposed comm %", "peak MiB", "loss", "verified")
NOTES = """\
Medians over steps. bubble: share of the pipeline window in which a stage computes nothing, waiting for a core
included; own cores: the same steps replayed as if every rank had a core; theory: the schedule's closed form.
exposed comm: communication that no computation hides, as share of the step."""


def _cells(row):
    name = row["params"].get("mesh", row["case"])
    if row["status"] != "ok" or row["suite"] != "step":
        shown = row["suite"] if row["status"] == "ok" else row["status"]
        return [str(name), shown, *["-"] * (len(COLUMNS) - 2)]
    loss = losses(row)
    bubbles = [value(row, "bubble_fraction"), value(row, "bubble_fraction_own_cores"),
               row["theory"]["bubble_fraction"]] if stages(row) > 1 else [None] * 3
    return [
        str(name),
        _scaled(value(row, "step_s"), 1e3, 1),
        _scaled(value(row, "tokens_per_s"), 1, 0),
        _scaled(value(row, "mfu"), 100, 1),
        *(_scaled(bubble, 100, 1) for bubble in bubbles),
        _scaled(value(row, "exposed_fraction"), 100, 1),
        _scaled(value(row, "peak_bytes"), 2**-20, 1),
        f"{loss[0]:.3f} -> {loss[-1]:.3f}" if loss else "-",
        "yes" if row["verified"]["ok"] else "no",
    ]


COLL_COLUMNS = ("operation", "axis", "group", "place", "bytes", "n", "p50 us", "p99 us", "skew us", "busbw GB/s",
                "reached %", "wrong", "verdict")
COLL_NOTES = """\
p50, p99: from the last start to the last end; skew: from the first start to the last, median; busbw as nccl-tests
defines it; reached: share of its ceiling; wrong: elements; verdict: who holds the group up."""


def _coll_cells(row):
    coll = row["coll"]
    return [coll["operation"], coll["axis"], str(coll["group"]), "in" if coll["in_place"] else "out",
            _text("-" if coll["bytes"] is None else coll["bytes"]), str(coll["completion"]["n"]),
            _scaled(coll["completion"]["p50_s"], 1e6, 2), _scaled(coll["completion"]["p99_s"], 1e6, 2),
            _scaled(coll["skew"]["p50_s"], 1e6, 2), _scaled(value(row, "busbw_bytes_per_s"), 1e-9, 2),
            _scaled(coll["expected"]["fraction"], 100, 0),
            _text("-" if coll["check"]["wrong"] is None else coll["check"]["wrong"]), coll["verdict"]["fault"]]


def table(rows):
    """One line a step; "-" where there is no number."""
    return _table(COLUMNS, map(_cells, rows))


def coll_table(rows):
    """One line a collective."""
    return _table(COLL_COLUMNS, map(_coll_cells, rows))


def csv_table(columns, lines):
    """The same cells for a spreadsheet: no thousands separators, nothing where there is no number."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        [columns, *([re.sub(r"(?<=\d),(?=\d{3})", "", cell) if cell != "-" else "" for cell in line] for line in lines)])
    return out.getvalue().rstrip("\n")


def markdown_table(columns, lines):
    def cells(line):
        return "| " + " | ".join(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in line) + " |"

    return "\n".join([cells(columns), "|" + " --- |" * len(columns), *map(cells, lines)])


def _table(columns, lines):
    cells = [list(columns), *lines]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(line[1:], widths[1:])])
        for line in cells)


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="mb rows", description=__doc__.split("\n")[0],
        epilog="Examples:\n"
               "  mb rows results/quickstart/rows\n"
               "  mb rows results/quickstart/rows --where schedule=gpipe --json\n"
               "  mb rows results/quickstart/rows --markdown\n"
               "Exit codes: 0 done; 2 wrong use; 4 no row, or one that cannot be read.",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--where", action="append", default=[], metavar="KEY=VALUE",
                        help="only rows with this parameter; may be given several times")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print the rows, one a line")
    forms.add_argument("--csv", action="store_true", help="print the table as CSV")
    forms.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    args = parser.parse_args(argv)
    rows = select(load(args.paths), args.where)
    if not rows:
        raise RowError(f"{' '.join(args.paths)}: no row; make one with meshbench run ... --out FILE")
    if args.json:
        print("\n".join(json.dumps(row) for row in rows))
        return 0
    steps, colls = ([row for row in rows if (row["suite"] == "coll") is is_coll] for is_coll in (False, True))
    if args.csv or args.markdown:
        form = csv_table if args.csv else markdown_table
        told = [form(COLUMNS, map(_cells, steps))] if steps else []
        print("\n\n".join([*told, *([form(COLL_COLUMNS, map(_coll_cells, colls))] if colls else [])]))
        return 0
    parts = [f"{table(steps)}\n\n{NOTES}"] if steps else []
    parts += [f"{coll_table(colls)}\n\n{COLL_NOTES}"] if colls else []
    print("\n\n".join(parts))
    return 0
