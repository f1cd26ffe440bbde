"""meshbench itself under the gate: builds are wrappers around one program, with something planted in what it wrote.

A second build takes too long here; results/gate/notes.md has one, with a delay in a kernel and traffic that doubles.
"""

import json
import os
import pathlib
import tempfile

import pytest

import fakes
from conftest import ROOT
from mb.gate import command, self_test, statistics

PROGRAM = pathlib.Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench")) / "meshbench"
CASE = "model=gpt-tiny mesh=dp2 global_batch=4 steps=3 verify=off"
PLANT = """
import json, sys
row = json.load(open(sys.argv[1]))
metrics = row["metrics"]
for name, factor in {factors}.items():
    for key in ("value", "min", "median", "mean"):
        metrics[name][key] *= factor
    metrics[name]["samples"] = [factor * sample for sample in metrics[name].get("samples", [])]
for part in row["traffic"]:
    part["plan"] = {{name: {traffic} * value for name, value in part["plan"].items()}}
json.dump(row, open(sys.argv[1], "w"))
"""

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built")


@pytest.fixture
def builds(tmp_path, monkeypatch):
    """Makes a build that plants factors of metrics and of traffic."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def make(name, factors=None, traffic=1):
        (tmp_path / f"{name}.py").write_text(PLANT.format(factors=factors or {}, traffic=traffic))
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\nfor out; do :; done\n"{PROGRAM.absolute()}" "$@" || exit\n'
                           + (f'exec python3 {tmp_path}/{name}.py "$out"\n' if factors or traffic > 1 else ""))
        program.chmod(0o755)
        return str(program)
    return make


def gate(capsys, *words):
    code = command.main(["--builds", "--json", "--any-load", *words])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture(autouse=True)
def few_pairs(monkeypatch):
    """What is planted here is seen in the least number of pairs, however busy the machine."""
    for name in ("FIRST_PAIRS", "MAX_PAIRS"):
        monkeypatch.setattr(statistics, name, statistics.MIN_PAIRS)
    monkeypatch.setattr(self_test, "require", lambda *_: "left out")
    statistics._shifts.cache_clear()
    yield
    statistics._shifts.cache_clear()


def test_a_delay_fails(builds, capsys):
    slow = builds("slow", {"step_s": 1000, "tokens_per_s": 1e-3, "model_flops_per_s": 1e-3, "mfu": 1e-3})
    code, document = gate(capsys, builds("base"), slow, CASE)
    told = fakes.finding(document, "step_s")
    assert (code, told["verdict"]) == (1, "REGRESSED") and told["worse"] > 10
    assert {f["metric"] for f in document["findings"] if f["verdict"] == "REGRESSED"} == {"step_s"}


def test_traffic_that_doubles_without_any_change_in_time_fails(builds, capsys):
    code, document = gate(capsys, builds("base"), builds("double", traffic=2), CASE)
    assert code == 1 and fakes.finding(document, "step_s")["verdict"] != "REGRESSED"
    regressed = [f for f in document["findings"] if f["verdict"] == "REGRESSED"]
    assert regressed and all(f["metric"].startswith("traffic_0_") and f["candidate"] == 2 * f["base"] for f in regressed)


def test_virtual_time_and_a_collective_of_one_build_are_equal(builds, capsys):
    code, document = gate(capsys, builds("base"), builds("same"), "sim case=textbook-100b",
                          "coll op=all_reduce mesh=dp2 size=1K time_cap=1ms in_place=out")
    assert code in (0, 1)  # a time of microseconds on a busy machine is no assertion
    assert {f["verdict"] for f in document["findings"] if f["class"] != "timed"} == {"PASS"}
    assert len([f for f in document["findings"] if f["class"] == "timed"]) == 1


def test_a_case_of_virtual_time_holds_in_the_self_test(builds, capsys):
    assert command.main(["self-test", builds("base"), "sim case=textbook-100b"]) == 0
    assert "0 did not" in capsys.readouterr().out.splitlines()[-1]
