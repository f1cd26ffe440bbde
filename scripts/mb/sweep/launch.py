"""How a case is started: alone, under mpirun, or under srun where Slurm has started us."""

import ctypes
import os
import pathlib
import shlex
import shutil
import signal

from mb.errors import UserError

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def command_of(program, words, ranks, out, mpi=None):
    """The command of a case that writes its row to `out`."""
    return [*launcher_of(words, ranks, mpi), program, "run", *words, "-q", "--no-progress", "-o", str(out)]


def pasteable(program, words, ranks, mpi=None):
    """The same as one would paste it, of no place on this machine: the program as seen from the current folder, if it is
    below that, and a row of any name."""
    below = pathlib.Path(program).absolute()
    named = below.relative_to(pathlib.Path.cwd()) if below.is_relative_to(pathlib.Path.cwd()) else below.name
    return shlex.join(command_of(str(named), words, ranks, "ROW.json", mpi))


def launcher_of(words, ranks, mpi=None):
    if "mode=mpi" not in words:
        return []
    if "SLURM_JOB_ID" in os.environ:
        return ["srun", f"--mpi={'pmi2' if mpi == 'mpich' else 'pmix'}", f"--ntasks={ranks}",
                "--distribution=block:block", "--kill-on-bad-exit=1"]
    names = [f"mpirun.{mpi}", "mpirun"] if mpi else ["mpirun"]
    found = next((name for name in names if shutil.which(name)), None)
    if found is None:
        raise UserError(f"{names[0]}: no such program, and mode=mpi is started by it; install Open MPI or MPICH")
    is_mpich = mpi == "mpich" or (mpi is None and "mpich" in os.path.realpath(shutil.which(found)))
    crowded = [] if is_mpich else ["--oversubscribe"]
    return [found, *crowded, "-n", str(ranks)]


def environment_of(base):
    """Open MPI refuses root unless told twice."""
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.getuid() == 0 else {}
    return {**allowed, **base}


def die_with(parent):
    """In a child before it becomes the program: a case must not outlive its driver, and run beside its successor."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
