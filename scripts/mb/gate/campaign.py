"""Launches of two builds in pairs: which ones, in which order, and kept on disk.

The two launches of a pair follow each other in random order, and pairs of all cases take turns, so that drift of the
machine meets both builds alike. A pair is one file, renamed into place when both have ended: what is there is whole,
and the same command goes on where an interrupted one stopped.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import random
import sys
import tempfile
import time

from mb import rows as rows_of
from mb.errors import UserError
from mb.exit_codes import ExitCode
from mb.gate import evidence, launch, registry, statistics, timed, verdict
from mb.gate.evidence import RAN

ROLES = ("base", "candidate")
EXACT_LAUNCHES, COUNTED_LAUNCHES = 2, 3  # of a case in which nothing is timed
HOPELESS = 2  # launches of a side that all failed: it is not launched again
CALM_WAIT_S = 120


@dataclasses.dataclass(frozen=True)
class Pair:
    """A launch of the base and one of the candidate: rows of each, those of a failed launch included."""

    case: int
    number: int
    sides: tuple


def measure(cases, take, say=lambda text: None, test="t"):
    """(pairs, decisions) of all stages; take(case, number) launches a pair of the case of that number.

    Decisions are the fields of findings on timed metrics, by (key, metric).
    """
    pairs, following = [], [0] * cases

    def draw(chosen, n):
        drawn = []
        for i in range(n):
            say(f"confirming {len(chosen)} of {cases} cases: pair {i + 1} of {n}")
            for case in chosen:
                drawn.append(take(case, following[case]))
                following[case] += 1
        pairs.extend(drawn)
        return drawn

    going = set(range(cases))
    for i in range(statistics.FIRST_PAIRS):
        if going:
            say(f"{len(going)} of {cases} cases: pair {i + 1} of {statistics.FIRST_PAIRS}")
        for case in sorted(going):
            pairs.append(take(case, following[case]))
            following[case] += 1
            if _enough([pair for pair in pairs if pair.case == case]):
                going.discard(case)
    return pairs, timed.decide(list(pairs), draw, cases, test)


def _enough(pairs):
    """Whether more launches of a case would say nothing new."""
    for side in range(2):
        failed = [not any(row["status"] in RAN for row in pair.sides[side]) for pair in pairs]
        if len(failed) >= HOPELESS and all(failed):
            return True
    classes = {entry["class"] for pair in pairs for side in pair.sides for row in side if row["status"] in RAN
               for name, value in evidence.values_of(row).items() if evidence.finite(value.value)
               and (entry := registry.find(name, bool(row.get("virtual_time"))))}
    if "timed" in classes or not classes:
        return False
    return len(pairs) >= (COUNTED_LAUNCHES if "counted" in classes else EXACT_LAUNCHES)


def judge(pairs, decisions, any_fingerprint=False):
    """Findings on what measure() returned."""
    sides = [[], []]
    for case in sorted({pair.case for pair in pairs}):
        own = [pair for pair in pairs if pair.case == case]
        for side, rows in enumerate(sides):
            rows += _aligned(own, side)
    return verdict.compare(*sides, decisions, any_fingerprint)


def _aligned(pairs, side):
    """Rows of one side of a case; a failed launch stands for every row that a launch of the case has."""
    known = {}
    for row in (row for pair in pairs for rows in pair.sides for row in rows if row["status"] in RAN):
        known.setdefault(evidence.key_of(row), row)
    heads = [{name: row[name] for name in ("suite", "case", "case_version", "params", "placement") if name in row}
             for row in known.values()]
    aligned = []
    for row in (row for pair in pairs for row in pair.sides[side]):
        aligned += [row] if row["status"] in RAN or not heads else [{**row, **head} for head in heads]
    return aligned


class Store:
    """The folder of a campaign: what is compared, and a file for each pair of launches."""

    def __init__(self, folder, builds, cases, seed):
        self.builds, self.cases, self.seed = builds, cases, seed
        self.digests = {role: _digest(path) for role, path in builds.items()}
        wanted = {"schema": "meshbench-campaign/1", "seed": seed, "cases": cases, "builds": self.digests}
        self.id = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = pathlib.Path(folder or f"gate/{self.id}")
        self.found = 0  # pairs that were there already
        note = self.folder / "campaign.json"
        try:
            (self.folder / "rows").mkdir(parents=True, exist_ok=True)
            if note.exists():
                _require_same(json.loads(note.read_text(encoding="utf-8")), wanted, self.folder)
            else:
                _write(note, json.dumps({**wanted, "paths": {role: str(path) for role, path in builds.items()}},
                                        indent=1) + "\n")
        except (OSError, ValueError) as error:
            raise UserError(f"{self.folder}: cannot keep rows there: {error}; name another folder with -o") from None

    def take(self, case, number):
        """The pair of a case, from disk or by launching it."""
        file = self.folder / "rows" / f"{case:03}-{number:03}.jsonl"
        if file.exists():
            self.found += 1
            rows = rows_of.load([file])
            pair = Pair(case, number, tuple([row for row in rows if row["role"] == role] for role in ROLES))
        else:
            pair = self._launch(case, number, file)
        refusals = [row for side in pair.sides for row in side if row["status"] == "invalid"]
        if len(refusals) == 2:
            raise UserError(f'"{self.cases[case]}": both builds refuse it: {refusals[0]["status_detail"]["message"]}')
        return pair

    def _launch(self, case, number, file):
        order = list(ROLES)
        random.Random(f"{self.seed} {case} {number}").shuffle(order)
        rows = {}
        for place, role in enumerate(order):
            program = pathlib.Path(self.builds[role]).absolute()
            rows[role] = launch.launch(program, self.cases[case], role, number, place, self.id)
        pair = Pair(case, number, tuple(rows[role] for role in ROLES))
        try:
            _write(file, "".join(json.dumps(row, allow_nan=False) + "\n" for role in order for row in rows[role]))
        except OSError as error:
            raise UserError(f"{file}: cannot be written: {error.strerror}; all pairs before it are kept") from None
        return pair


def _digest(path):
    try:
        if not os.access(path, os.X_OK) or not pathlib.Path(path).is_file():
            raise UserError(f"{path}: no program to launch; name that of a build, such as build/cpu/bench/meshbench")
        return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _require_same(kept, wanted, folder):
    differing = [name for name in wanted if not isinstance(kept, dict) or kept.get(name) != wanted[name]]
    if differing:
        raise UserError(f"{folder}: holds launches of other {' and '.join(differing)}; name another folder with -o")


def _write(file, text):
    """Writes a file whole or not at all."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with part.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        part.rename(file)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def machine_to_itself():
    """Holds the lock that says that a gate times launches on this machine; two at once would time each other."""
    file = pathlib.Path(tempfile.gettempdir()) / "meshbench-gate.lock"
    try:
        lock = file.open("a")
    except PermissionError:  # another user made it, and a lock needs no more than to read it
        lock = file.open()
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError("another gate times launches on this machine; start again when it has ended",
                            ExitCode.NO_VERDICT) from None
        yield


def wait_for_calm(say):
    """Why times would not be trusted, after a build, say, has had time to fade; None if the machine is calm."""
    cores = len(os.sched_getaffinity(0))
    until = time.monotonic() + CALM_WAIT_S
    while (load := os.getloadavg()[0]) > cores:
        if time.monotonic() > until:
            return f"load average {load:.2g} on {cores} cores"
        left = until - time.monotonic()
        say(f"load average {load:.2g} on {cores} cores; waiting until it falls, {left:.0f} s at most")
        time.sleep(10)
    return None


class Progress:
    """Lines on stderr, half a minute apart."""

    def __init__(self, out=None):
        self.out, self.last, self.start = out or sys.stderr, float("-inf"), time.monotonic()

    def __call__(self, text):
        if time.monotonic() - self.last >= 30:
            self.last = time.monotonic()
            print(f"gate: {text}, {self.last - self.start:.0f} s so far", file=self.out, flush=True)
