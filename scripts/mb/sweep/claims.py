"""Who runs a case just now, so that any number of drivers can work on one sweep.

A claim comes into being whole, by a link that fails where there is one already. Its holder touches it every
BEAT_S. It is dead at once where its process can be seen to be gone (same host, boot and process namespace); else
when MISSED beats are missing and, of a Slurm job, the job is not running.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import time

from mb.sweep.store import HOST, writing

BEAT_S, MISSED = 30, 5


def _text(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _start_of(pid):
    """When a process began, in ticks since the boot: tells it from a later one of the same number."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] != "Z" else None


def _namespace():
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def own():
    """What a claim of this process says."""
    job = os.environ.get("SLURM_ARRAY_JOB_ID") and f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return {"host": HOST, "pid": os.getpid(), "started": _start_of(os.getpid()), "since": time.time(),
            "boot": _text("/proc/sys/kernel/random/boot_id"), "namespace": _namespace(),
            "slurm_job": job or os.environ.get("SLURM_JOB_ID")}


def _job_runs(job):
    try:
        done = subprocess.run(["squeue", "-h", "-j", job, "-o", "%T"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return True  # nobody can say
    return done.returncode == 0 and bool(done.stdout.strip())


def is_dead(claim, age_s):
    """Whether whoever holds a claim, last touched `age_s` ago, is gone."""
    here = own()
    if all(claim.get(field) == here[field] for field in ("host", "boot", "namespace")):
        return claim.get("started") is None or _start_of(claim["pid"]) != claim["started"]
    return age_s > MISSED * BEAT_S and not (claim.get("slurm_job") and _job_runs(claim["slurm_job"]))


def read(path):
    """(claim, seconds since it was touched), or None where there is none."""
    try:
        age_s = time.time() - os.stat(path).st_mtime
        return json.loads(path.read_text(encoding="utf-8")), age_s
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}, float("inf")


class Claims:
    """Those of this driver in a folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.held = set()
        self._beaten = time.monotonic()
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)

    def take(self, key):
        """Whether the case is ours now; the claim of one who is gone is taken over."""
        if self._link(key):
            return True
        found = read(self.folder / key)
        if found is None or not is_dead(*found):
            return False
        # One at a time, and looked at again: another may have taken it over just now.
        with open(self.folder / ".takeover", "a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = read(self.folder / key)
            if found is not None and is_dead(*found):
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / key).unlink()
        return self._link(key)

    def _link(self, key):
        beside = self.folder / f".{key}.tmp.{HOST}.{os.getpid()}"
        with writing(self.folder / key):
            try:
                beside.write_text(json.dumps(own()), encoding="utf-8")
                os.link(beside, self.folder / key)
            except FileExistsError:
                return False
            finally:
                with contextlib.suppress(OSError):
                    beside.unlink()
        self.held.add(key)
        return True

    def leave(self, key):
        self.held.discard(key)
        with contextlib.suppress(OSError):
            (self.folder / key).unlink()

    def beat(self):
        if time.monotonic() - self._beaten < BEAT_S:
            return
        self._beaten = time.monotonic()
        for key in self.held:
            with contextlib.suppress(OSError):
                os.utime(self.folder / key)
