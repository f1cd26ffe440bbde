"""Cases of a sweep as tasks of Slurm arrays: a script and a manifest for each shape, submitted by sbatch.

Tasks of an array share nodes and limits. A task runs the same driver for its case alone, so that claims, outcomes
and results are those of a sweep by hand.
"""

import json
import math
import os
import pathlib
import re
import shlex
import string
import subprocess
import sys

from mb.errors import UserError
from mb.sweep.estimate import LEAST_LIMIT_S, LIMIT_TIMES
from mb.sweep.outcome import Outcome
from mb.sweep.store import write_whole, writing

TEMPLATE = pathlib.Path(__file__).with_name("slurm.sbatch")
PACKAGE = pathlib.Path(__file__).resolve().parents[2]
BIGGEST_ARRAY = 1001  # Slurm's default of MaxArraySize
START_MINUTES = 5  # of a job, beside its case


def _ask(*command):
    """What a Slurm command prints, or None where it cannot say."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def state_of_this_job():
    """Of the job that this process is part of, as sacct names it; None outside of Slurm."""
    job = os.environ.get("SLURM_JOB_ID")
    return state_of(job) if job else None


def state_of(job):
    """The worst state of a job and its steps, without "by 1000" and "+"; None where nobody knows."""
    told = _ask("sacct", "-n", "-X" if "_" in job else "-P", "-j", job, "-o", "State")
    states = re.findall(r"[A-Z_]+", told or "")
    return next((state for state in ("OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "TIMEOUT", "CANCELLED") if state in states),
                states[0] if states else None)


def _shape(point, spec):
    """(nodes, tasks a node, minutes): what tasks of an array have in common; minutes in powers of two."""
    per_node = spec.get("ranks_per_node", 8)
    ranks = point.ranks if point.mode == "mpi" else 1
    limit_s = max(LEAST_LIMIT_S, LIMIT_TIMES * point.predicted_s)
    minutes = START_MINUTES + 2 ** math.ceil(math.log2(max(1, limit_s / 60)))
    return max(1, math.ceil(ranks / per_node)), min(ranks, per_node), minutes


def arrays(points, spec):
    """[(shape, points)], none larger than an array may be."""
    groups = {}
    for point in points:
        groups.setdefault(_shape(point, spec), []).append(point)
    most = spec.get("max_array_size", BIGGEST_ARRAY)
    return [(shape, group[k:k + most]) for shape, group in sorted(groups.items()) for k in range(0, len(group), most)]


def script(sweep, folder, number, shape, first, count, total):
    """The text of an array's script. Every value is quoted; one that the template has and we have not is an error."""
    spec = sweep.spec.get("slurm", {})
    nodes, tasks, minutes = shape
    base = pathlib.Path(folder) / "slurm"
    extra = [f"#SBATCH --{key}={spec[key]}" for key in ("partition", "account") if key in spec]
    quoted = {"program": sweep.program, "package": PACKAGE, "python": sys.executable, "file": sweep.file,
              "folder": folder, "manifest": base / f"array{number}.txt"}
    return string.Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        {key: shlex.quote(str(value)) for key, value in quoted.items()},
        name=sweep.name, first=first + 1, last=first + count, total=total, last_index=count - 1,
        parallel=spec.get("parallel", count), nodes=nodes, tasks=tasks, cores=spec.get("cores_per_rank", 1),
        minutes=minutes, logs=base / "logs", extra="\n".join(extra) or "# (default partition and account)",
        setup="\n".join(spec.get("setup", [])) or "# (no setup)")


def submitted(store):
    """{config hash: task} of all submissions, the last one of each; lines that cannot be read are left out."""
    tasks = {}
    file = store.folder / "slurm" / "submitted.jsonl"
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []:
        try:
            entry = json.loads(line)
            tasks.update({config: f"{entry['job']}_{k}" for k, config in enumerate(entry["configs"])})
        except (ValueError, KeyError, TypeError):
            continue
    return tasks


def queued(tasks):
    """Those of {config: task} that Slurm still has: squeue lists each as 12_3."""
    if not tasks:
        return {}
    jobs = ",".join(sorted({task.partition("_")[0] for task in tasks.values()}))
    told = _ask("squeue", "-h", "-r", "-j", jobs, "-o", "%i %T")
    there = {line.split()[0] for line in (told or "").splitlines() if line.strip()}
    return {config: task for config, task in tasks.items() if task in there}


def lost(task):
    """The outcome of a task that has left the queue and no result: what Slurm says of it; None to run it again."""
    state = state_of(task)
    if state == "OUT_OF_MEMORY":
        return Outcome("oom", {"message": f"Slurm task {task}: OUT_OF_MEMORY", "phase": "host"})
    if state == "TIMEOUT":
        return Outcome("timeout", {"message": f"Slurm task {task}: TIMEOUT, the time limit of the job", "phase": "run"})
    return None


def submit(sweep, store, points):
    """Writes and submits arrays for all points; returns [(job, number of tasks)]."""
    base = store.folder / "slurm"
    with writing(base):
        (base / "logs").mkdir(parents=True, exist_ok=True)
    jobs, first = [], 0
    number = len(list(base.glob("array*.sbatch")))
    for shape, group in arrays(points, sweep.spec.get("slurm", {})):
        configs = [point.config_hash for point in group]
        write_whole(base / f"array{number}.txt", "".join(f"{config}\n" for config in configs))
        file = base / f"array{number}.sbatch"
        write_whole(file, script(sweep, store.folder, number, shape, first, len(group), len(points)))
        jobs.append((_sbatch(file), len(group)))
        _append(base / "submitted.jsonl", {"job": jobs[-1][0], "script": file.name, "configs": configs})
        first, number = first + len(group), number + 1
    return jobs


def _sbatch(file):
    try:
        done = subprocess.run(["sbatch", "--parsable", str(file)], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"sbatch cannot be started: {error}; submit where Slurm is, or leave --slurm out") from None
    if done.returncode != 0:
        raise UserError(f"sbatch {file}: {done.stderr.strip()}; what was submitted before stays; start again for the rest")
    return done.stdout.strip().partition(";")[0]


def _append(file, entry):
    """A line of its own, whatever half a line another writer may have left."""
    with writing(file), open(file, "a+b") as stream:
        size = stream.seek(0, 2)
        torn = size > 0 and (stream.seek(size - 1), stream.read(1))[1] != b"\n"
        stream.write((b"\n" if torn else b"") + json.dumps(entry).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
