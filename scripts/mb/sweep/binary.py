"""What the sweep asks of meshbench before it runs a case: meshbench check --lines."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess

from mb.errors import UserError
from mb.exit_codes import ExitCode

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILT = ROOT / "build" / "cpu" / "bench" / "meshbench"


def program():
    """That which MESHBENCH names, the one built here, or the one on the PATH."""
    named = os.environ.get("MESHBENCH")
    found = named or (str(BUILT) if BUILT.exists() else shutil.which("meshbench"))
    path = shutil.which(found) if found else None
    if path is None:
        raise UserError(f"{named or 'meshbench'}: no such program; build it with scripts/setup.sh, or name one with "
                        "MESHBENCH=PATH")
    return str(pathlib.Path(path).absolute())


def environment():
    """Ours without variables that change benchmarks behind one's back."""
    return {key: value for key, value in os.environ.items() if not key.startswith("BENCHMARK_")}


def check(program, lines):
    """One row of each case: what it is with all defaults, or why it cannot run."""
    try:
        done = subprocess.run([program, "check", "--lines"], input="".join(f"{line}\n" for line in lines), text=True,
                              capture_output=True, env=environment())
    except OSError as error:
        raise UserError(f"{program}: cannot be started: {error.strerror}") from None
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.endswith("}")]
    if len(rows) != len(lines):
        failed = lines[len(rows)] if len(rows) < len(lines) else "?"
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise UserError(f"{program} check gave no answer to: {failed}: {last}", ExitCode.NO_VERDICT)
    return rows


def build_of(row, program):
    """What tells builds apart; one of changed sources by its bytes too."""
    build = dict(row["build"])
    if build["git"] is None or build["dirty"] is not False:
        build["program"] = hashlib.sha256(pathlib.Path(program).read_bytes()).hexdigest()[:16]
    return build
