"""pytest tests/bench/cli/test_variation.py: ranks that are unlike and steps that spread, in virtual time."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench"))
CASE = ["model=gpt-1m", "mesh=dp4.pp2.tp4", "machine=a100x8", "global_batch=64"]


def run(*words, stdin=None):
    return subprocess.run([BIN / "meshbench", *words], input=stdin, capture_output=True, text=True, timeout=120)


def row(*words):
    done = run("sim", *CASE, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def step_s(row):
    return row["metrics"]["step_s"]["value"]


def test_a_straggler_costs_what_it_says():
    even, slow = row(), row("straggler=3:1.5")
    assert "imbalance" not in even
    lost = slow["imbalance"]
    assert lost["slower_ranks"] == {"3": 1.5}
    assert lost["even_step_s"] == pytest.approx(step_s(even), rel=1e-12)
    assert lost["lost_s"] == pytest.approx(step_s(slow) - step_s(even), rel=1e-9)
    assert 0.1 < lost["slower_by"] < 0.5
    assert "straggler=3:1.5" in slow["case"]
    assert slow["ranks"]["compute_s"]["max_rank"] == 3


def test_a_slow_nic_costs_what_goes_over_it():
    assert row("slow_nic=1:4")["imbalance"]["lost_s"] > 0


def test_jitter_spreads_steps_by_seed():
    once, again, other = row("jitter=gpu:0.01,op:0.02"), row("jitter=gpu:0.01,op:0.02"), row("jitter=gpu:0.01,op:0.02", "seed=2")
    assert once["jitter"] == again["jitter"]
    assert once["jitter"]["expected_step_s"] != other["jitter"]["expected_step_s"]
    spread = once["jitter"]
    assert spread["draws"] == 128
    assert step_s(once) < spread["p5_step_s"] < spread["p50_step_s"] < spread["p95_step_s"]
    assert spread["without_step_s"] == pytest.approx(step_s(once))
    assert 0.01 < spread["slower_by"] < 0.04  # the slowest of 32 GPUs is 2.07 % slower


def test_text_says_what_was_lost():
    out = run("sim", *CASE, "straggler=3:1.5", "jitter=gpu:0.01", "-q").stdout
    assert "lost, of" in out and "rank 3 computes 1.5 times as long" in out
    assert "expected (+" in out and "128 draws, seed 1" in out


def test_predict_takes_the_same_keys():
    line = " ".join([*CASE, "straggler=3:1.5", "jitter=gpu:0.01"])
    done = run("predict", "-", stdin=line + "\n")
    predicted = json.loads(done.stdout)
    assert predicted["imbalance"]["lost_s"] > 0
    assert predicted["jitter"]["expected_step_s"] > predicted["step_s"]


def test_sharing_slows_a_step():
    assert step_s(row("stack.comm_sm_share=0.18", "stack.comm_slowed_by=0.1")) > step_s(row())
    done = run("sim", *CASE, "stack.comm_sm_share=0.95")
    assert done.returncode == 2 and "at most 0.9" in done.stderr
