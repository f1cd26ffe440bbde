#!/usr/bin/env python3
"""sim_against_ranks.py MESHBENCH -o DIR [--hosts RATE RATE] [--seconds S]: steps of two ranks beside their prediction.

Measures collectives and traces of a few cases on this machine, fits a machine to them (`meshbench fit`), and predicts
cases that are none of these; then holds the predictions to the cases as they run: on two rank threads over slowed links
of two shapes, or by MPI on two hosts that scripts/hosts.sh makes, at the two rates given (--hosts 2gbit 500mbit).
Calibration and cases take turns in rounds until --seconds are over, so that what disturbs the machine disturbs all
alike. Writes rows.csv, summary.json, fit_LINK.json and steps.png to DIR. Exits with 0 when done, 2 for wrong use, 3 if
a case fails.
"""

import argparse
import csv
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

BASE = "model=gpt-1m"


@dataclass
class Link:
    """How two ranks are joined: what starts a command of theirs, its words, and what a machine says of it."""
    name: str
    text: str
    launch: tuple = ()
    words: tuple = ()
    machine: tuple = ()


def shaped(name, shape):
    return Link(name, shape, words=("mode=threads", f"link={shape}"))


def of_hosts(rate):
    script = Path(__file__).parent / "hosts.sh"
    return Link(rate, rate, (str(script), "--hosts", "2", "--ranks", "2", "--rate", rate, "--"), ("mode=mpi",),
                ("machine.ranks_per_node=1",))


THREADS = (shaped("fast", "intra:1GB/s,200us;inter:1GB/s,200us"), shaped("slow", "intra:0.25GB/s,500us;inter:0.25GB/s,500us"))
# Shapes of all operations, by meshes and options that the sweep has in other combinations and with more micro-batches.
CALIBRATION = (
    "mesh=dp2 micro_batch=2 global_batch=8",
    "mesh=dp2 micro_batch=2 global_batch=8 zero=1",
    "mesh=dp2 micro_batch=2 global_batch=8 zero=3",
    "mesh=dp2 micro_batch=1 global_batch=4",
    "mesh=tp2 micro_batch=2 global_batch=4",
    "mesh=tp2 micro_batch=2 global_batch=4 sequence_parallel=on",
    "mesh=pp2 micro_batch=2 global_batch=6",
    "mesh=pp2 micro_batch=1 global_batch=3",
)
SWEEP = (
    "mesh=dp2 micro_batch=2 global_batch=16",
    "mesh=dp2 micro_batch=2 global_batch=16 overlap=none",
    "mesh=dp2 micro_batch=2 global_batch=16 bucket=64KiB",
    "mesh=dp2 micro_batch=2 global_batch=32 zero=1",
    "mesh=dp2 micro_batch=2 global_batch=16 zero=2",
    "mesh=dp2 micro_batch=2 global_batch=16 zero=3",
    "mesh=dp2 micro_batch=1 global_batch=16",
    "mesh=dp2 micro_batch=2 global_batch=16 recompute=full",
    "mesh=tp2 micro_batch=2 global_batch=8",
    "mesh=tp2 micro_batch=2 global_batch=8 sequence_parallel=on",
    "mesh=tp2 micro_batch=2 global_batch=8 recompute=full",
    "mesh=pp2 micro_batch=2 global_batch=8 schedule=gpipe",
    "mesh=pp2 micro_batch=2 global_batch=16 schedule=gpipe",
    "mesh=pp2 micro_batch=2 global_batch=8",
    "mesh=pp2 micro_batch=2 global_batch=16",
    "mesh=pp2 micro_batch=1 global_batch=8",
    "mesh=pp2 micro_batch=2 global_batch=8 schedule=interleaved chunks=2",
    "mesh=pp2 micro_batch=2 global_batch=16 schedule=interleaved chunks=2",
    "mesh=pp2 micro_batch=2 global_batch=8 schedule=zb-h1",
    "mesh=pp2 micro_batch=2 global_batch=16 schedule=zb-h1",
)


