"""mb status, mb index and mb explain tell what a sweep keeps; the sweeps that come along run with the real program."""

import csv
import json
import os
import pathlib
import sqlite3

import pytest

from conftest import ROOT
from fake_meshbench import fake, mb, rows_in  # noqa: F401
from mb import rows
from mb.sweep import claims, index, launch, points, spec

BIN = pathlib.Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench")) / "meshbench"
SHIPPED = sorted((ROOT / "scripts" / "sweeps").glob("*.yaml"))


@pytest.fixture
def swept(fake, mb, tmp_path):
    """A folder with one case of each of some ends."""
    out = tmp_path / "out"
    mb("sweep", fake.sweep_file(axes={}, include=[{"n": 1}, {"n": 2, "do": "segv"}, {"n": 3, "mesh": "tp3"}]), "-o", out)
    return out


def test_status_counts_and_names_the_best(mb, swept):
    _, told, _ = mb("status", swept)
    assert "3 of 3 cases: 1 crash, 1 invalid, 1 ok" in told and "SIGSEGV" in told and "best of mode=threads: " in told
    state = json.loads(mb("status", swept, "--json")[1])
    assert state["counts"] == {"ok": 1, "crash": 1, "invalid": 1} and state["pending"] == [] and state["best"]


def test_status_tells_what_runs_and_what_cannot_be_read(mb, swept):
    case, broken = json.loads((swept / "plan.json").read_text())["cases"][:2]
    (swept / "claims" / case["key"]).write_text(json.dumps(claims.own()))
    (swept / "results" / broken["key"][:2] / f"{broken['key']}.json").write_text("{")
    _, told, _ = mb("status", swept)
    assert f"process {os.getpid()}" in told and "pending: 1" in told and "1 results cannot be read" in told


def test_explain_tells_why(mb, swept):
    listed = mb("explain", swept)[1].splitlines()
    assert [line.split()[1] for line in listed] == ["ok", "crash", "invalid"]
    _, told, _ = mb("explain", swept, listed[1].split()[0][:8])
    assert "status     crash" in told and "signal     11" in told and "attempt 1: " in told and "do=segv" in told
    assert "rule       meshbench" in mb("explain", swept, listed[2].split()[0])[1]
    code, _, err = mb("explain", swept, "zz")
    assert code == 4 and "no case" in err
    assert mb("explain", swept, "")[0] == 0


def test_the_index_has_every_result_and_is_made_of_files_alone(mb, swept):
    (swept / "results" / "zz").mkdir()
    (swept / "results" / "zz" / "zzzz.json").write_text('{"torn')
    code, _, err = mb("index", swept)
    assert code == 0 and "left out 1 files" in err
    loaded = rows.load([swept / "index.jsonl"])
    assert sorted(row["status"] for row in loaded) == ["crash", "invalid", "ok"]
    with open(swept / "index.csv", encoding="utf-8", newline="") as file:
        lines = {line["point.n"]: line for line in csv.DictReader(file)}
    assert lines["1"]["step_s [s]"] and lines["2"]["status"] == "crash" and "heads" in lines["3"]["message"]
    with sqlite3.connect(swept / "index.sqlite") as database:
        told = dict(database.execute('select status, row from cases where "step_s [s]" > 0 or status = \'crash\''))
    assert {status: json.loads(row)["status"] for status, row in told.items()} == {"ok": "ok", "crash": "crash"}


def test_a_database_that_is_no_such_thing_is_replaced(mb, swept):
    (swept / "index.sqlite").write_text("no database")
    assert mb("index", swept)[0] == 0 == mb("index", swept)[0]
    with sqlite3.connect(swept / "index.sqlite") as database:
        assert database.execute("select count(*) from cases").fetchall() == [(3,)]
    assert not list(swept.glob(".*"))


def test_columns_that_differ_in_case_alone_are_all_there(tmp_path):
    row = {"sweep": {"key": "k", "config": "c", "rule": None, "point": {"N": 1, "n": 2}}, "status": "ok",
           "status_detail": {}, "case": "x", "metrics": {"a": {"unit": "s", "value": 1.5}}}
    index.write_sqlite(tmp_path / "x", [row])
    with sqlite3.connect(tmp_path / "x") as database:
        assert database.execute('select "point.N", "point.n (7)", "a [s]" from cases').fetchall() == [(1, 2, 1.5)]


