"""What became of one attempt at a case: a status, why, and whether trying again may help."""

import dataclasses
import pathlib
import re
import signal

from mb import rows
from mb.sweep import symptoms
from mb.sweep.store import strict

OOM_EXIT, USAGE_EXIT, INTERRUPTED_EXIT = 66, 2, 130
LAST_LINES = 50


@dataclasses.dataclass(frozen=True)
class Outcome:
    status: str
    detail: dict  # status_detail of the row
    row: dict | None = None  # that the program wrote
    retry: bool = False
    by_text: bool = False  # judged by what the program said

    @property
    def signature(self):
        """Equal for crashes of the same kind: without numbers."""
        message = re.sub(r"0x[0-9a-f]+|\d+", "#", str(self.detail.get("message")))
        return self.status, self.detail.get("code"), self.detail.get("signal"), message


def oom_kills(root="/"):
    """How often the kernel has killed for memory in our cgroup, else on this machine; None where it does not say."""
    root = pathlib.Path(root)
    try:
        own = (root / "proc/self/cgroup").read_text(encoding="utf-8").strip().rpartition("::")[2]
        places = [root / "sys/fs/cgroup" / own.strip("/") / "memory.events", root / "sys/fs/cgroup/memory.events"]
    except OSError:
        places = []
    for place in [*places, root / "proc/vmstat"]:
        try:
            if found := re.search(r"^oom_kill (\d+)$", place.read_text(encoding="utf-8"), re.M):
                return int(found[1])
        except OSError:
            continue
    return None


def row_of(file):
    """The row in a file, or why there is none."""
    try:
        row = strict(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, "wrote no row"
    except (OSError, ValueError) as error:
        return None, f"wrote no row that can be read: {error}"
    error = rows.fault(row)
    return (row, None) if error is None else (None, f"wrote no row by the schema: {error.json_path}: {error.message[:200]}")


def tail(file, lines=LAST_LINES):
    """The last lines of what a program wrote."""
    try:
        with open(file, "rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - 64 * 1024))
            text = stream.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return [re.sub(r".*\r", "", line) for line in text.splitlines()[-lines:]]


def _said(lines):
    return next((line for line in reversed(lines) if line.strip()), "")[:500]


def _signal_of(code):
    """Of a process or, as shells and launchers pass it on, of one of its children."""
    if code < 0:
        return -code
    return code - 128 if 128 < code < 128 + 65 and code != INTERRUPTED_EXIT else None


def judge(code, folder, *, stopped=None, limit_s=None, more_oom_kills=False, slurm_state=None):
    """What an attempt in `folder` came to that ended with `code`; `stopped`: timeout or cancelled, if it was us."""
    lines = tail(folder / "stderr")
    row, why = row_of(folder / "row.json")
    number = _signal_of(code)
    said = {"code": code if number is None else None, "signal": number}
    if stopped == "timeout":
        return Outcome("timeout", {**said, "message": f"not done after {limit_s:.0f} s, the time limit", "phase": "run"}, row)
    if stopped == "cancelled":
        return Outcome("cancelled", {**said, "message": "stopped with the sweep", "phase": "run"})
    if code == 0:
        return (Outcome(row["status"], row["status_detail"], row) if row else
                Outcome("crash", {**said, "message": f"exit 0, and {why}", "phase": "run"}))
    if row and row["status"] == "oom":
        return Outcome("oom", row["status_detail"], row)
    if code == OOM_EXIT:
        return Outcome("oom", {**said, "message": _said(lines) or "out of memory", "phase": "run"})
    if found := symptoms.find("\n".join(lines)):
        status, phase = found
        return Outcome(status, {**said, "message": _said(lines), "phase": phase}, by_text=True)
    if number == signal.SIGKILL and (more_oom_kills or slurm_state == "OUT_OF_MEMORY"):
        return Outcome("oom", {**said, "message": "killed by the kernel for memory", "phase": "host"})
    if number == signal.SIGKILL or slurm_state in ("NODE_FAIL", "PREEMPTED"):
        status = "cancelled" if slurm_state else "crash"
        return Outcome(status, {**said, "message": f"killed from outside{f' ({slurm_state})' if slurm_state else ''}",
                                "phase": "run"}, retry=True)
    if code == INTERRUPTED_EXIT:
        return Outcome("cancelled", {**said, "message": "interrupted from outside", "phase": "run"})
    if code == USAGE_EXIT:
        return Outcome("invalid", {**said, "message": _said(lines), "phase": "run"})
    what = signal.Signals(number).name if number and number in set(signal.Signals) else f"exit {code}"
    return Outcome("crash", {**said, "message": f"{what}: {_said(lines)}".rstrip(": "), "phase": "run"}, row)
