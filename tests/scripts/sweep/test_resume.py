"""Whatever interrupts a sweep, the next start runs exactly what is missing, and the one after it nothing."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from fake_meshbench import fake, mb, rows_in  # noqa: F401
from mb.sweep import claims


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_t25_a_second_start_runs_nothing_and_changes_nothing(fake, mb, tmp_path):
    file, out = fake.sweep_file(), tmp_path / "out"
    assert mb("sweep", file, "-o", out)[0] == 0 and sorted(fake.ran()) == [1, 2, 3]
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert mb("sweep", file, "-o", out)[0] == 0 and len(fake.ran()) == 3
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_t25_more_cases_and_another_order_run_only_what_is_new(fake, mb, tmp_path):
    out = tmp_path / "out"
    mb("sweep", fake.sweep_file(), "-o", out)
    mb("sweep", fake.sweep_file(name="renamed", about="words", axes={"n": [4, 3, 2, 1]}, time_limit_s=99), "-o", out)
    assert sorted(fake.ran()) == [1, 2, 3, 4]


def test_t25_chosen_statuses_and_keys_run_again_and_old_attempts_stay(fake, mb, tmp_path):
    out = tmp_path / "out"
    file = fake.sweep_file(axes={}, include=[{"n": 1}, {"n": 2, "do": "segv"}])
    mb("sweep", file, "-o", out)
    mb("sweep", file, "-o", out, "--retry-status", "crash,timeout")
    key = rows_in(out)[1]["sweep"]["key"]
    mb("sweep", file, "-o", out, "--force", key[:6])
    assert sorted(fake.ran()) == [1, 1, 2, 2]
    assert sorted(str(path.relative_to(out / "attempts" / key)) for path in (out / "attempts" / key).iterdir()) == ["1", "2"]
    code, _, err = mb("sweep", file, "-o", out, "--retry-status", "crsh")
    assert code == 2 and "crsh: give some of ok, oom" in err
    assert mb("sweep", file, "-o", out, "--force", "zz")[0] == 4


def test_results_of_another_build_count_when_told(fake, mb, tmp_path):
    out = tmp_path / "out"
    mb("sweep", fake.sweep_file(), "-o", out)
    head = json.loads((fake.folder / "head.json").read_text())
    head["build"]["git"] = "f" * 40
    (fake.folder / "head.json").write_text(json.dumps(head))
    assert mb("sweep", fake.sweep_file(), "-o", out, "--reuse", "any-build")[0] == 0 and len(fake.ran()) == 3
    shutil.rmtree(out / "results")
    mb("sweep", fake.sweep_file(), "-o", out)
    assert len(fake.ran()) == 6


def test_results_that_a_launcher_bound_to_fewer_cores_count_too(fake, mb, tmp_path):
    """Under mpirun a rank sees the cores that it is bound to, so that the fingerprint of its row is another."""
    out = tmp_path / "out"
    row = json.loads((fake.folder / "row.json").read_text())
    row["fingerprint"] = {**row["fingerprint"], "id": "b" * 16}
    (fake.folder / "row.json").write_text(json.dumps(row))
    mb("sweep", fake.sweep_file(), "-o", out)
    head = json.loads((fake.folder / "head.json").read_text())
    head["build"]["git"] = "f" * 40
    (fake.folder / "head.json").write_text(json.dumps(head))
    assert mb("sweep", fake.sweep_file(), "-o", out, "--reuse", "any-build")[0] == 0 and len(fake.ran()) == 3
    head["fingerprint"]["id"] = "c" * 16  # another machine is another
    (fake.folder / "head.json").write_text(json.dumps(head))
    assert mb("sweep", fake.sweep_file(), "-o", out, "--reuse", "any-build")[0] == 0 and len(fake.ran()) == 6


CASES = 5
STATES = ("none", "ok", "cancelled", "torn", "half", "claimed by the dead", "claimed long ago")


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(states=strategies.lists(strategies.sampled_from(STATES), min_size=CASES, max_size=CASES))
def test_t25_from_any_state_exactly_the_missing_run(fake, mb, tmp_path, states):
    """States as a driver that is killed anywhere may leave them. Takes seconds, for 17 sweeps."""
    out, whole = tmp_path / "out", tmp_path / "whole"
    file = fake.sweep_file(axes={"n": list(range(CASES))})
    if not whole.exists():
        mb("sweep", file, "-o", whole)
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(whole, out)
    for n, row in rows_in(out).items():
        key = row["sweep"]["key"]
        result = out / "results" / key[:2] / f"{key}.json"
        if states[n] in ("none", "half", "claimed by the dead", "claimed long ago"):
            result.unlink()
        if states[n] == "cancelled":
            result.write_text(json.dumps({**row, "status": "cancelled"}))
        if states[n] == "torn":
            result.write_text(json.dumps(row)[:50])
        if states[n] == "half":
            result.with_name(f".{result.name}.tmp.{socket.gethostname()}.999999999").write_text("{")
        if states[n] == "claimed by the dead":
            (out / "claims" / key).write_text(json.dumps({**claims.own(), "pid": 999999999}))
        if states[n] == "claimed long ago":
            (out / "claims" / key).write_text(json.dumps({**claims.own(), "host": "elsewhere"}))
            os.utime(out / "claims" / key, (1, 1))
    (fake.folder / "log").unlink(missing_ok=True)
    assert mb("sweep", file, "-o", out)[0] == 0
    assert sorted(fake.ran()) == [n for n in range(CASES) if states[n] != "ok"]
    mb("sweep", file, "-o", out)
    assert len(fake.ran()) == sum(state != "ok" for state in states)
    assert all(row["status"] == "ok" for row in rows_in(out).values())
    assert not [path for path in out.rglob("*") if ".tmp." in path.name] and not list((out / "claims").glob("[0-9a-f]*"))


def test_t23_killed_at_random_points_it_loses_only_what_ran(fake, tmp_path):
    """Takes seconds, for the starts of nine Pythons."""
    cases, out, kills = 24, tmp_path / "out", 0
    file = fake.sweep_file(base={"sleep": "0.02"}, axes={"n": list(range(cases))})
    moments = random.Random(7)
    for _ in range(8):
        process = fake.start(file, out)
        time.sleep(moments.uniform(0.2, 0.7))
        finished = process.poll() is not None
        done = len(list(out.glob("results/*/*.json")))
        process.kill()
        process.communicate()
        kills += not finished
        assert len(list(out.glob("results/*/*.json"))) >= done
    last = fake.start(file, out)
    told, errors = last.communicate(timeout=60)
    assert last.returncode == 0, errors
    rows = rows_in(out)
    assert sorted(rows) == list(range(cases)) and all(row["status"] == "ok" for row in rows.values())
    assert cases <= len(fake.ran()) <= cases + kills
    assert not [path for path in out.rglob("*") if ".tmp." in path.name]


def test_t23_a_case_does_not_outlive_its_driver(fake, tmp_path):
    process = fake.start(fake.sweep_file(base={"do": "hang"}), tmp_path / "out")
    wait_for(fake.ran)
    process.kill()
    process.communicate()
    wait_for(lambda: all(map(is_gone, fake.processes())))


def test_two_drivers_run_every_case_once(fake, tmp_path):
    out, cases = tmp_path / "out", 30
    file = fake.sweep_file(base={"sleep": "0.02"}, axes={"n": list(range(cases))})
    drivers = [fake.start(file, out, "--order", order) for order in ("given", "cheap", "random")]
    told = [driver.communicate(timeout=60) for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0, 0], told
    assert sorted(fake.ran()) == list(range(cases))
    assert all(f"{cases} of {cases} cases: {cases} ok" in out for out, _ in told)
    assert len({len(set(out.splitlines())) for out, _ in told}) == 1


def test_a_driver_takes_over_what_another_left(fake, tmp_path):
    """The one that waits for the other sees it die, and runs its case."""
    out = tmp_path / "out"
    file = fake.sweep_file(base={"do": "once", "sleep": "600"}, axes={"n": [1]})
    first = fake.start(file, out)
    wait_for(fake.ran)
    (fake.folder / "once").touch()
    fake.program.write_text(fake.program.read_text().replace('sleep "$sleep"', "true"))
    second = fake.start(file, out)
    time.sleep(0.5)
    assert second.poll() is None
    first.kill()
    first.communicate()
    assert "1 ok" in second.communicate(timeout=30)[0] and fake.ran() == [1, 1]


def test_the_first_interrupt_waits_for_what_runs_and_starts_no_more(fake, tmp_path):
    out = tmp_path / "out"
    process = fake.start(fake.sweep_file(base={"sleep": "0.5"}), out)
    wait_for(fake.ran)
    process.send_signal(signal.SIGINT)
    told, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and "1 of 3 cases: 1 ok" in told
    assert "interrupt again" in errors and f"resume with mb sweep {fake.folder}/s.yaml -o {out}" in errors
    again = fake.start(fake.sweep_file(base={"sleep": "0.5"}), out)
    assert "3 ok" in again.communicate(timeout=30)[0] and sorted(fake.ran()) == [1, 2, 3]


@pytest.mark.parametrize("signals", [[signal.SIGINT, signal.SIGINT], [signal.SIGTERM], [signal.SIGUSR2]])
@pytest.mark.parametrize("do", ["hang", "deaf"])
def test_the_second_interrupt_stops_what_runs_and_it_runs_again(fake, tmp_path, signals, do):
    out = tmp_path / "out"
    process = fake.start(fake.sweep_file(base={"do": do}), out, setup="import mb.sweep.driver as d; d.GRACE_S = 0.2")
    wait_for(fake.ran)
    for number in signals:
        process.send_signal(number)
        time.sleep(0.1)
    told, _ = process.communicate(timeout=30)
    assert process.returncode == 130 and "1 cancelled" in told
    wait_for(lambda: all(map(is_gone, fake.processes())))
    assert [row["status"] for row in rows_in(out).values()] == ["cancelled"]
    fake.program.write_text(fake.program.read_text().replace("do=*) do=${word#do=} ;;", ""))
    assert "3 ok" in fake.start(fake.sweep_file(base={"do": do}), out).communicate(timeout=30)[0]


def test_a_full_disk_ends_the_sweep_with_a_word_and_nothing_half_written(fake, mb, tmp_path):
    """Files may not grow past a size that is too small for a row: as a full disk, to whoever writes."""
    out = tmp_path / "out"
    size = len((fake.folder / "row.json").read_text())
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 60}, {size + 60}))"
    process = fake.start(fake.sweep_file(), out, setup=limit)
    told, errors = process.communicate(timeout=30)
    assert process.returncode == 4 and "cannot be written: files may not be so large; make room" in errors, errors
    assert not list(out.glob("results/*/*.json")) and not [p for p in out.rglob("*") if ".tmp." in p.name]
    assert not list((out / "claims").glob("[0-9a-f]*"))
    assert mb("sweep", fake.sweep_file(), "-o", out)[0] == 0 and len(rows_in(out)) == 3


def test_a_case_that_meets_a_full_disk_is_not_taken_for_a_crash(fake, mb, tmp_path):
    code, _, err = mb("sweep", fake.sweep_file(base={"do": "disk"}), "-o", tmp_path / "out")
    assert code == 4 and "No space left" in err and rows_in(tmp_path / "out") == {}


@pytest.mark.skipif(os.getuid() == 0 and not shutil.which("mount"), reason="root writes everywhere")
def test_a_place_that_cannot_be_written_is_told(fake, mb, tmp_path):
    (tmp_path / "out").write_text("a file")
    code, _, err = mb("sweep", fake.sweep_file(), "-o", tmp_path / "out")
    assert code == 4 and "cannot be written" in err and "-o" in err


def test_t29_index_and_dry_run_repeat_to_the_byte(fake, mb, tmp_path):
    out = tmp_path / "out"
    assert mb("sweep", fake.sweep_file(), "-o", out, "--dry-run") == mb("sweep", fake.sweep_file(), "-o", out, "--dry-run")
    assert not out.exists() and fake.ran() == []
    mb("sweep", fake.sweep_file(), "-o", out)
    made = []
    for _ in range(2):
        mb("index", out)
        made.append([(out / name).read_bytes() for name in ("index.jsonl", "index.csv")])
    assert made[0] == made[1]


def test_t22_every_file_is_strict_json(fake, mb, tmp_path):
    mb("sweep", fake.sweep_file(axes={}, include=[{"n": 1}, {"n": 2, "do": "nan"}]), "-o", tmp_path / "out")
    mb("index", tmp_path / "out")
    files = [*tmp_path.glob("out/results/*/*.json"), tmp_path / "out/plan.json", tmp_path / "out/index.jsonl"]
    if not shutil.which("jq"):
        pytest.skip("jq is not here")
    assert subprocess.run(["jq", "-e", ".", *files], capture_output=True).returncode == 0
