"""Cases started alone, by mpirun and as tasks of Slurm arrays, which shims of Slurm's commands stand in for."""

import json
import os
import pathlib
import shutil
import subprocess
import types

import pytest

from conftest import ROOT
from fake_meshbench import fake, mb, rows_in  # noqa: F401
from mb.errors import UserError
from mb.sweep import launch, slurm

GOLDEN = ROOT / "tests" / "golden" / "sweep_array.sbatch"

# Runs every task of the array at once, as its node would, and keeps what squeue and sacct tell.
SBATCH = """#!/bin/bash
script="${{@: -1}}"
[ ! -e {folder}/refuse ] || {{ echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; }}
id=$(($(cat {folder}/last 2>/dev/null || echo 40) + 1))
echo $id >{folder}/last
echo "$id;cluster"
[ ! -e {folder}/queued ] || exit 0
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$script")
for task in $(seq 0 "$last"); do
  SLURM_JOB_ID=$((id * 100 + task)) SLURM_ARRAY_JOB_ID=$id SLURM_ARRAY_TASK_ID=$task bash "$script" \\
    >"$(dirname "$script")/logs/${{id}}_$task.out" 2>&1
done
"""
SQUEUE = """#!/bin/bash
cat {folder}/queued 2>/dev/null
"""
SACCT = """#!/bin/bash
cat {folder}/state 2>/dev/null
"""
SRUN = """#!/bin/bash
echo "$@" >>{folder}/srun.log
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    folder = tmp_path / "slurm-bin"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("sacct", SACCT), ("srun", SRUN)):
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_a_case_runs_alone_with_its_words_and_a_place_for_its_row():
    assert launch.command_of("/b/meshbench", ("mesh=dp2", "steps=1"), 2, "r.json") == [
        "/b/meshbench", "run", "mesh=dp2", "steps=1", "-q", "--no-progress", "-o", "r.json"]


@pytest.mark.parametrize("mpi, command", [("openmpi", ["mpirun.openmpi", "--oversubscribe", "-n", "4"]),
                                          ("mpich", ["mpirun.mpich", "-n", "4"])])
def test_ranks_as_processes_are_started_by_the_mpirun_asked_for(tmp_path, monkeypatch, mpi, command):
    (tmp_path / command[0]).write_text("#!/bin/sh\n")
    (tmp_path / command[0]).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert launch.launcher_of(("mode=mpi",), 4, mpi) == command
    other = {"openmpi": "mpich", "mpich": "openmpi"}[mpi]
    with pytest.raises(UserError, match=f"mpirun.{other}: no such program"):
        launch.launcher_of(("mode=mpi",), 4, other)


def test_within_slurm_ranks_are_started_by_srun(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert launch.launcher_of(("mode=mpi",), 4)[:3] == ["srun", "--mpi=pmix", "--ntasks=4"]
    assert launch.launcher_of(("mode=sim",), 4) == []


def a_sweep(folder, **spec):
    return types.SimpleNamespace(name="golden", program="/opt/mesh bench/meshbench", file=pathlib.Path("/data/it's.yaml"),
                                 spec={"slurm": spec})


def test_the_script_of_an_array_is_as_it_was(monkeypatch):
    monkeypatch.setattr(slurm.sys, "executable", "/opt/venv/bin/python")
    monkeypatch.setattr(slurm, "PACKAGE", "/opt/meshbench/scripts")
    made = slurm.script(a_sweep("x", partition="gpu", account="lab", cores_per_rank=4, parallel=8,
                                setup=["module load openmpi"]), pathlib.Path("/data/out $1"), 0, (2, 8, 21), 0, 12, 30)
    assert made == GOLDEN.read_text()
    assert subprocess.run(["bash", "-n", GOLDEN]).returncode == 0
    if shutil.which("shellcheck"):
        # A $ in a name is meant as it stands.
        done = subprocess.run(["shellcheck", "-e", "SC2016", GOLDEN], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_a_template_with_a_name_that_nobody_gives_is_an_error(tmp_path, monkeypatch):
    template = tmp_path / "t"
    template.write_text("$nodes $surprise")
    monkeypatch.setattr(slurm, "TEMPLATE", template)
    with pytest.raises(KeyError, match="surprise"):
        slurm.script(a_sweep("x"), tmp_path, 0, (1, 1, 6), 0, 1, 1)


def point(ranks, mode, predicted_s):
    return types.SimpleNamespace(ranks=ranks, mode=mode, predicted_s=predicted_s)


def test_arrays_have_one_shape_and_are_no_larger_than_slurm_takes():
    points = [point(16, "mpi", 1)] * 5 + [point(4, "mpi", 1)] * 2 + [point(64, "sim", 1)] * 3 + [point(4, "threads", 600)]
    made = slurm.arrays(points, {"ranks_per_node": 8, "max_array_size": 2})
    assert [(shape, len(group)) for shape, group in made] == [
        ((1, 1, 6), 2), ((1, 1, 6), 1), ((1, 1, 69), 1), ((1, 4, 6), 2), ((2, 8, 6), 2), ((2, 8, 6), 2), ((2, 8, 6), 1)]


def test_every_case_becomes_a_task_and_none_twice(fake, mb, cluster, tmp_path):
    """Takes seconds, for a Python in every task."""
    file, out = fake.sweep_file(slurm={"max_array_size": 2}, constraints=[{"name": "c", "rule": "n != 3", "reason": "r"}],
                                axes={"n": [1, 2, 3, 4]}), tmp_path / "out"
    code, told, err = mb("sweep", file, "-o", out, "--slurm")
    assert code == 0 and "job 41: 2 cases" in told and "job 42: 1 cases" in told, err
    logs = "".join(path.read_text() for path in (out / "slurm" / "logs").iterdir())
    assert sorted(fake.ran()) == [1, 2, 4], logs
    assert {n: row["status"] for n, row in rows_in(out).items()} == {1: "ok", 2: "ok", 3: "invalid", 4: "ok"}
    assert "0 cases submitted" in mb("sweep", file, "-o", out, "--slurm")[1]
    assert "4 of 4 cases: 1 invalid, 3 ok" in mb("status", out)[1]


def test_what_is_queued_is_not_submitted_again(fake, mb, cluster, tmp_path):
    (cluster / "queued").write_text("41_0 PENDING\n41_1 RUNNING\n")
    file, out = fake.sweep_file(), tmp_path / "out"
    assert "3 cases submitted" in mb("sweep", file, "-o", out, "--slurm")[1]
    assert "1 cases submitted, 2 already in the queue" in mb("sweep", file, "-o", out, "--slurm")[1]
    assert "pending: 3, of these 2 in Slurm's queue" in mb("status", out)[1]


@pytest.mark.parametrize("state, status", [("OUT_OF_MEMORY", "oom"), ("TIMEOUT", "timeout"), ("NODE_FAIL", None),
                                           ("CANCELLED by 1000", None)])
def test_a_task_that_left_no_result_ends_as_slurm_says_or_runs_again(fake, mb, cluster, tmp_path, state, status):
    file, out = fake.sweep_file(axes={"n": [1]}), tmp_path / "out"
    (cluster / "queued").write_text("")
    mb("sweep", file, "-o", out, "--slurm")
    (cluster / "state").write_text(f"{state}\n")
    _, told, _ = mb("sweep", file, "-o", out, "--slurm")
    assert ("1 cases submitted" in told) == (status is None)
    assert [row["status"] for row in rows_in(out).values()] == ([status] if status else [])


def test_a_refused_submission_is_told_and_what_was_submitted_stays(fake, mb, cluster, tmp_path):
    (cluster / "refuse").write_text("")
    code, _, err = mb("sweep", fake.sweep_file(), "-o", tmp_path / "out", "--slurm")
    assert code == 4 and "QOSMaxSubmitJobPerUserLimit" in err and "start again for the rest" in err


def test_without_slurm_one_is_told(fake, mb, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = mb("sweep", fake.sweep_file(), "-o", tmp_path / "out", "--slurm")
    assert code == 4 and "sbatch cannot be started" in err


def test_ranks_as_processes_run_by_srun_in_a_task(fake, mb, cluster, tmp_path):
    file = fake.sweep_file(axes={"n": [1]}, base={"mode": "mpi", "mesh": "dp4"}, slurm={"ranks_per_node": 2})
    mb("sweep", file, "-o", tmp_path / "out", "--slurm")
    script = (tmp_path / "out" / "slurm" / "array0.sbatch").read_text()
    assert "--nodes=2\n" in script and "--ntasks-per-node=2\n" in script
    assert "--ntasks=4" in (cluster / "srun.log").read_text() and rows_in(tmp_path / "out")[1]["status"] == "ok"


def test_t23_a_torn_line_of_submissions_costs_only_itself(tmp_path):
    store = types.SimpleNamespace(folder=tmp_path)
    (tmp_path / "slurm").mkdir()
    file = tmp_path / "slurm" / "submitted.jsonl"
    slurm._append(file, {"job": "1", "configs": ["a", "b"]})
    with open(file, "a", encoding="utf-8") as stream:
        stream.write('{"job": "2", "conf')
    slurm._append(file, {"job": "3", "configs": ["c"]})
    assert slurm.submitted(store) == {"a": "1_0", "b": "1_1", "c": "3_0"}
    assert len(json.loads(file.read_text().splitlines()[-1])["configs"]) == 1
