"""pytest tests/bench/cli/test_compare.py: meshbench compare and scaling, and the critical path of a run."""

import json
import os
import subprocess
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench"))
BASE = ["model=gpt3-1.3b", "dtype=bf16", "global_batch=64"]


def meshbench(*words):
    return subprocess.run([BIN / "meshbench", *words], capture_output=True, text=True, timeout=120, check=False)


def rows_of(*words):
    done = meshbench(*words, "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    validator = jsonschema.Draft202012Validator(json.loads((ROOT / "bench/report/row.schema.json").read_text()))
    for row in rows:
        validator.validate(row)
    return rows


def step(row):
    return row["metrics"]["step_s"]["value"]


def parts(row):
    return {(p["kind"], p["name"]): p["seconds"] for p in row["explained"]["parts"]}


def test_parts_add_up_to_each_step_and_their_differences_to_the_difference():
    base, *others = rows_of("compare", *BASE, "mesh=dp8 zero=1", "mesh=pp2.dp2.tp2", "mesh=tp8 recompute=full")
    for row in (base, *others):
        assert sum(parts(row).values()) == pytest.approx(step(row), rel=1e-9)
        told = row["comparison"]
        assert sum(p["seconds"] for p in told["parts"]) == pytest.approx(step(row) - step(base), abs=1e-9)
        assert told["difference_s"] == step(row) - step(base)
    assert base["comparison"]["difference_s"] == 0


def test_a_bubble_is_the_difference_between_few_and_many_micro_batches_of_a_pipeline():
    flat, pipeline = rows_of("compare", "model=gpt3-1.3b", "dtype=bf16", "global_batch=4", "mesh=1", "mesh=pp4", "micro_batch=1")
    wait = parts(pipeline)["wait", None]
    assert ("wait", None) not in parts(flat)
    # 3 of 4 micro-batches' worth, and the head's stage makes the others wait too.
    assert 0.3 < wait / step(pipeline) < 0.6


def test_machines_side_by_side_and_device_hours():
    rows = rows_of("compare", *BASE, "mesh=dp8", "machine=a100x8", "machine=h100x8", "machine=b200x8", "--tokens", "300G")
    assert [row["machine"]["name"] for row in rows] == ["a100x8", "h100x8", "b200x8"]
    assert step(rows[0]) > step(rows[1]) > step(rows[2])
    for row in rows:
        hours = 300e9 / row["metrics"]["tokens_per_s"]["value"] * 8 / 3600
        assert row["comparison"]["device_hours"] == pytest.approx(hours)


def test_oversubscription_costs_what_leaves_a_leaf_and_is_named_where_nothing_does():
    words = ["model=gpt3-1.3b", "dtype=bf16", "mesh=dp64", "global_batch=64", "machine.oversubscription=1",
             "machine.oversubscription=2"]
    one, two = rows_of("compare", *words, "machine.nodes_per_leaf=2")
    more = {key: seconds - parts(one).get(key, 0) for key, seconds in parts(two).items()}
    assert max(more, key=more.get) == ("exposed", "dp") and step(two) > step(one)
    assert not two["comparison"]["no_effect"]
    _, two = rows_of("compare", *words)
    assert two["comparison"]["no_effect"]
    assert "has no effect on this case" in meshbench("compare", *words).stdout


def test_text_names_the_cases_by_what_differs_and_says_why():
    text = meshbench("compare", *BASE, "mesh=dp8", "mesh=tp8").stdout
    assert "A: mesh=dp8\n" in text and "B: mesh=tp8\n" in text
    assert "B - A" in text and "sum = step" in text
    assert "A step of B takes" in text and "exposed tp +" in text


@pytest.mark.parametrize("words, needed", [
    (["mesh=dp8"], ["two cases or more"]),
    (["mesh=dp8", "mesh=tp8", "zero=0", "zero=1"], ["mesh=", "zero=", "quotes"]),
    (["mesh=dp8 zero=1", "mesh=tp8", "bucket=1MiB", "bucket=2MiB"], ["bucket=", "quotes"]),
    (["mesh=dp8", "mesh=tp3"], ["case 'mesh=tp3", "tp=3"]),
    (["mesh=dp8", "mesh=tp8", "mode=threads"], ["mode=threads", "virtual time"]),
    (["mesh=dp8", "mesh=tp8", "--tokens", "0"], ["--tokens"]),
    ([f"mesh=dp{n}" for n in (1, 2, 4, 8, 16, 32, 64)] + ["mesh=tp2", "mesh=tp4"], ["9 cases", "predict"]),
])
def test_what_cannot_be_compared_is_refused(words, needed):
    done = meshbench("compare", *BASE, *words)
    assert done.returncode == 2 and done.stdout == ""
    for part in needed:
        assert part in done.stderr


def test_weak_scaling_grows_the_batch_and_strong_scaling_keeps_it(tmp_path):
    words = ["model=gpt3-1.3b", "dtype=bf16", "mesh=tp2", "micro_batch=1", "global_batch=64"]
    weak = rows_of("scaling", *words, "--gpus", "2..64", "-o", str(tmp_path / "rows.jsonl"))
    assert [row["mesh"]["world"] for row in weak] == [2, 4, 8, 16, 32, 64]
    assert [int(row["params"]["global_batch"]) for row in weak] == [64, 128, 256, 512, 1024, 2048]
    assert weak[0]["scaling"] == {"kind": "weak", "efficiency": 1}
    assert all(0.5 < row["scaling"]["efficiency"] < 1.001 for row in weak)
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == len(weak)
    strong = rows_of("scaling", *words, "--gpus", "2..512", "--strong")
    assert {row["params"]["global_batch"] for row in strong} == {"64"} and strong[-1]["mesh"]["world"] == 128
    assert strong[-1]["scaling"]["efficiency"] < strong[0]["scaling"]["efficiency"] == 1
    for row in weak + strong:
        assert sum(parts(row).values()) == pytest.approx(step(row), rel=1e-9)
        assert row["prediction"]["step_low_s"] < step(row) < row["prediction"]["step_high_s"]


def test_scaling_goes_to_100000_gpus():
    rows = rows_of("scaling", "model=llama3-70b", "mesh=pp4.tp8", "dtype=bf16", "zero=1", "machine=h100x8", "--gpus", "64..100000")
    assert rows[0]["mesh"]["world"] == 64 and rows[-1]["mesh"]["world"] == 100000
    assert [b["mesh"]["world"] for b in rows[1:-1]] == [64 * 2**k for k in range(1, 11)]


def test_strong_scaling_takes_numbers_of_data_ranks_that_divide_the_batch():
    rows = rows_of("scaling", "model=gpt-1m", "mesh=1", "micro_batch=1", "global_batch=96", "--gpus", "1..100", "--strong")
    worlds = [row["mesh"]["world"] for row in rows]
    assert worlds[-1] == 96 and all(96 % world == 0 for world in worlds) and worlds == sorted(set(worlds))


@pytest.mark.parametrize("words, needed", [
    (["mesh=tp8", "--gpus", "2..4"], ["--gpus 2..4", "8 devices"]),
    (["mesh=tp8", "--gpus", "64"], ["--gpus 64", "64..100000"]),
    (["mesh=tp8", "--gpus", "64..8"], ["ends before it starts"]),
    (["mesh=tp8", "--gpus", "1024..2048", "--strong"], ["global_batch=64", "512 devices"]),
    (["mesh=tp8", "machine.nodes=2", "--gpus", "64..128"], ["machine.nodes=8"]),
    (["mesh=dp2.tp2", "nodes=0,0,1,1", "--gpus", "4..8"], ["nodes="]),
])
def test_what_cannot_be_scaled_is_refused(words, needed):
    done = meshbench("scaling", *BASE, *words)
    assert done.returncode == 2 and done.stdout == ""
    for part in needed:
        assert part in done.stderr


def test_points_that_are_refused_are_named_and_the_others_told():
    done = meshbench("scaling", *BASE, "mesh=tp8", "machine.nodes=4", "--gpus", "8..128")
    assert done.returncode == 0
    assert "dp4.tp8" in done.stdout and "64 devices: mesh=dp8.tp8 takes 8 nodes" in done.stdout


def test_a_measured_run_has_a_critical_path_that_adds_up():
    done = meshbench("run", "model=gpt-tiny", "mesh=dp2.pp2", "steps=3", "warm_up=1", "--json")
    assert done.returncode == 0, done.stderr
    path = json.loads(done.stdout)["critical_path"]
    assert sum(p["total_ns"] for p in path["parts"]) == path["window_ns"]
    kinds = {p["kind"] for p in path["parts"]}
    assert {"compute", "exposed"} <= kinds
    text = meshbench("run", "model=gpt-tiny", "mesh=dp2.pp2", "steps=1", "-q").stdout
    assert "critical path   compute " in text
