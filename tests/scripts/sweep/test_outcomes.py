"""Every end of a case is a record, and none ends the sweep."""

import json

import jsonschema
import pytest

from conftest import ROOT
from mb.sweep import driver as driver_of
from mb.sweep import launch, outcome, symptoms
from fake_meshbench import fake, mb, rows_in  # noqa: F401

SCHEMA = json.loads((ROOT / "bench" / "report" / "row.schema.json").read_text())

# What programs print, as they print it, for every line of the table of symptoms.
TEXTS = [
    ("oom", "meshbench: the ranks of this case take 40 GiB of memory, and this machine has 20 GiB left; give a smaller model"),
    ("oom", "meshbench: no 8589934592 bytes of memory: Cannot allocate memory"),
    ("oom", "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc"),
    ("oom", "rank 2: cudaMalloc: CUDA error: out of memory"),
    ("oom", "cuBLAS: CUBLAS_STATUS_ALLOC_FAILED"),
    ("oom", "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed."),
    ("oom", "bash: fork: Cannot allocate memory"),
    ("disk", "meshbench: row.json: cannot write there; No space left on device"),
    ("timeout", "meshbench: rank 0: no rank has ended an instruction for 60 s: rank 1 waits in all_reduce"),
    ("unsupported", "meshbench: mode=mpi: this build has found no MPI; install Open MPI"),
]


@pytest.mark.parametrize("status, text", TEXTS)
def test_every_symptom_is_recognised(status, text):
    assert symptoms.find(text)[0] == status


def test_every_line_of_the_table_has_a_text():
    matched = {next(i for i, (_, pattern, _) in enumerate(symptoms.SYMPTOMS) if __import__("re").search(pattern, text))
               for _, text in TEXTS}
    assert matched == set(range(len(symptoms.SYMPTOMS)))


def test_ordinary_errors_are_no_symptom():
    assert symptoms.find("meshbench: key 'mesg' (mesg=2) is not known; did you mean 'mesh'?") is None


ENDS = {"ok": "ok", "nothing": "crash", "torn": "crash", "nan": "crash", "usage": "invalid", "unverified": "crash",
        "stuck": "timeout", "oom": "oom", "abort": "crash", "segv": "crash", "kill": "crash"}


def test_t26_no_end_of_a_case_ends_the_sweep(fake, mb, tmp_path, monkeypatch):
    monkeypatch.setattr(driver_of, "BACK_OFF_S", 0.001)
    cases = [{"n": n, "do": what} for n, what in enumerate(ENDS)]
    cases += [{"n": 90, "mesh": "tp3"}, {"n": 91, "mode": "cuda"}, {"n": 92, "needed": 9}]
    code, out, err = mb("sweep", fake.sweep_file(axes={}, include=cases), "-o", tmp_path / "out")
    rows = rows_in(tmp_path / "out")
    found = {n: rows[n]["status"] for n in rows}
    assert found == {**dict(enumerate(ENDS.values())), 90: "invalid", 91: "unsupported", 92: "oom_predicted"}
    assert code == 3  # crashes are nothing that one expects
    assert sorted(set(fake.ran())) == list(range(len(ENDS))) and fake.ran().count(10) == 3  # killed: twice more
    for row in rows.values():
        jsonschema.Draft202012Validator(SCHEMA).validate(row)
        assert row["status"] == "ok" or row["status_detail"]["message"]
    names = dict(enumerate(ENDS))
    said = {names[n]: row["status_detail"] for n, row in rows.items() if n in names}
    assert said["segv"]["signal"] == 11 and said["abort"]["signal"] == 6 and "Assertion" in said["abort"]["message"]
    assert said["nothing"]["message"] == "exit 0, and wrote no row" and "NaN" in said["nan"]["message"]
    assert rows[list(ENDS).index("abort")]["sweep"]["stderr"][-1].startswith("x.cc:3: Assertion")
    assert rows[90]["sweep"]["rule"] == "meshbench" and "heads" in rows[90]["status_detail"]["message"]
    assert rows[92]["status_detail"]["needed_bytes"] == 9 << 30


def test_t26_a_hang_ends_at_the_time_limit(fake, mb, tmp_path, monkeypatch):
    monkeypatch.setattr(driver_of, "GRACE_S", 0.1)
    file = fake.sweep_file(axes={"do": ["hang", "deaf"], "n": [1]}, include=[{"n": 2, "do": "ok"}], time_limit_s=0.3)
    assert mb("sweep", file, "-o", tmp_path / "out")[0] == 3
    statuses = sorted(json.loads(f.read_text())["status"] for f in (tmp_path / "out").glob("results/*/*.json"))
    assert statuses == ["ok", "timeout", "timeout"]


