"""pytest tests/bench/cli/test_choose.py: meshbench choose as people call it."""

import csv
import itertools
import json
import math
import os
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench"))
SMALL = ["model=gpt3-1.3b", "machine=a100x8", "stack=megatron-2021", "gpus=16", "global_batch=64", "cp=1", "offload=none",
         "machine.memory_gb=30"]


def meshbench(*words):
    return subprocess.run([BIN / "meshbench", *words], capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("choose")
    done = meshbench("choose", *SMALL, "-o", folder / "rows.jsonl", "--rejected", folder / "rejected.jsonl",
                     "--rank-file", folder / "ranks")
    assert done.returncode == 0, done.stderr
    rows, rejected = ([json.loads(line) for line in (folder / name).read_text().splitlines()]
                      for name in ("rows.jsonl", "rejected.jsonl"))
    return done.stdout, rows, rejected, (folder / "ranks").read_text()


def test_rows_keep_to_the_schema_fastest_first(small):
    validator = jsonschema.Draft202012Validator(json.loads((ROOT / "bench/report/row.schema.json").read_text()))
    for row in small[1]:
        validator.validate(row)
    times = [row["metrics"]["simulated_step_s"]["value"] for row in small[1] if not row["choice"]["on_front"]]
    assert times == sorted(times)
    best = small[1][0]["choice"]
    assert best["times_the_best"] == 1 and best["best_is_faster"] == 0.5 and best["on_front"]
    assert sum(best["bound_by"].values()) == pytest.approx(small[1][0]["metrics"]["simulated_step_s"]["value"])


def test_predict_says_the_same_of_its_case(small, tmp_path):
    for row in small[1][:3]:
        (tmp_path / "case").write_text(row["case"] + "\n")
        predicted = json.loads(meshbench("predict", tmp_path / "case").stdout)
        assert predicted["step_s"] == row["metrics"]["simulated_step_s"]["value"]
        assert predicted["fits"]


def test_every_case_is_simulated_or_rejected_with_its_rule(small):
    searched = small[1][0]["choice"]["searched"]
    assert {row["rule"] for row in small[2]} >= {"memory", "slower"}
    assert all(row["reason"] and row["case"].startswith("model=gpt3-1.3b ") for row in small[2])
    legal = [row for row in small[2] if row["rule"] in ("memory", "slower")]
    assert searched["cases"] - searched["simulated"] <= len(legal) < searched["cases"]


def test_text_tells_what_the_rows_tell(small):
    text = small[0]
    for part in ("best ", "step time", "bound by", "to run it       meshbench run ", "rule of thumb",
                 "10 % more NIC bandwidth", "oversubscribed 2:1", "one NIC of a node lost", "Time against memory"):
        assert part in text, part
    assert small[1][0]["case"] in text


def test_ranks_are_each_in_one_place_of_the_rank_file(small):
    places = re.findall(r"rank (\d+)=\+n(\d+) slot=(\d+)", small[3])
    assert [int(rank) for rank, _, _ in places] == list(range(16))
    assert len({(node, slot) for _, node, slot in places}) == 16


def test_what_is_fixed_stays_and_the_same_question_has_the_same_answer():
    words = ["choose", *SMALL, "tp=2", "zero=1", "schedule=1f1b", "micro_batch=1", "--json"]
    first, again = meshbench(*words), meshbench(*words)
    cases = [json.loads(line)["case"] for line in first.stdout.splitlines()]
    assert cases and all(".tp2 " in case and " zero=1" in case for case in cases)
    assert cases == [json.loads(line)["case"] for line in again.stdout.splitlines()]


def test_what_does_not_fit_tells_how_much_is_missing_and_what_would():
    done = meshbench("choose", "model=gpt3-175b", "machine=a100x8", "gpus=8", "global_batch=16", "schedule=1f1b",
                     "offload=none", "cp=1")
    assert done.returncode == 66
    assert "nothing fits" in done.stderr and "too much" in done.stderr
    assert "The nearest that fits has gpus=" in done.stderr


@pytest.mark.parametrize("words, message", [
    (["machine=a100x8", "gpus=8", "global_batch=8"], "choose wants model=NAME"),
    (["model=gpt3-13", "machine=a100x8", "gpus=8", "global_batch=8"], "did you mean"),
    (["model=gpt-1m", "machine=a100x8", "gpus=12", "global_batch=8"], "does not fill nodes of 8; nearest: 8 or 16"),
    (["model=gpt-1m", "machine=a100x8", "gpus=16", "global_batch=8", "tp=3"], "tp=3 does not divide gpus=16"),
    (["model=gpt-1m", "machine=a100x8", "gpus=16", "global_batch=7", "tp=1", "pp=1", "cp=1"], "does not divide"),
    (["model=gpt-1m", "machine=a100x8", "machine.nodes=1", "gpus=16", "global_batch=8"], "give fewer, or machine.nodes=2"),
    (["model=gpt-1m", "machine=a100x8", "gpus=16"], "choose wants global_batch=N"),
    (["model=gpt-1m", "machine=a100x8", "gpus=16", "global_batch=8", "mode=threads"], "virtual time"),
    (["model=gpt-1m", "machine=a100x8", "gpus=16", "global_batch=8", "layout=1,2"], "leave it out"),
    (["model=gpt-1m", "machine=a100x8", "gpus=16", "global_batch=8", "mesh=dp8"], "has 8 ranks, and gpus=16"),
    (["model=gpt-1m", "machine=a100x8", "gpus=16", "global_batch=8", "ep=2"], "has no experts"),
    (["model=gpt-1m", "machine=a100x8", "gpus=16", "global_batch=8", "speed=2"], "speed"),
])
def test_refusals_name_what_would_do(words, message):
    done = meshbench("choose", *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_errors_of_published_rows_go_together_as_probabilities_say():
    """kSharedOnOneMesh and kSharedElsewhere of bench/choose/explain.h, from the rows themselves."""
    groups = {}
    for row in csv.DictReader((ROOT / "results/published/rows.csv").open()):
        if row["skipped"] or row["fitted_on"] == "True" or not row["measured_s"]:
            continue
        words = dict(word.split("=", 1) for word in row["case"].split() if "=" in word)
        ranks = math.prod(int(n) for n in re.findall(r"[a-z](\d+)", words["mesh"]))
        model = tuple(sorted(item for item in words.items() if item[0].startswith("model")))
        key = row["source"], row["stack"], model, ranks, words.get("global_batch")
        error = math.log(float(row["measured_s"]) / float(row["predicted_s"]))
        groups.setdefault(key, []).append((words["mesh"], error))
    sums = {True: [0, 0], False: [0, 0]}
    for group in groups.values():
        for (mesh, a), (other, b) in itertools.combinations(group, 2):
            sums[mesh == other][0] += (a - b) ** 2
            sums[mesh == other][1] += a * a + b * b
    text = (ROOT / "bench/choose/explain.h").read_text()
    for same, name in ((True, "kSharedOnOneMesh"), (False, "kSharedElsewhere")):
        stated = float(re.search(name + r" = ([0-9.]+)", text)[1])
        assert abs(1 - sums[same][0] / sums[same][1] - stated) < 0.15, name
