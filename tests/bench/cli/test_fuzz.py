"""pytest tests/bench/cli/test_fuzz.py: random cases either have a prediction or an error that names key and value.

MESHBENCH_FUZZ=N tries N cases instead of 500, MESHBENCH_FUZZ_SEED=S others; 500 take some 3 s.
"""

import json
import math
import os
import random
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench"))
CASES = int(os.environ.get("MESHBENCH_FUZZ", 500))
SEED = int(os.environ.get("MESHBENCH_FUZZ_SEED", 1))

# Sizes that go: small models, so that thousands take seconds.
MODELS = ["gpt-tiny", "llama-tiny", "moe-tiny", "gpt-1m", "llama-1m", "gpt-10m", "gpt2", "gpt3-1.3b", "llama3.2-1b"]
AXES = {"dp": [1, 2, 3, 4, 16, 1024], "tp": [1, 1, 2, 4, 4, 8, 3], "pp": [1, 1, 1, 2, 2, 4, 3], "cp": [1, 1, 1, 1, 1, 2, 4],
        "ep": [1, 1, 1, 1, 1, 1, 2], "rdp": [1, 1, 1, 1, 2]}
GOOD = {
    "machine": ["cpu", "a100x8", "h100x8", "gh200", "b200x8", "gb200x72", "l40sx8", "v100x8"],
    "stack": ["kernels", "megatron-2021", "megatron-vtrain", "llm-foundry-fp8", "megatron-bridge"],
    "schedule": ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v", "interleaved-zb"],
    "chunks": [1, 2, 3], "group": [1, 2, 4], "micro_batch": [1, 2, 3, 7], "global_batch": [1, 8, 24, 96, 2048],
    "dtype": ["fp32", "bf16", "fp16", "fp64"], "reduce_dtype": ["main", "dtype"], "dropout": [0, 0.1, 1, 0.999],
    "zero": [0, 1, 2, 3], "reshard": ["on", "off"], "sequence_parallel": ["on", "off"], "tensor_chunks": [1, 2, 4],
    "context": ["ring", "ulysses"], "recompute": ["none", "attention", "full"], "recompute_layers": ["all", "0-1", "1"],
    "recompute_micro_batches": ["all", "0", "1-2"], "offload": ["none", "optimizer", "activations", "all"],
    "overlap": ["all", "none", "reduce", "gather,sends"], "optimizer": ["adamw", "sgd"], "bucket": ["1", "1KiB", "25MiB", "1TiB"],
    "layout": ["1,1", "2,0", "1,2,1", "4"], "order": ["rdp,ep,cp,tp,dp,pp", "pp-dp-tp-cp-ep-rdp", "dp,tp"],
    "ranks_per_node": [1, 2, 8], "nodes": ["0,0,1,1", "0,1"], "loss_scale": ["auto", "dynamic", "1024"],
    "model.layers": [1, 2, 5, 12], "model.sequence": [1, 16, 4096], "model.experts": [1, 2, 4], "model.vocabulary": [97, 1, 50257],
    "model.capacity_factor": [0, 0.001, 1.25], "model.hidden": [32, 33, 64], "model.heads": [1, 4, 5],
    "model.experts_per_token": [1, 2, 3],
    "machine.nic_gb_per_s": [0.001, 12.5, 1e6], "machine.link_gb_per_s": [0.01, 900], "machine.link_latency_us": [0, 10000],
    "machine.nic_latency_us": [0, 1e6], "machine.ranks_per_node": [1, 2, 72], "machine.nics_per_node": [1, 4],
    "machine.nodes_per_leaf": [0, 1, 4], "machine.oversubscription": [1, 2, 8], "machine.nodes": [1, 4, 0],
    "machine.memory_gb": [1, 80], "machine.matmul_efficiency": [0.01, 1], "machine.launch_us": [0, 100],
    "stack.host_us": [0, 1, 1000], "stack.compute_share": [0.1, 1], "stack.host_waits": ["true", "false"],
}
NUMBERS = ["0", "-1", "-0", "1e9", "1e99", "1e-99", "nan", "inf", "-inf", "2147483648", "9223372036854775808", "0x10", "1e", "٣", "1,5"]
WORDS = ["", " ", "@", "@/nonexistent", "'", "=", "==", "none", "all", "on", "[]", "{}", "%s%n", "\\", "ü", "x" * 300, "dp2.dp2", "tp0"]


def mesh(pick):
    return ".".join(f"{axis}{pick.choice(sizes)}" for axis, sizes in AXES.items()) if pick.random() < 0.97 else pick.choice(WORDS)


def case(pick):
    """A case that often goes, with a word now and then turned into something else."""
    words = {"model": pick.choice(MODELS), "mesh": mesh(pick)}
    for key in pick.sample(sorted(GOOD), pick.randrange(5)):
        words[key] = str(pick.choice(GOOD[key]))
    for key in list(words):
        if pick.random() < 0.02:
            words[key] = pick.choice(NUMBERS + WORDS)
    lines = [f"{key}={value}" for key, value in words.items()]
    if pick.random() < 0.04:
        lines.append(pick.choice(["nonsense", "=", "gpus=8", "Mesh=dp2", "mesh=dp2", "machine.nothing=1", "model.=1", "mode=threads"]))
    pick.shuffle(lines)
    return " ".join(lines)


@pytest.fixture(scope="module")
def answers():
    pick = random.Random(SEED)
    cases = [case(pick) for _ in range(CASES)]
    done = subprocess.run([BIN / "meshbench", "predict", "-"], input="\n".join(cases) + "\n", capture_output=True, text=True,
                          timeout=30 + CASES / 5, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == CASES, f"it ended at: {cases[len(rows)]}"
    return list(zip(cases, rows))


def test_every_case_has_a_prediction_or_an_error(answers):
    for text, row in answers:
        assert ("error" in row) != ("step_s" in row), text
    refused = sum("error" in row for _, row in answers)
    assert 0.1 * CASES < refused < 0.9 * CASES  # else the generator tries one side alone


def test_what_is_predicted_is_finite_and_above_zero(answers):
    for text, row in answers:
        for name, value in row.items():
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                continue
            assert math.isfinite(value), (name, text)
            assert value >= 0, (name, text)
        if "step_s" in row:
            assert 0 < row["step_low_s"] < row["step_s"] < row["step_high_s"], text
            assert 0 < row["busiest_compute_s"] <= row["step_s"] * (1 + 1e-9), text
            assert row["planned_bytes"] > 0, text


def test_every_error_names_a_key_of_the_case_and_what_would_do(answers):
    for text, row in answers:
        if "error" not in row:
            continue
        message = row["error"]
        assert len(message) > 20, (message, text)
        for inner in ("std::", "bad_alloc", "variant", "vector", "internal", "assert", "stage 0 compute #"):
            assert inner not in message, (message, text)
        keys = [word.partition("=")[0] for word in text.split()]
        # A key of the case, or one that it left at its default and that the message names with a value.
        assert "=" in message or any(key and key in message for key in keys), (message, text)


def test_a_prediction_reruns_from_the_case_of_its_row(answers):
    some = [row for _, row in answers if "step_s" in row][:40]
    lines = "\n".join(row["case"] for row in some) + "\n"
    done = subprocess.run([BIN / "meshbench", "predict", "-"], input=lines, capture_output=True, text=True, timeout=60, check=True)
    again = [json.loads(line) for line in done.stdout.splitlines()]
    for row, same in zip(some, again, strict=True):
        assert same.get("step_s") == row["step_s"], (row["case"], same.get("error"))
