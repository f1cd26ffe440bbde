"""pytest tests/bench/cli/test_mpi.py: ranks as MPI processes, and what is told when one of them fails."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench"))
FAILING = BIN.parent / "tests" / "failing_rank"
SMALL = ["model=gpt-tiny", "global_batch=8", "steps=2", "warm_up=1", "mode=mpi"]
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
BUILT = [name for name in ("openmpi", "mpich") if (BIN.parent / "mpi" / f"libmb_mpi_{name}.so").exists()]


@pytest.fixture(params=["openmpi", "mpich"])
def mpi(request):
    name = request.param
    if name not in BUILT or not shutil.which(f"mpirun.{name}"):
        pytest.skip(f"no {name} here; install it and build again")
    return name


def command(mpi, ranks, *words):
    crowded = ["--oversubscribe"] if mpi == "openmpi" else []
    return [f"mpirun.{mpi}", *crowded, "-n", str(ranks), *map(str, words)]


def run(mpi, ranks, *words, program=BIN / "meshbench", env=None):
    return subprocess.run(command(mpi, ranks, program, *words), capture_output=True, text=True, timeout=60,
                          env={**ENVIRONMENT, **(env or {})})


def lines_of(done):
    return [line for line in done.stderr.splitlines() if line.startswith(("meshbench:", "step_bench:", "ops_bench:"))]


def test_a_run_reports_once_and_is_verified(mpi, tmp_path):
    out = tmp_path / "row.json"
    done = run(mpi, 4, "run", *SMALL, "mesh=dp2.pp2", "-q", "-o", out, "--trace", tmp_path / "trace.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step time") == 1 and "verified        yes" in done.stdout
    row = json.loads(out.read_text())
    jsonschema.validate(row, json.loads((ROOT / "bench/report/row.schema.json").read_text()))
    assert row["mode"] == "mpi" and row["mpi"]["library"] == {"openmpi": "Open MPI", "mpich": "MPICH"}[mpi]
    assert [host["ranks"] for host in row["mpi"]["hosts"]] == [4]
    assert row["mpi"]["clock_uncertainty_ns"] == 0  # one kernel, one clock
    assert all(entry["equal"] for entry in row["traffic"])
    assert (tmp_path / "trace.json").stat().st_size > 0


def test_training_is_that_of_threads_to_the_last_bit(mpi):
    threads = subprocess.run([BIN / "meshbench", "run", *SMALL[:-1], "mesh=dp2", "--json"], capture_output=True,
                             text=True, timeout=60, check=True)
    ranks = run(mpi, 2, "run", *SMALL, "mesh=dp2", "--json")
    assert ranks.returncode == 0, ranks.stderr
    assert json.loads(ranks.stdout)["training"]["losses"] == json.loads(threads.stdout)["training"]["losses"]


def gpu_ranks(mpi, mode, *words, of_rank_1=()):
    """Two processes on emulated GPUs, and how long they took; `of_rank_1` goes before the second's command."""
    emulated = BIN.parent / "tests" / "meshbench_emulated"
    if not emulated.exists():
        pytest.skip("no CUDA toolkit here, whose headers the emulation takes")
    case = {word.split("=")[0]: word for word in [*SMALL, f"mode={mode}", "mesh=dp2", "profile=off", *words]}
    each = [emulated, "run", *case.values()]
    start = time.monotonic()
    done = subprocess.run(command(mpi, 1, *each, ":", "-n", 1, *of_rank_1, *each), capture_output=True, text=True,
                          timeout=60, env={**ENVIRONMENT, "EMULATED_DEVICES": "2"})
    if "this build has no NCCL" in done.stderr:
        pytest.skip("no nccl.h here")
    return done, time.monotonic() - start


GPU_MODES = ["cuda+mpi", "nccl+mpi"]


@pytest.mark.parametrize("mode", GPU_MODES)
@pytest.mark.parametrize("words", [["zero=3"], ["mesh=pp2", "dtype=bf16"]])
def test_processes_with_gpus_train_as_one_rank_does(mpi, mode, words):
    done, _ = gpu_ranks(mpi, mode, *words)
    assert done.returncode == 0, done.stderr
    assert "verified        yes" in done.stdout


