#!/usr/bin/env python3
"""Runs the commands behind results/claims/notes.md and prints its tables, or with --write puts them there.

Simulated tables follow from the build alone; measured ones (--measured: also run those) from the machine that they run on.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTES = ROOT / "results" / "claims" / "notes.md"
GIB = 2**30


def meshbench(verb, words, *flags):
    binary = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench")) / "meshbench"
    done = subprocess.run([binary, verb, *words.split(), *flags, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3) or not done.stdout:
        raise SystemExit(f"meshbench {verb} {words}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()] if done.stdout.startswith('{"') else json.loads(done.stdout)


def predict(words):
    binary = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench")) / "meshbench"
    row = json.loads(subprocess.run([binary, "predict", "-"], input=words + "\n", capture_output=True, text=True, check=True).stdout)
    if "error" in row:
        raise SystemExit(f"meshbench predict {words}: {row['error']}")
    return row


def part(row, kind, name=None):
    """Share of a step along its critical path."""
    parts = row["explained"]["parts"] if "explained" in row else row["critical_path"]["parts"]
    return sum(p["share"] for p in parts if p["kind"] == kind and name in (None, p["name"]))


def value(row, name):
    return row["metrics"][name]["value"]


def number(x, digits=3):
    """Three significant digits, without an exponent."""
    return f"{float(f'{x:.{digits}g}'):,.10g}".replace(",", "") if x else "0"


def percent(share):
    return f"{100 * share:.1f} %"


def duration(s):
    return f"{number(s)} s" if s >= 1 else f"{number(1e3 * s)} ms"


# --- Each claim: () -> the lines of its table, the first of them the titles. -------------------------------------------------


PARAMETERS = {"gpt-1m": 842496, "gpt3-1.3b": 1315723264, "gpt3-2.7b": 2651553280, "llama2-7b": 6738415616, "gpt3-13b": 12853386240}
STATE_CLASSES = ("parameter", "gradient", "main_parameter", "moment")


def state_of(rank, column):
    return {c["class"]: c[column] for c in rank["classes"] if c["class"] in STATE_CLASSES}


def replicated_state():
    lines = [["model", "parameters", "state a rank, GB", "bytes a parameter", "needed at most, GB", "fits 80 GB"]]
    for model in ("gpt3-1.3b", "gpt3-2.7b", "llama2-7b", "gpt3-13b"):
        for zero, mesh in ((0, "dp8"), (0, "dp64"), (3, "dp64")):
            words = f"model={model} mesh={mesh} zero={zero} dtype=bf16 micro_batch=1 recompute=full mode=sim machine=a100x8"
            rank = meshbench("memory", words)["ranks"][0]
            row = predict(words)
            state = sum(state_of(rank, "plan_bytes").values())
            parameters = PARAMETERS[model]
            needed = sum(row[f"{name}_bytes"] for name in ("planned", "stack", "rounding", "fragmentation", "library", "context"))
            lines.append([f"`{model} mesh={mesh} zero={zero}`", f"{number(parameters / 1e9)} G", number(state / 1e9),
                          f"{state / parameters:.2f}", number(needed / 1e9), "yes" if row["fits"] else "no"])
    return lines


def counted_state():
    lines = [["class", "bytes a parameter, planned", "counted on each of two ranks"]]
    memory = meshbench("memory", "model=gpt-10m mesh=dp2 dtype=bf16 micro_batch=1 global_batch=2", "--run")
    rank = memory["ranks"][0]
    parameters = state_of(rank, "plan_bytes")["parameter"] / 2
    planned, counted = state_of(rank, "plan_bytes"), state_of(rank, "measured_bytes")
    for name in STATE_CLASSES:
        lines.append([name.replace("_", " "), f"{planned[name] / parameters:.2f}", f"{counted[name] / parameters:.2f}"])
    lines.append(["sum", *(f"{sum(state.values()) / parameters:.2f}" for state in (planned, counted))])
    return lines


def slow_networks():
    lines = [["NICs of a node", "step", "exposed all-reduce", "computing"]]
    for name, nics, rate in (("1 of 1 Gb/s", 1, 0.125), ("1 of 10 Gb/s", 1, 1.25), ("1 of 100 Gb/s", 1, 12.5),
                             ("8 of 200 Gb/s", 8, 25)):
        row = meshbench("sim", f"model=gpt3-1.3b mesh=dp64 dtype=bf16 micro_batch=2 global_batch=512 machine=a100x8 "
                               f"machine.nics_per_node={nics} machine.nic_gb_per_s={rate}")
        computing = sum(part(row, kind) for kind in ("compute", "optimizer"))
        lines.append([name, duration(value(row, "step_s")), percent(part(row, "exposed", "dp")), percent(computing)])
    return lines


def slow_links_here():
    lines = [["link", "step", "exposed all-reduce"]]
    for rate in ("0.005", "0.05", "0.5"):
        row = meshbench("run", f"model=gpt-1m mesh=dp2 micro_batch=1 global_batch=8 steps=3 link=intra:{rate}GB/s,50us;inter:1GB/s,50us")
        lines.append([f"{rate} GB/s", duration(value(row, "step_s")), percent(part(row, "exposed", "dp"))])
    return lines


def coll(words):
    return [row for row in meshbench("coll", words) if row["params"].get("in_place", "out") != "in"][0]


def gigabit():
    lines = [["ranks, each a node", "a message", "all-reduce"]]
    for ranks in (2, 8, 64):
        base = f"mesh=dp{ranks} size=1GB mode=sim machine=cpu machine.ranks_per_node=1 machine.nic_gb_per_s=0.125"
        lines.append([str(ranks), *(duration(value(coll(f"op={op} {base}"), "completion_s")) for op in ("ping_pong", "all_reduce"))])
    return lines


def gigabit_here():
    row = coll("op=all_reduce mesh=dp2 size=8MB link=intra:4GB/s,2us;inter:0.125GB/s,50us ranks_per_node=1 time_cap=2s iterations=5,20")
    seconds = value(row, "completion_s")
    return [["8 MB between two ranks over shaped links", "so 1 GB"], [duration(seconds), duration(125 * seconds)]]


def checkpointing():
    lines = [["recompute", "activations of a rank, GiB", "saved", "FLOPs", "step", "recomputing"]]
    for words in ("model=gpt3-13b mesh=tp8 sequence_parallel=on micro_batch=4 global_batch=32",):
        none = None
        for recompute in ("none", "attention", "full"):
            case = f"{words} dtype=bf16 machine=h100x8 recompute={recompute}"
            row = meshbench("sim", case)
            activations = value(row, "peak_activation_bytes") / GIB
            none = none or activations
            lines.append([recompute, number(activations), percent(1 - activations / none),
                          f"{value(row, 'hardware_flops') / value(row, 'model_flops'):.3f}", duration(value(row, "step_s")),
                          percent(part(row, "recompute"))])
    return lines


def checkpointing_here():
    lines = [["recompute", "activations counted, MiB", "recomputing over forward"]]
    for recompute in ("none", "full"):
        row = meshbench("run", f"model=gpt-10m mesh=1 micro_batch=2 global_batch=8 steps=3 recompute={recompute}")
        passes = {p["name"]: p["total_ns"] for p in row["breakdown"]["passes"]}
        lines.append([recompute, number(value(row, "peak_activation_bytes") / 2**20),
                      f"{passes.get('recompute', 0) / passes['forward']:.2f}"])
    return lines


def zero_traffic(run=False):
    lines = [["micro-batches", "ZeRO", "sent by a rank, bytes a parameter", "over plain DP"]]
    model = "gpt-1m" if run else "llama2-7b"
    flags = ["--run"] if run else []
    for micro_batches in (1, 4):
        plain = None
        for zero in (0, 1, 2, 3):
            told = meshbench("traffic", f"model={model} mesh=dp4 micro_batch=1 global_batch={4 * micro_batches} zero={zero}"
                             + ("" if run else " dtype=bf16 reduce_dtype=dtype mode=sim"), *flags)
            rows = [row for row in told["pipeline_ranks"][0]["traffic"] if row["axis"] == "dp"]
            if run and not all(row["counted"] == row["plan"] for row in rows):
                raise SystemExit(f"{told['case']}: what was counted is not what was planned")
            sent = sum(row["wire_bytes"] for row in rows)
            plain = plain or sent
            lines.append([str(micro_batches), str(zero), number(sent / PARAMETERS[model]), f"{sent / plain:.2f}"])
    return lines


def zero_traffic_here():
    return zero_traffic(run=True)


def bubble():
    lines = [["schedule", "micro-batches", "(p - 1) / (m v)", "bubble over ideal", "messages sent by the busiest rank", "step"]]
    for m in (4, 8, 32):
        for schedule, chunks in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 4)):
            case = f"model=gpt3-6.7b mesh=pp4 dtype=bf16 micro_batch=1 global_batch={m} machine=h100x8 schedule={schedule} chunks={chunks}"
            row = meshbench("sim", case)
            sent = max(sum(t["plan"]["calls"] for t in row["traffic"] if t["axis"] == "pp" and t["stage"] == stage)
                       for stage in range(4))
            lines.append([f"{schedule}{'' if chunks == 1 else f', {chunks} chunks'}", str(m), percent(3 / (m * chunks)),
                          percent(value(row, "bubble_over_ideal")), str(sent), duration(value(row, "step_s"))])
    return lines


def bubble_here():
    lines = [["micro-batches", "(p - 1) / (m + p - 1)", "measured, as if each rank had a core"]]
    for m in (2, 4, 8, 16):
        row = meshbench("run", f"model=gpt-1m mesh=pp2 micro_batch=2 global_batch={2 * m} steps=5")
        lines.append([str(m), percent(1 / (m + 1)), percent(value(row, "bubble_fraction_own_cores"))])
    return lines


def tensor_parallel():
    lines = [["mesh", "tensor ranks of a group on", "step", "MFU", "exposed tp"]]
    cases = ("mesh=dp8.tp8", "mesh=dp8.tp8 order=dp,tp", "mesh=dp4.tp16", "mesh=dp2.tp32")
    nodes = ("1 node", "8 nodes", "2 nodes", "4 nodes")
    for where, words in zip(nodes, cases):
        row = meshbench("sim", f"model=gpt3-13b dtype=bf16 zero=1 recompute=full micro_batch=1 global_batch=64 machine=h100x8 "
                               f"model.heads=32 model.kv_heads=32 {words}")
        lines.append([f"`{words}`", where, duration(value(row, "step_s")), percent(value(row, "mfu")), percent(part(row, "exposed", "tp"))])
    return lines


def placement():
    lines = [["order, fastest axis first", "between nodes, TiB", "step", "times the best"]]
    for row in meshbench("place", "model=gpt-100b mesh=dp2.pp4.tp8 mode=sim machine=h100x8 micro_batch=4 global_batch=128"):
        told = row["placement"]
        lines.append([" = ".join(told["orders"]), number(told["inter_bytes"] / 2**40), duration(value(row, "simulated_step_s")),
                      f"{told['times_the_best']:.2f}"])
    return lines


def placement_here():
    lines = [["order, fastest axis first", "step, virtual time", "step, measured"]]
    for row in meshbench("place", "model=gpt-1m mesh=dp2.tp2 ranks_per_node=2 micro_batch=1 global_batch=4 steps=3 "
                                  "link=intra:4GB/s,2us;inter:0.02GB/s,1ms", "--run"):
        lines.append([" = ".join(row["placement"]["orders"]), duration(value(row, "simulated_step_s")), duration(value(row, "step_s"))])
    return lines


EXAMPLE = "case=textbook-100b"
FITTING = "case=textbook-100b dtype=bf16 zero=1 recompute=full sequence_parallel=on"


def example():
    lines = [["step by step", "as the textbook has it, fp32", "one that fits: bf16, ZeRO-1, layers recomputed"]]
    rows = [meshbench("sim", words) for words in (EXAMPLE, FITTING)]

    def add(name, *cells):
        lines.append([name, *cells])

    def sent(row, axis):  # by the first stage: (bytes, calls) of each kind
        return [(t["plan"]["bytes"], t["plan"]["calls"]) for t in row["traffic"]
                if t["axis"] == axis and t["stage"] == 0 and t["kind"] != "all_gather"]

    def each(row, axis):
        return number(max(size / calls for size, calls in sent(row, axis)) / 2**20)

    add("ranks: tensor x pipeline x data", *("8 x 4 x 2" for _ in rows))
    add("layers of a stage", *(str(row["model"]["layers"] // 4) for row in rows))
    add("parameters of a rank, G", *(number(rank["parameter"] / size / 1e9) for rank, size in (
        (state_of(row["memory"], "plan_bytes"), {"fp32": 4, "bf16": 2}[row["params"]["dtype"]]) for row in rows)))
    add("micro-batches of a data rank", *(str(row["params"]["micro_batches"]) for row in rows))
    add("an exchange of tensor ranks, MiB", *(each(row, "tp") for row in rows))
    add("a message between stages, MiB", *(each(row, "pp") for row in rows))
    add("gradients that a rank sums over data ranks, GiB", *(
        number(sum(size for size, _ in sent(row, "dp")) / GIB) for row in rows))
    add("peak memory of the fullest rank, GiB of 74.5", *(number(row["memory"]["total"]["plan_bytes"] / GIB) for row in rows))
    add("bubble in theory, of the pipeline's window", *(percent(row["theory"]["bubble_fraction"]) for row in rows))
    add("not computing in it, exchanges and all", *(percent(value(row, "bubble_fraction")) for row in rows))
    add("step", *(duration(value(row, "step_s")) for row in rows))
    add("MFU", *(percent(value(row, "mfu")) for row in rows))
    for name, kind, axis in (("computing, of the step", "compute", None), ("recomputing", "recompute", None),
                             ("exposed tensor exchanges", "exposed", "tp"), ("exposed messages between stages", "exposed", "pp"),
                             ("exposed gradient sums", "exposed", "dp"), ("bubble and waiting", "wait", None)):
        add(name, *(percent(part(row, kind, axis)) for row in rows))
    return lines


SIMULATED = {"replicated_state": replicated_state, "slow_networks": slow_networks, "gigabit": gigabit, "checkpointing": checkpointing,
             "zero_traffic": zero_traffic, "bubble": bubble, "tensor_parallel": tensor_parallel, "placement": placement,
             "example": example}
MEASURED = {"counted_state": counted_state, "slow_links_here": slow_links_here, "gigabit_here": gigabit_here,
            "checkpointing_here": checkpointing_here, "zero_traffic_here": zero_traffic_here, "bubble_here": bubble_here,
            "placement_here": placement_here}


def table(lines):
    """Markdown; columns of numbers to the right."""
    right = [all(re.match(r"^[\d.,]+( |$)", line[at]) for line in lines[1:]) for at in range(len(lines[0]))]
    rule = ["---:" if to_right else "---" for to_right in right]
    return "".join("| " + " | ".join(line) + " |\n" for line in [lines[0], rule, *lines[1:]])


def marked(name, notes):
    """(start, end) of a table in the notes, between its marks."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", notes, re.S)
    if not found:
        raise SystemExit(f"{NOTES} has no <!-- {name} --> ... <!-- end -->")
    return found.span(1)


def main(argv=None):
    known = {**SIMULATED, **MEASURED}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some tables alone: {', '.join(known)}")
    parser.add_argument("--measured", action="store_true", help="measured tables too (a minute)")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {NOTES.relative_to(ROOT)}")
    args = parser.parse_args(argv)
    if unknown := [name for name in args.names if name not in known]:
        parser.error(f"{unknown[0]} is no table; there are {', '.join(known)}")
    for name in args.names or (known if args.measured else SIMULATED):
        text = table(known[name]())
        if args.write:
            notes = NOTES.read_text(encoding="utf-8")
            start, end = marked(name, notes)
            NOTES.write_text(notes[:start] + text + notes[end:], encoding="utf-8")
        print(f"{name}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
