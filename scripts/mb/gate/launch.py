"""One launch of one build on one case: the rows that it wrote, or a row that says how it failed."""

import contextlib
import datetime
import functools
import math
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile

from mb import rows as rows_of
from mb.gate.evidence import RAN

TIMEOUT_S = 3600
# Verbs of meshbench that measure, what they print least with, and the suite of their rows.
VERBS = {"run": (["-q", "--no-progress"], "step"), "sim": (["-q", "--no-progress"], "step"), "coll": ([], "coll"),
         "place": ([], "place")}
STATUS_OF_EXIT = {2: "invalid", 66: "oom"}
UNKNOWN = {"build": {"git": None, "dirty": None, "type": "unknown", "flags_hash": "0" * 16, "compiler": "unknown"},
           "fingerprint": {"id": "0" * 16, "hard": {}, "soft": {}}}


def words_of(case):
    """(verb, words) of a case: "model=gpt-1m mesh=dp2", or "coll op=all_reduce size=1M" with a verb in front."""
    words = shlex.split(case)
    if words and "=" not in words[0]:
        return words[0], words[1:]
    return "run", words


def ranks_of(case):
    """How many ranks a case says that it has; None where it does not, as one that is named."""
    mesh = next((word.partition("=")[2] for word in words_of(case)[1] if word.startswith("mesh=")), None)
    return None if mesh is None else math.prod(int(size) for size in re.findall(r"[a-z]+([0-9]+)", mesh))


def cpus_for(ranks, cpus):
    """The CPUs that a launch keeps to, out of those that we may use; None leaves it all of them.

    Two for each rank, as collectives run beside computation, at the end of the list: the first ones serve most
    interrupts. Nothing is kept to fewer than that, so that no two ranks share a core.
    """
    wanted = 2 * (ranks or len(cpus))
    return sorted(cpus)[-wanted:] if wanted < len(cpus) else None


def listed(cpus):
    """"0-3,8" of CPUs, as the kernel writes it."""
    found = []
    for cpu in sorted(cpus):
        if found and found[-1][1] == cpu - 1:
            found[-1][1] = cpu
        else:
            found.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def refusal(program, case):
    """Why a build does not take a case of a step, before anything is launched; None if it does or nobody can say."""
    verb, words = words_of(case)
    if VERBS[verb][1] != "step":
        return None
    words += ["mode=sim"] if verb == "sim" else []
    code, said = _run([str(program), "check", *words], None)
    return _outcome(code, said, [], None)[1]["message"] if code == 2 else None


def launch(program, case, role, pair, order, campaign_id):
    """Rows of one launch; those of a failed one say why. "affinity" is where it ran, and whether we kept it there."""
    verb, words = words_of(case)
    quiet, suite = VERBS[verb]
    usable = os.sched_getaffinity(0)
    kept = cpus_for(ranks_of(case), usable)
    with tempfile.TemporaryDirectory(prefix="meshbench-gate-") as folder:
        out = pathlib.Path(folder) / ("rows.jsonl" if suite != "step" else "row.json")
        code, said = _run([str(program), verb, *words, *quiet, "-o", str(out)], kept)
        found, why = _rows(out)
    status, detail = _outcome(code, said, found, why)
    if status:
        unfinished = [row for row in found if row["status"] not in RAN]
        found = unfinished or [_failed(suite, case, status, detail)]
    affinity = {"cpus": listed(kept or usable), "pinned": kept is not None}
    return [{**row, "role": role, "pair": pair, "order": order, "campaign_id": campaign_id, "affinity": affinity}
            for row in found]


def _run(command, cpus):
    """(exit status, or minus the signal, or None when out of time; end of stderr) of a command on some CPUs."""
    keep = functools.partial(os.sched_setaffinity, 0, cpus) if cpus else None
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True, errors="replace", start_new_session=True, preexec_fn=keep)
    try:
        _, said = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        return None, ""
    finally:  # also on Ctrl-C
        _end(process)


def _end(process):
    if process.poll() is not None:
        return
    for number, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(patience)
            return
        except subprocess.TimeoutExpired:
            continue


def _rows(out):
    """(rows, why there are none) of what a launch wrote."""
    if not out.exists():
        return [], "it wrote no row"
    try:
        found = rows_of.load([out], foreign=True)
    except rows_of.RowError as error:
        return [], str(error).replace(str(out), "its row")
    return found, "" if found else "it wrote no row"


def _outcome(code, said, found, why):
    """(status, status_detail) of a launch that failed; (None, None) of one that did not."""
    lines = [line for line in said.strip().splitlines() if line.strip()][-5:]
    message = " / ".join(lines)[-1000:]
    if code is None:
        return "timeout", {"message": f"no end after {TIMEOUT_S} s"}
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return "crash", {"signal": -code, "message": f"{name}{': ' if message else ''}{message}"}
    if code > 0:
        return STATUS_OF_EXIT.get(code, "crash"), {"code": code, "message": f"exit {code}: {message}"}
    return ("crash", {"code": 0, "message": f"exit 0, but {why}"}) if why and not found else (None, None)


def _failed(suite, case, status, detail):
    """A row of a launch that left none."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"schema": "meshbench-row/1", "run_id": os.urandom(8).hex(), "campaign_id": None, "time_utc": now,
            "suite": suite, "case": case, "case_version": 1, "params": {}, "key": "0" * 16, **UNKNOWN,
            "role": "single", "pair": None, "order": None, "seed": None, "status": status, "status_detail": detail,
            "metrics": {}, "ranks": {}, "env": {}, "artifacts": {}, "raw": None}
