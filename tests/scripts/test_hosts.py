"""Hosts on one machine, and the command lines that the launch scripts make."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT

BIN = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench"))
HOSTS = ROOT / "scripts" / "hosts.sh"
LAUNCH = ROOT / "scripts" / "launch"


def hosts(*words):
    return subprocess.run(["bash", HOSTS, *map(str, words)], capture_output=True, text=True, timeout=120)


def skip_if_refused(done):
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_ranks_on_two_hosts_train_as_one_rank(mpi):
    if not shutil.which(f"mpirun.{mpi}") or not (BIN.parent / "mpi" / f"libmb_mpi_{mpi}.so").exists():
        pytest.skip(f"no {mpi} here; install it and build again")
    done = hosts("--mpi", mpi, "--rate", "1gbit", "--", BIN / "meshbench", "run", "mode=mpi", "model=gpt-tiny",
                 "mesh=dp2", "steps=2", "-q")
    skip_if_refused(done)
    assert done.returncode == 0, done.stderr
    assert "on 2 hosts: host1 (1), host2 (1)" in done.stdout
    assert "verified        yes" in done.stdout


def test_nothing_is_left_and_the_exit_code_is_the_commands():
    if not shutil.which("mpirun.openmpi"):
        pytest.skip("no openmpi here")
    before = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    done = hosts("--", "sh", "-c", "exit 5")
    skip_if_refused(done)
    assert done.returncode == 5
    assert subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout == before


@pytest.mark.parametrize("words, told", [
    (["--hosts", "0", "--", "true"], "--hosts 0"),
    (["--hosts", "2", "--ranks", "3", "--", "true"], "--ranks 3 does not divide over --hosts 2"),
    (["--host", "2", "--", "true"], "--host: no such option; usage:"),
    (["--mpi", "none", "--", "true"], "there is no mpirun.none"),
    (["--hosts", "2"], "no command"),
])
def test_a_wrong_call_is_refused(words, told):
    done = hosts(*words)
    assert done.returncode == 2
    assert told in done.stderr


def launched(script, program, tmp_path, *words, env=None):
    """What `script` starts by `program`, here a stub that prints its arguments."""
    stub = tmp_path / program
    stub.write_text('#!/bin/sh\necho "$@"\n')
    stub.chmod(0o755)
    return subprocess.run(["bash", LAUNCH / script, *words], capture_output=True, text=True,
                          env={"PATH": f"{tmp_path}:{os.environ['PATH']}", **(env or {})})


def test_open_mpi_fills_a_host_before_the_next(tmp_path):
    done = launched("mpirun_openmpi.sh", "mpirun", tmp_path, "file", "16", "8", "run", "mesh=dp2.tp8")
    assert done.stdout.strip() == ("--hostfile file -n 16 --map-by ppr:8:node:PE=1 --bind-to core --rank-by slot "
                                   "meshbench run mesh=dp2.tp8 mode=mpi")


def test_mpich_fills_a_host_before_the_next(tmp_path):
    done = launched("mpirun_mpich.sh", "mpirun", tmp_path, "file", "16", "8", "run", "mesh=dp2.tp8",
                    env={"MESHBENCH": "/opt/meshbench", "CORES_PER_RANK": "4"})
    assert done.stdout.strip() == "-f file -n 16 -ppn 8 -bind-to core:4 /opt/meshbench run mesh=dp2.tp8 mode=mpi"


@pytest.mark.parametrize("mpi, pmi", [("openmpi", "pmix"), ("mpich", "pmi2")])
def test_slurm_starts_steps_as_the_mpi_wants_it(mpi, pmi, tmp_path):
    done = launched("slurm.sbatch", "srun", tmp_path, "run", "mesh=dp2.tp8", env={"MESHBENCH_MPI": mpi})
    assert done.stdout.strip() == (f"--mpi={pmi} --distribution=block:block --cpu-bind=cores --kill-on-bad-exit=1 "
                                   "meshbench run mesh=dp2.tp8 mode=mpi")


@pytest.mark.parametrize("script", ["mpirun_openmpi.sh", "mpirun_mpich.sh", "slurm.sbatch"])
def test_without_words_the_usage_is_told(script):
    done = subprocess.run(["bash", LAUNCH / script], capture_output=True, text=True)
    assert done.returncode == 2
    assert script in done.stderr