def test_a_case_that_is_stopped_keeps_the_steps_it_had(fake, mb, tmp_path):
    file = fake.sweep_file(base={"do": "partial"}, axes={"n": [1]}, time_limit_s=0.3)
    assert mb("sweep", file, "-o", tmp_path / "out")[0] == 3
    row = rows_in(tmp_path / "out")[1]
    assert row["status"] == "timeout" and "time limit" in row["status_detail"]["message"]
    assert row["metrics"]["step_s"]["n"] == 5
    jsonschema.Draft202012Validator(SCHEMA).validate(row)


def test_t26_a_program_that_vanishes_is_recorded(fake, mb, tmp_path, monkeypatch):
    command = launch.command_of
    monkeypatch.setattr(launch, "command_of", lambda *args: ["/no/such/program", *command(*args)[1:]])
    code, _, err = mb("sweep", fake.sweep_file(), "-o", tmp_path / "out")
    assert code == 3 and [row["status"] for row in rows_in(tmp_path / "out").values()] == ["crash"] * 3


def test_t26_the_best_of_nothing_is_none(fake, mb, tmp_path):
    code, out, _ = mb("sweep", fake.sweep_file(base={"do": "oom"}), "-o", tmp_path / "out")
    assert code == 3 and "best: none" in out


def test_oom_and_invalid_are_ordinary_ends(fake, mb, tmp_path):
    file = fake.sweep_file(axes={}, include=[{"n": 1}, {"n": 2, "do": "oom"}, {"n": 3, "mesh": "tp3"}])
    code, out, _ = mb("sweep", file, "-o", tmp_path / "out")
    assert code == 0 and "1 invalid, 1 ok, 1 oom" in out


def test_a_case_that_was_killed_is_tried_again(fake, mb, tmp_path, monkeypatch):
    monkeypatch.setattr(driver_of, "BACK_OFF_S", 0.001)
    code, _, err = mb("sweep", fake.sweep_file(base={"do": "once"}, axes={"n": [1]}), "-o", tmp_path / "out")
    assert code == 0 and fake.ran() == [1, 1] and "tried again" in err
    assert rows_in(tmp_path / "out")[1]["sweep"]["attempt"] == 2
    assert len(list((tmp_path / "out" / "attempts").glob("*/*"))) == 2


def test_t26_equal_crashes_in_a_row_stop_the_sweep_unless_told(fake, mb, tmp_path):
    file = fake.sweep_file(base={"do": "segv"}, axes={"n": list(range(15))})
    code, _, err = mb("sweep", file, "-o", tmp_path / "out")
    assert code == 3 and len(fake.ran()) == 10 and "10 cases in a row" in err and "resume with mb sweep" in err
    assert mb("sweep", file, "-o", tmp_path / "out", "--keep-going")[0] == 3
    assert len(fake.ran()) == 15


def test_a_case_in_between_that_runs_resets_the_count(fake, mb, tmp_path):
    cases = [{"n": n, "do": "ok" if n == 7 else "segv"} for n in range(15)]
    mb("sweep", fake.sweep_file(axes={}, include=cases), "-o", tmp_path / "out", "--order", "given")
    assert len(fake.ran()) == 15


@pytest.mark.parametrize("code, more, state, status, retry", [
    (-9, True, None, "oom", False), (-9, False, None, "crash", True), (137, True, None, "oom", False),
    (-9, False, "OUT_OF_MEMORY", "oom", False), (-9, False, "PREEMPTED", "cancelled", True),
    (1, False, "NODE_FAIL", "cancelled", True), (130, False, None, "cancelled", False), (-6, False, None, "crash", False)])
def test_what_a_code_means(tmp_path, code, more, state, status, retry):
    found = outcome.judge(code, tmp_path, more_oom_kills=more, slurm_state=state)
    assert (found.status, found.retry) == (status, retry)


def test_kills_for_memory_are_read_from_our_cgroup(tmp_path):
    own = tmp_path / "sys/fs/cgroup/a/b"
    own.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n")
    (own / "memory.events").write_text("low 0\noom 4\noom_kill 3\n")
    (tmp_path / "proc/vmstat").write_text("nr_free 1\noom_kill 9\n")
    assert outcome.oom_kills(tmp_path) == 3
    (own / "memory.events").unlink()
    assert outcome.oom_kills(tmp_path) == 9
    (tmp_path / "proc/vmstat").unlink()
    assert outcome.oom_kills(tmp_path) is None


def test_a_crash_signature_has_no_numbers():
    one, two = (outcome.Outcome("crash", {"message": f"exit 3: rank {n}: bad at 0x{n}ff"}) for n in (1, 22))
    assert one.signature == two.signature


def test_what_does_not_fit_by_prediction_runs_when_told(fake, mb, tmp_path):
    file = fake.sweep_file(base={"needed": 9})
    assert "3 oom_predicted" in mb("sweep", file, "-o", tmp_path / "out")[1] and fake.ran() == []
    assert "3 ok" in mb("sweep", file, "-o", tmp_path / "out", "--run-predicted-oom")[1] and len(fake.ran()) == 3
