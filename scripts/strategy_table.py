#!/usr/bin/env python3
"""Prints the README's table of strategies: what each sends and takes, as `traffic` and `memory` tell it."""
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BASE = "model=gpt3-1.3b dtype=bf16 global_batch=64 mode=sim"
EXPERTS = "model.experts=8 model.experts_per_token=2"

# (strategy, words, what it costs and saves)
ROWS = [
    ("data parallelism", "mesh=dp8", "sums every gradient; all else is there eight times"),
    ("ZeRO-1", "mesh=dp8 zero=1", "divides optimizer state; the sum becomes reduce-scatter and all-gather"),
    ("ZeRO-2", "mesh=dp8 zero=2", "also reduced gradients, so every micro-batch reduces"),
    ("ZeRO-3", "mesh=dp8 zero=3", "also parameters, so every pass gathers them, a block ahead"),
    ("ZeRO-3, kept for the step", "mesh=dp8 zero=3 reshard=off", "gathers once a step"),
    ("HSDP", "mesh=rdp2.dp4 zero=3", "divides among four, sums over two such groups"),
    ("tensor parallelism", "mesh=tp8", "divides matmuls; 4 all-reduces a layer and micro-batch"),
    ("with sequence parallelism", "mesh=tp8 sequence_parallel=on", "divides what lies between them too"),
    ("context parallelism, ring", "mesh=cp8", "divides sequences; keys and values go round"),
    ("context parallelism, Ulysses", "mesh=cp8 context=ulysses", "exchanges tokens for heads"),
    ("pipeline, 1F1B", "mesh=pp8", "divides layers; sends activations alone"),
    ("pipeline, interleaved", "mesh=pp8 schedule=interleaved chunks=3", "three stages a rank: a third of the bubble"),
    ("pipeline, ZB-H1", "mesh=pp8 schedule=zb-h1", "weight gradients fill the bubble"),
    ("pipeline, ZB-V", "mesh=pp8 layout=1,2,1,2,1,2,1,2,1,2,1,2,1,2,1,2 schedule=zb-v", "two stages a rank, there and back"),
    ("recompute the attention core", "mesh=dp8 recompute=attention", "keeps no result of it"),
    ("recompute layers", "mesh=dp8 recompute=full", "keeps their inputs; a third more FLOPs"),
    ("offload the optimizer", "mesh=dp8 offload=optimizer", "moments and main parameters on the host"),
    ("offload all", "mesh=dp8 offload=all", "activations too"),
    ("8 experts, data parallelism", f"mesh=dp8 {EXPERTS}", "every rank has every expert"),
    ("8 experts on 8 ranks", f"mesh=ep8 {EXPERTS}", "an expert a rank; tokens travel, into room for the worst case"),
]


def meshbench(verb, words):
    binary = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench")) / "meshbench"
    out = subprocess.run([binary, verb, "--json", *BASE.split(), *words.split()], check=True, capture_output=True)
    return json.loads(out.stdout)


def row(strategy, words, meaning):
    traffic, memory, theory = (meshbench(verb, words) for verb in ("traffic", "memory", "theory"))
    wire = max(sum(line["wire_bytes"] for line in rank["traffic"]) for rank in traffic["pipeline_ranks"])
    peak = max(rank["total"]["plan_bytes"] for rank in memory["ranks"])
    host = max(rank["host"]["plan_bytes"] for rank in memory["ranks"])
    taken = f"{peak / 2**30:.1f}" + (f" + {host / 2**30:.1f} on the host" if host else "")
    bubble = theory.get("bubble_fraction")
    return [strategy, f"`{words}`", f"{wire / 2**30:.2f}", taken, f"{100 * bubble:.1f} %" if bubble else "", meaning]


def table():
    head = ["strategy", "words", "GiB sent", "GiB at the peak", "bubble", "what it does"]
    lines = [head, ["---"] * 2 + ["---:"] * 3 + ["---"]] + [row(*entry) for entry in ROWS]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