@pytest.mark.parametrize("mode", GPU_MODES)
@pytest.mark.parametrize("before, says", [
    (["env", "EMULATED_FAULT=cublasLtMatmul 30 14"],
     r"rank 1 on \S+ on cuda device 1 compute, B0 l0 mlp.down, matmul .*: cublasLtMatmul: cuBLASLt status 14"),
    (["env", "EMULATED_FAULT=kernel_launch 90 719 sticky"], r"rank 1 on \S+ on cuda device 1 compute, .*, norm_gradient "
     r".*: cudaErrorLaunchFailure, .*CUDA_LAUNCH_BLOCKING=1"),
    (["timeout", "-s", "STOP", "4"], r"no rank has ended an instruction for 2 s: rank 1 on \S+ does not answer; rank 0 on "),
    (["timeout", "-s", "KILL", "4"], None),
])
def test_a_process_with_a_gpu_that_fails_ends_the_others(mpi, mode, before, says):
    if mpi == "mpich":
        pytest.skip("as with Open MPI")
    done, seconds = gpu_ranks(mpi, mode, "steps=100000", "timeout_s=2", "-q", of_rank_1=before)
    assert done.returncode != 0 and seconds < 30
    if says:
        assert re.search(says, done.stderr), done.stderr


@pytest.mark.parametrize("refused", [None, 0, 1])
def test_all_processes_are_traced_or_none(mpi, refused):
    emulated = BIN.parent / "tests" / "meshbench_emulated"
    if not emulated.exists():
        pytest.skip("no CUDA toolkit here, whose headers the emulation takes")
    words = [emulated, "run", *SMALL[:-1], "mode=cuda+mpi", "mesh=dp2", "--json"]
    each = [["env", "EMULATED_CUPTI=35", *words] if rank == refused else words for rank in range(2)]
    done = subprocess.run(command(mpi, 1, *each[0], ":", "-n", 1, *each[1]), capture_output=True, text=True, timeout=60,
                          env={**ENVIRONMENT, "EMULATED_DEVICES": "2"})
    assert done.returncode == 0, done.stderr
    profile = json.loads(done.stdout)["profile"]
    if "this build has no CUPTI" in (profile["reason"] or ""):
        pytest.skip("no cupti.h here")
    if refused is None:
        assert profile["cupti"]["steps"] == 2 and profile["cupti"]["ranks"] == 1
    else:
        told = "the driver lets root alone profile" if refused == 0 else "another process cannot be traced"
        assert profile["cupti"] is None and told in profile["reason"]


@pytest.mark.parametrize("graph", ["off", "on"])
def test_nccl_starts_over_mpi(mpi, graph):
    """Of one process: ranks of the double of NCCL meet within a process."""
    emulated = BIN.parent / "tests" / "meshbench_emulated"
    if not emulated.exists():
        pytest.skip("no CUDA toolkit here, whose headers the emulation takes")
    done = run(mpi, 1, "run", *SMALL[:-1], "mode=nccl+mpi", "mesh=dp1", f"graph={graph}", "profile=off", "--json",
               program=emulated)
    if "this build has no NCCL" in done.stderr:
        pytest.skip("no nccl.h here")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["mode"] == "nccl+mpi" and row["verified"]["ok"] and row["nccl"]["library"]


@pytest.mark.parametrize("verb", ["traffic", "memory"])
def test_one_step_for_a_verb(mpi, verb):
    done = run(mpi, 2, verb, "model=gpt-tiny", "mesh=dp2", "zero=2", "mode=mpi", "--run", "--json")
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)


