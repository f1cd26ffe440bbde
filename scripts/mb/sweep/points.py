"""The points of a sweep: each a case with its words, identity and prediction, or the rule that it breaks."""

import dataclasses
import hashlib
import pathlib

from mb.errors import UserError
from mb.exit_codes import ExitCode
from mb.sweep import binary
from mb.sweep.expand import expand
from mb.sweep.identity import hash_of, run_key
from mb.sweep.words import line_of, words_of

# Parameters that change no number: names stand for what they name, which is hashed itself.
NOT_IDENTITY = ("model", "machine", "timeout_s")
# Parameters that a row has as numbers; those of a refused case are its words.
NUMBERS = {"zero": int, "chunks": int, "group": int, "dropout": float}


@dataclasses.dataclass(frozen=True)
class Point:
    config: dict  # the values of the sweep's axes and base
    words: tuple
    config_hash: str  # of the case with all defaults
    key: str  # also of build and machine
    row: dict  # head of the row that it will become
    predicted_s: float  # of the whole run
    ranks: int
    status: str | None  # decided before anything ran: invalid, unsupported, oom_predicted
    rule: str | None
    detail: dict

    @property
    def line(self):
        return line_of(self.words)

    @property
    def machine(self):
        """The fingerprint that the key is of: that of the row itself may be another, as launchers bind ranks to cores."""
        return self.row["fingerprint"]["id"]

    @property
    def mode(self):
        return self.row["params"].get("mode", "threads")


@dataclasses.dataclass(frozen=True)
class Sweep:
    name: str
    file: pathlib.Path
    spec: dict
    program: str
    build: dict
    points: list
    duplicates: int
    excluded: int
    idle_excludes: list


def _contents(text):
    """Of a parameter that names a file: what is in it."""
    try:
        return "sha256:" + hashlib.sha256(pathlib.Path(text).read_bytes()).hexdigest()
    except OSError:
        return text


def _identity(row, mpi=None):
    """All that decides the numbers of a case, which `mpi` starts if its ranks are processes."""
    params = {key: value for key, value in row["params"].items() if key not in NOT_IDENTITY}
    for key, value in params.items():
        if isinstance(value, str) and (value.startswith("@") or (key == "data" and value)):
            params[key] = _contents(value.removeprefix("@"))
    made_of = {name: {k: v for k, v in (row["check"][name] or {}).items() if k != "name"}
               for name in ("model", "machine")} if "check" in row else {}
    by = {"mpi": mpi} if mpi and params.get("mode") == "mpi" else {}
    return {"suite": "step", "params": params, **by, **made_of}


def _decided(case, row, reasons, reserve):
    """(status, rule, detail) of a case that is not to be run, else (None, None, {})."""
    if case.broken_rule:
        return "invalid", case.broken_rule, {"message": f"{case.broken_rule}: {reasons[case.broken_rule]}",
                                             "phase": "constraint"}
    if row["status"] != "ok":
        return row["status"], "meshbench", row["status_detail"]
    check = row["check"]
    needed, capacity = check["needed_bytes"], check["capacity_bytes"]
    # In virtual time such a case has a row all the same, with what it would have taken.
    if row["params"]["mode"] != "sim" and needed and capacity and needed > capacity * (1 - reserve):
        return "oom_predicted", "memory", {
            "message": f"needs {needed / 2**30:.2f} GiB of {capacity / 2**30:.2f} GiB, of which {reserve:.0%} stay free",
            "needed_bytes": needed, "capacity_bytes": capacity, "phase": "check"}
    return None, None, {}


def _head(row):
    """The row without what check adds."""
    params = {key: NUMBERS[key](value) if key in NUMBERS else value for key, value in row["params"].items()}
    return {**{key: value for key, value in row.items() if key != "check"}, "suite": "step", "params": params}


def make(file, spec):
    """All points of a sweep, in its order, equal ones merged."""
    expansion = expand(spec)
    program = binary.program()
    words = [words_of(case.settings) for case in expansion.cases]
    rows = binary.check(program, [line_of(line) for line in words])
    reasons = {c["name"]: c["reason"] for c in spec.get("constraints", [])}
    if not rows:
        raise UserError(f"{file}: no case; give axes with values, or include", ExitCode.NO_DATA)
    build = binary.build_of(rows[0], program)
    points = {}
    for case, line, row in zip(expansion.cases, words, rows):
        if row["status_detail"].get("phase") == "words":
            raise UserError(f"{file}: {line_of(line)}: {row['status_detail']['message']}", ExitCode.USAGE)
        status, rule, detail = _decided(case, row, reasons, spec.get("memory_reserve", 0.1))
        identity = _identity(row, spec.get("mpi"))
        check = row.get("check", {})
        point = Point(case.config, tuple(line), hash_of(identity), run_key(identity, build, row["fingerprint"]["id"]),
                      _head(row), check.get("run_s", 0.0), check.get("ranks", 0), status, rule, detail)
        points.setdefault(point.key, point)
    return Sweep(spec["name"], pathlib.Path(file).absolute(), spec, program, build, list(points.values()),
                 expansion.duplicates + len(rows) - len(points), expansion.excluded,
                 expansion.idle_excludes)