def test_a_sweep_prints_one_json_document(fake, mb, tmp_path):
    code, told, _ = mb("sweep", fake.sweep_file(), "-o", tmp_path / "out", "--dry-run", "--json")
    planned = json.loads(told)
    assert code == 0 and (planned["total"], planned["to_run"], len(planned["first_commands"])) == (3, 3, 3)
    assert not (tmp_path / "out").exists()
    code, told, _ = mb("sweep", fake.sweep_file(), "-o", tmp_path / "out", "--json")
    assert code == 0 and json.loads(told)["counts"] == {"ok": 3}
    assert json.loads(told) == json.loads(mb("status", tmp_path / "out", "--json")[1])


def test_the_folder_of_a_sweep_stands_for_its_results(mb, swept, tmp_path):
    """Though attempts, the plan and an index lie there too."""
    mb("index", swept)
    assert len(rows.load([swept])) == 3
    code, told, _ = mb("rows", swept, "--json")
    assert code == 0 and [json.loads(line)["sweep"]["point"]["n"] for line in told.splitlines()] == [1, 2, 3]
    assert [row["sweep"]["point"]["n"] for row in rows.load([swept / "index.jsonl"])] == [1, 2, 3]  # and no hash's order
    (swept / "plan.json").write_text("{")
    assert len(rows.load([swept])) == 3
    assert mb("report", swept, "-o", tmp_path / "page.html")[0] == 0
    assert "SIGSEGV" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("verb", ["status", "index", "explain"])
def test_a_folder_without_a_sweep_is_told(mb, tmp_path, verb):
    code, _, err = mb(verb, tmp_path)
    assert code == 4 and "mb sweep FILE.yaml" in err


def test_the_rows_are_rows_that_name_no_place_of_the_machine(swept, tmp_path):
    found = rows.load([swept / "results"])
    assert len(found) == 3 and not any(str(tmp_path) in json.dumps(row) for row in found)
    assert all(command.startswith("meshbench run ") and command.endswith(" -o ROW.json")
               for row in found if (command := row["sweep"].get("command")))


def test_a_command_to_paste_names_the_program_as_seen_from_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert launch.pasteable(str(tmp_path / "build" / "meshbench"), ("mesh=dp2",), 2) == (
        "build/meshbench run mesh=dp2 -q --no-progress -o ROW.json")
    assert launch.pasteable("/elsewhere/meshbench", ("link='intra:1GB/s,2us'",), 2).startswith("meshbench run ")


@pytest.mark.skipif(not BIN.exists(), reason="meshbench is not built")
@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_sweep_that_comes_along_has_measured_and_simulated_cases(monkeypatch, file):
    monkeypatch.setenv("MESHBENCH", str(BIN))
    sweep = points.make(file, spec.load(file))
    to_run = [point for point in sweep.points if point.status is None]
    assert {point.mode for point in to_run} == {"threads", "sim"} and sweep.spec["about"]
    assert all(point.status in (None, "invalid") for point in sweep.points) and sweep.idle_excludes == []
    assert sum(point.predicted_s for point in to_run) < 300
    if file == SHIPPED[0]:  # once is enough: simulating all cases takes seconds
        again = points.make(file, spec.load(file))
        assert [(p.key, p.predicted_s) for p in again.points] == [(p.key, p.predicted_s) for p in sweep.points]


def test_all_seven_sweeps_come_along():
    assert [file.stem for file in SHIPPED] == ["interconnect", "mesh_shapes", "micro_batch", "overlap", "scaling",
                                               "schedules", "zero_memory"]


@pytest.mark.skipif(not BIN.exists(), reason="meshbench is not built")
def test_a_sweep_of_the_real_program_keeps_a_row_of_each_case(mb, monkeypatch, tmp_path):
    monkeypatch.setenv("MESHBENCH", str(BIN))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    file = tmp_path / "s.yaml"
    file.write_text("base: {model: gpt-tiny, steps: 1, warm_up: 1, global_batch: 4, zero: 0, dropout: 0.1, chunks: 1}\n"
                    "axes: {mesh: [dp2, pp2, tp3], mode: [threads, sim]}\n"
                    "include: [{mode: sim, model: gpt3-175b, mesh: dp8, global_batch: 8}]\n")
    code, told, err = mb("sweep", file, "-o", tmp_path / "out")
    assert code == 0, err
    assert "1 oom_predicted" in told and "2 invalid" in told and "4 ok" in told
    for row in rows.load([tmp_path / "out" / "results"]):
        assert row["status"] != "invalid" or "tp=3" in row["status_detail"]["message"]
        assert row["status"] != "ok" or row["metrics"]["step_s"]["value"] > 0
    assert mb("sweep", file, "-o", tmp_path / "out")[:2] == (0, told)