class Bench:
    """Calls of the binary."""

    def __init__(self, path, folder, links):
        self.path, self.folder, self.links, self.calls = path, Path(folder), links, 0

    def points(self):
        """(number of the link, words of the case), all 40."""
        return [(at, f"{BASE} {words}") for at in range(len(self.links)) for words in SWEEP]

    def call(self, *words, launch=()):
        done = subprocess.run([*launch, self.path, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"sim_against_ranks: {' '.join(map(str, words))}: {done.stderr.strip()}", file=sys.stderr)
            raise SystemExit(3)

    def measure(self, link, *words):
        self.call(*words, *link.words, launch=link.launch)

    def place(self, suffix):
        self.calls += 1
        return self.folder / f"{self.calls}{suffix}"

    def step(self, link, words):
        """A measured step: median seconds and bubble of the recorded ones."""
        path = self.place(".json")
        self.measure(link, "run", *words.split(), "verify=off", "warm_up=2", "steps=5", "--no-progress", "-q", "-o", path)
        return of_row(json.loads(path.read_text()))

    def trace(self, link, words):
        path = self.place(".trace.json")
        self.measure(link, "run", *BASE.split(), *words.split(), "verify=off", "warm_up=2", "steps=1", "-q",
                     "--no-progress", "--trace", path)
        return path

    def collectives(self, link):
        path = self.place(".jsonl")
        self.measure(link, "coll", "op=all_reduce,all_gather,reduce_scatter,shift", "mesh=dp2", "size=1K:4M:x8", "call=stream",
                     "in_place=out", "time_cap=20ms", "iterations=5,40", "check=off", "--json", "-o", path)
        return path

    def fit(self, link, shape_files, traces, report):
        out = self.place(".machine.json")
        self.call("fit", *shape_files, *traces, "machine=cpu", "machine.fp32_tflops=0.3", *link.machine, "-o", out,
                  "--report", report)
        report.write_text(report.read_text().replace(f"{self.folder}/", ""))  # it is gone afterwards
        return out

    def predict(self, machine, words):
        path = self.place(".json")
        self.call("run", *words.split(), "mode=sim", f"machine=@{machine}", "-q", "-o", path)
        row = json.loads(path.read_text())
        return (*of_row(row), row["prediction"]["modelled_ops"])


def of_row(row):
    return row["metrics"]["step_s"]["median"], row["metrics"]["bubble_fraction"].get("median")


def measure(bench, seconds):
    """Rounds of calibration and cases: collectives and traces by link, and steps by point."""
    end = time.monotonic() + seconds
    collectives, traces = ([[] for _ in bench.links] for _ in range(2))
    steps, took = {point: [] for point in bench.points()}, 0.0
    while True:
        start = time.monotonic()
        for at, link in enumerate(bench.links):
            collectives[at].append(bench.collectives(link))
            traces[at] += [bench.trace(link, words) for words in CALIBRATION]
        for point in steps:
            steps[point].append(bench.step(bench.links[point[0]], point[1]))
        took = max(took, time.monotonic() - start)
        if time.monotonic() + took > end:
            return collectives, traces, steps


def results(bench, measured, out):
    collectives, traces, steps = measured
    machines = [bench.fit(link, collectives[at], traces[at], out / f"fit_{link.name}.json")
                for at, link in enumerate(bench.links)]
    rows = []
    for point, runs in steps.items():
        at, words = point
        seconds, bubble, modelled = bench.predict(machines[at], words)
        step = median(s for s, _ in runs)
        bubbles = [b for _, b in runs if b is not None]
        rows.append({"link": bench.links[at].text, "case": words, "rounds": len(runs), "measured_ms": 1e3 * step,
                     "fastest_ms": 1e3 * min(s for s, _ in runs), "slowest_ms": 1e3 * max(s for s, _ in runs),
                     "predicted_ms": 1e3 * seconds, "error_pct": 100 * (seconds / step - 1),
                     "measured_bubble_pct": 100 * median(bubbles) if bubbles else None,
                     "predicted_bubble_pct": None if bubble is None else 100 * bubble, "modelled_ops": modelled})
    return rows


def summary(rows):
    errors = [row["error_pct"] for row in rows]
    bubbles = [row["predicted_bubble_pct"] - row["measured_bubble_pct"] for row in rows if row["measured_bubble_pct"] is not None]
    sizes = [abs(e) for e in errors]
    return {"points": len(rows), "step_mean_error_pct": mean(sizes), "step_median_error_pct": median(sizes),
            "step_largest_error_pct": max(sizes), "step_bias_pct": mean(errors), "bubbles": len(bubbles),
            "bubble_mean_error_points": mean(map(abs, bubbles)), "bubble_largest_error_points": max(map(abs, bubbles)),
            "spread_between_rounds_pct": 100 * mean(row["slowest_ms"] / row["fastest_ms"] - 1 for row in rows)}


def draw(rows, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9.5, 4.4))
    axes = (("dp2", "#1f5fa8", "o"), ("tp2", "#d97706", "s"), ("pp2", "#2e7d32", "^"))
    for panel, key, unit in ((panels[0], "ms", "step, ms"), (panels[1], "bubble_pct", "bubble, % of the pipeline's window")):
        ends = []
        for mesh, colour, marker in axes:
            some = [r for r in rows if f"mesh={mesh} " in r["case"] and r[f"measured_{key}"] is not None]
            if not some:
                continue
            x, y = ([r[f"{kind}_{key}"] for r in some] for kind in ("measured", "predicted"))
            spread = [[r["measured_ms"] - r["fastest_ms"] for r in some], [r["slowest_ms"] - r["measured_ms"] for r in some]]
            panel.errorbar(x, y, xerr=spread if key == "ms" else None, fmt=marker, color=colour, ms=5, lw=0.8, alpha=0.8, label=mesh)
            ends += x + y
        low, high = 0.9 * min(ends), 1.05 * max(ends)
        panel.plot([low, high], [low, high], color="black", lw=0.8)
        panel.set(xlabel=f"measured {unit}", ylabel=f"predicted {unit}")
        if key == "ms":
            panel.set(xscale="log", yscale="log")
        panel.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("meshbench", help="the binary")
    parser.add_argument("-o", "--out", required=True, metavar="DIR")
    parser.add_argument("--hosts", nargs=2, metavar="RATE", help="MPI on two hosts, joined at these rates [rank threads]")
    parser.add_argument("--seconds", type=float, default=180, help="to spend on rounds; one is always run [180]")
    args = parser.parse_args(argv)
    if not shutil.which(args.meshbench):
        parser.error(f"{args.meshbench} is no program; build it, and give for example build/cpu/bench/meshbench")
    if not importlib.util.find_spec("matplotlib"):
        parser.error("there is no matplotlib to draw with; run it by .venv/bin/python, which scripts/setup.sh makes")
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.meshbench, folder, [of_hosts(rate) for rate in args.hosts] if args.hosts else THREADS)
        rows = results(bench, measure(bench, args.seconds), out)
    with open(out / "rows.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (out / "summary.json").write_text(json.dumps(summary(rows), indent=2) + "\n")
    draw(rows, out / "steps.png")
    print(json.dumps(summary(rows), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