@pytest.mark.parametrize("ranks, words, told", [
    (2, ["run", *SMALL, "mesh=dp4"], ["mesh=dp4 has 4 ranks", "has started 2", "mpirun -n 4 meshbench run"]),
    (2, ["run", "mesh=dp2"], ["started 2 times by mpirun of", "mode=threads", "give mode=mpi"]),
    (2, ["sim", "mesh=dp2"], ["started 2 times by mpirun of", "mode=sim"]),
    (2, ["run", "mesh=dp2", "mode=mip"], ["mode=mip", "mpi"]),
])
def test_a_wrong_start_is_refused_once(mpi, ranks, words, told):
    done = run(mpi, ranks, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(lines_of(done)) == 1
    for words in told:
        assert words in done.stderr


def test_the_other_library_is_refused(mpi):
    other = {"openmpi": "mpich", "mpich": "openmpi"}[mpi]
    if other not in BUILT:
        pytest.skip(f"no {other} in this build")
    done = run(mpi, 2, "run", *SMALL, "mesh=dp2", env={"MESHBENCH_MPI": other})
    assert done.returncode == 2 and len(lines_of(done)) == 1
    assert f"MESHBENCH_MPI={other}: started by mpirun of" in done.stderr


def test_ranks_without_a_launcher_are_refused_with_the_command():
    if not BUILT:
        pytest.skip("no MPI in this build")
    done = subprocess.run([BIN / "meshbench", "run", *SMALL, "mesh=dp2"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "mpirun -n 2 meshbench run model=gpt-tiny mesh=dp2" in done.stderr


def test_a_build_without_mpi_says_what_to_install():
    if BUILT:
        pytest.skip("this build has MPI")
    done = subprocess.run([BIN / "meshbench", "run", *SMALL, "mesh=1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "libopenmpi-dev" in done.stderr


def test_a_rank_that_throws_ends_all_with_its_message_once(mpi):
    done = run(mpi, 4, "throws", 3, 20, program=FAILING)
    assert done.returncode == 3
    [line] = lines_of(done)
    assert re.match(r"meshbench: rank 3 on \S+ compute, .*tokens run out", line)


def test_a_rank_that_sleeps_is_named_by_the_others(mpi):
    start = time.monotonic()
    done = run(mpi, 3, "sleeps", 1, 1, program=FAILING)
    assert time.monotonic() - start < 10
    assert done.returncode == 3
    [line] = lines_of(done)
    assert "no rank has ended an instruction for 1 s" in line
    assert re.search(r"rank 1 on \S+: compute in", line) and re.search(r"rank 2 on \S+:", line)


# A rank that cannot read what the others can.
def test_an_input_that_one_rank_lacks_is_told_with_rank_and_host(mpi, tmp_path):
    (tmp_path / "rank0").mkdir()
    (tmp_path / "rank1").mkdir()
    (tmp_path / "rank0" / "text").write_text("to be or not to be " * 200)
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\ncd {tmp_path}/rank${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} && exec "$@"\n')
    wrapper.chmod(0o755)
    done = run(mpi, 2, BIN / "meshbench", "run", *SMALL, "mesh=dp2", "model.vocabulary=256", "data=text",
               program=wrapper)
    assert done.returncode == 4
    [line] = lines_of(done)
    assert re.match(r"meshbench: rank 1 on \S+: .*text", line)


# Ranks of a run that is under way, by rank.
def started(mpi, tmp_path, ranks, *words, verb="run"):
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\necho $$ >{tmp_path}/pid${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}\nexec "$@"\n')
    wrapper.chmod(0o755)
    process = subprocess.Popen(command(mpi, ranks, wrapper, BIN / "meshbench", verb, *words), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    trace = tmp_path / "pid0"
    deadline = time.monotonic() + 20
    while not (trace.exists() and len(list(tmp_path.glob("pid*"))) == ranks) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.5)  # into the steps
    return process, [int((tmp_path / f"pid{rank}").read_text()) for rank in range(ranks)]


LONG = ["model=gpt-1m", "mesh=dp2", "mode=mpi", "verify=off", "steps=100000", "--no-progress"]


def test_a_rank_that_is_stopped_is_named_as_silent(mpi, tmp_path):
    process, pids = started(mpi, tmp_path, 2, *LONG, "timeout_s=1")
    os.kill(pids[1], signal.SIGSTOP)
    start = time.monotonic()
    out, err = process.communicate(timeout=30)
    assert process.returncode == 3, err
    [line] = [line for line in err.splitlines() if line.startswith("meshbench:")]
    assert re.search(r"no rank has ended an instruction for 1 s: rank 1 on \S+ does not answer; rank 0 on", line)
    assert time.monotonic() - start < 15


def test_a_rank_of_a_collective_that_is_stopped_is_named(mpi, tmp_path):
    words = ["mesh=dp2", "mode=mpi", "size=1K", "iterations=1000000000,1000000000", "time_cap=1000s", "timeout_s=1"]
    process, pids = started(mpi, tmp_path, 2, *words, verb="coll")
    os.kill(pids[1], signal.SIGSTOP)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 3, err
    [line] = [line for line in err.splitlines() if line.startswith("meshbench:")]
    assert re.search(r"nothing has moved for 1 s; rank 1 on \S+ does not answer; rank 0 on \S+: .* operation", line)


def test_a_rank_that_is_killed_ends_the_run(mpi, tmp_path):
    process, pids = started(mpi, tmp_path, 2, *LONG)
    os.kill(pids[1], signal.SIGKILL)
    process.communicate(timeout=30)
    assert process.returncode != 0


def test_an_interrupt_of_one_rank_stops_all_after_a_step(mpi, tmp_path):
    process, pids = started(mpi, tmp_path, 2, *LONG)
    os.kill(pids[1], signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert sum("interrupted after step" in line for line in err.splitlines()) == 1
