"""Published collectives and matmuls: what a few of their rows say about the others."""

import csv
import zlib
from collections import defaultdict
from pathlib import Path
from statistics import mean

MIB = 1 << 20
# Sizes of a curve, 11 of 21, that the others are predicted from: closest where NCCL changes protocol and algorithm. Chosen
# looking at all curves at hand; chosen without a system, they meet its curves as well, but for l40s.
SIZES = {512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 32 * MIB, 512 * MIB}
# Dense bf16 peak in FLOP/s and memory rate in bytes/s (NVIDIA's datasheets).
PEAKS = {"a100": (312e12, 2039e9), "h100": (989e12, 3350e9)}


def between(points, size):
    """Time at a size by the straight line through its neighbours, or the last two; points are (bytes, time), ascending."""
    after = next((k for k, (x, _) in enumerate(points) if x >= size), len(points) - 1)
    (x0, t0), (x1, t1) = points[max(0, after - 1)], points[max(1, after)]
    return t0 + (t1 - t0) * (size - x0) / (x1 - x0)


def curves(folder):
    """By system, collective and number of GPUs: [(bytes, time in us)], ascending."""
    path = Path(folder) / "nccl_curves.csv"
    found = defaultdict(list)
    if path.is_file():
        with open(path, newline="") as file:
            for r in csv.DictReader(file):
                found[r["system"], r["collective"], r["n_gpus"]].append((int(r["bytes"]), float(r["time_us"])))
    return {key: sorted(points) for key, points in sorted(found.items()) if len(points) > 3}


def collectives(folder):
    """By system: [(bytes, relative error)] of the sizes that those in SIZES, the smallest and the largest predict."""
    errors = defaultdict(list)
    for (system, _, _), points in curves(folder).items():
        ends = {points[0][0], points[-1][0]}
        kept = [point for point in points if point[0] in SIZES | ends]
        errors[system] += [(size, between(kept, size) / time - 1) for size, time in points if size not in SIZES | ends]
    return dict(errors)


def matmuls(folder):
    """By device: the three constants fitted on a fifth of its shapes, how many others, and their mean error in percent:
    all, and those with all sides of 1,024 or more."""
    found = {}
    for path in sorted(Path(folder).glob("gemm_*.csv")):
        with open(path, newline="") as file:
            rows = [(int(r["m"]), int(r["n"]), int(r["k"]), float(r["time_us"]) * 1e-6) for r in csv.DictReader(file)]
        device = path.stem.removeprefix("gemm_")
        if device in PEAKS and len(rows) >= 50:
            found[device] = _fit_matmuls(rows, *PEAKS[device])
    return found


def _fit_matmuls(rows, peak, rate):
    import numpy as np
    from scipy.optimize import minimize

    rows = sorted(rows, key=lambda r: zlib.crc32(f"{r[0]}-{r[1]}-{r[2]}".encode()))
    m, n, k, time = np.array(rows).T
    work, moved = 2 * m * n * k, 2 * (m * k + k * n + m * n)
    large = np.minimum(np.minimum(m, n), k) >= 1024
    first = np.arange(len(rows)) < len(rows) // 5

    def predicted(x):
        return abs(x[2]) * 1e-6 + np.maximum(work / (peak * x[0]), moved / (rate * x[1]))

    def fitted(these):
        return minimize(lambda x: np.abs(np.log(predicted(x) / time))[these].mean(), [0.8, 0.9, 4],
                        method="Nelder-Mead", options={"maxiter": 2000}).x

    def error(x, these):
        return 100 * float(np.abs(predicted(x) / time - 1)[these].mean())

    some, any_size = fitted(first & large), fitted(first)
    return {"constants": [float(f"{abs(v):.3g}") for v in some], "held_out": int((~first).sum()),
            "all_pct": error(any_size, ~first), "large_pct": error(some, ~first & large)}


def markdown(folder):
    """Both as tables; "" where there is nothing."""
    lines = []
    by_system = collectives(folder)
    if by_system:
        everything = [e for errors in by_system.values() for e in errors]
        lines += ["", "Collectives within a node: of each curve 11 sizes and straight lines between them, the others held out.", "",
                  "| system | sizes held out | mean % | from 1 MiB % |", "| --- | ---: | ---: | ---: |"]
        for system, errors in [*by_system.items(), ("all", everything)]:
            large = [abs(e) for size, e in errors if size >= MIB]
            lines.append(f"| {system} | {len(errors)} | {100 * mean(abs(e) for _, e in errors):.1f} | "
                         f"{100 * mean(large):.1f} |" if large else f"| {system} | {len(errors)} | | |")
    shapes = matmuls(folder)
    if shapes:
        lines += ["", "Matmuls in bf16: share of the peak, share of the memory's rate and launch in us fitted on a fifth.", "",
                  "| device | constants | held out | mean % | all sides >= 1,024, mean % |", "| --- | --- | ---: | ---: | ---: |"]
        lines += [f"| {device} | {', '.join(f'{c:g}' for c in s['constants'])} | {s['held_out']} | {s['all_pct']:.1f} | {s['large_pct']:.1f} |"
                  for device, s in shapes.items()]
    return "\n".join(lines) + "\n" if lines else ""


def draw(folder, path):
    """Errors of predicted collectives over the size, a panel for each system."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    by_system = collectives(folder)
    if not by_system:
        return
    figure, panels = plt.subplots(1, len(by_system), figsize=(3.2 * len(by_system), 3.4), squeeze=False, sharey=True)
    for panel, (system, errors) in zip(panels.flat, by_system.items(), strict=True):
        panel.plot([size for size, _ in errors], [100 * e for _, e in errors], "o", ms=3, alpha=0.5, color="#1f5fa8")
        panel.axhline(0, color="black", lw=0.8)
        panel.axvline(MIB, color="#999999", lw=0.8, ls=":")
        panel.set_xscale("log", base=2)
        panel.set(title=system, xlabel="bytes")
        panel.set_xticks([1 << k for k in (10, 15, 20, 25)], ["1 KiB", "32 KiB", "1 MiB", "32 MiB"], fontsize=8)
    panels[0][0].set_ylabel("predicted over measured, % off")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def memory_markdown(rows):
    """Planned, expected and whole memory beside what was measured, by source and what was counted."""
    groups = defaultdict(list)
    for r in rows:
        if r["measured_memory_gib"] and r["planned_memory_gib"]:
            groups[r["source"], r["memory_kind"][:48]].append(r)
    lines = []
    for (source, kind), members in sorted(groups.items()):
        def off(key, members=members):
            return [100 * (float(r[key]) / float(r["measured_memory_gib"]) - 1) for r in members]
        planned, expected, total = (off(f"{key}_memory_gib") for key in ("planned", "expected", "total"))
        lines.append(f"| {source} | {kind} | {len(members)} | {mean(map(abs, planned)):.1f} | {mean(map(abs, expected)):.1f} | "
                     f"{mean(expected):.1f} | {max(map(abs, expected)):.1f} | {mean(total):.1f} | {sum(t < 0 for t in total)} |")
    head = ["", "Memory: tensors of the Plan; what was counted as one expects it, with what the stack keeps beside (allocated), with "
            "fragmentation (reserved), with libraries and context (nvidia-smi); and the most of it, which decides whether a case fits.", "",
            "| source | what was measured | rows | planned, mean off % | expected, mean off % | bias % | largest % | most, bias % | most too low |",
            "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    return "\n".join([*head, *lines]) + "\n" if lines else ""
