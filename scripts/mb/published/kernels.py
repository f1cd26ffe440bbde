"""Published collectives and matmuls: what a few of their rows say about the others."""

import csv
import math
import zlib
from collections import defaultdict
from pathlib import Path
from statistics import mean

MIB = 1 << 20
# Sizes of a curve, 11 of 21, that the others are predicted from: closest where NCCL changes protocol and algorithm. Chosen
# looking at all curves at hand; chosen without a system, they meet its curves as well, but for l40s.
SIZES = {512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 32 * MIB, 512 * MIB}
# Dense bf16 peak in FLOP/s, memory rate in bytes/s (NVIDIA's datasheets), SMs that take tiles in whole waves, k that a tile's
# start and end take the time of, as in parallel/cost/machine.cc.
PEAKS = {"a100": (312e12, 2039e9, 108, 64), "h100": (989e12, 3350e9, 0, 64)}
# As in parallel/cost/tiles.cc: m, n, share of the largest's rate; how many tiles may divide k.
TILES = ((256, 128, 1), (128, 256, 1), (128, 128, 0.85), (128, 64, 0.7), (64, 128, 0.7), (64, 64, 0.7))
SPLITS = (1, 2, 3, 4)
# 2 (n - 1) / n or half of it of a collective's bytes pass a link of a ring.
RING_SHARE = {"all_reduce": lambda n: 2 * (n - 1) / n}


def between(points, size):
    """Time at a size by the straight line through its neighbours, or the last two; points are (bytes, time), ascending."""
    after = next((k for k, (x, _) in enumerate(points) if x >= size), len(points) - 1)
    (x0, t0), (x1, t1) = points[max(0, after - 1)], points[max(1, after)]
    return t0 + (t1 - t0) * (size - x0) / (x1 - x0)


def rising(points):
    """The nearest that never fall, by squares of logarithms: a larger message takes no less time, so that what falls is
    noise (pool adjacent violators: Barlow et al., Statistical Inference under Order Restrictions, 1972)."""
    pools = []
    for _, time in points:
        pools.append((math.log(time), 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    times = [math.exp(mean_log) for mean_log, n in pools for _ in range(n)]
    return [(size, time) for (size, _), time in zip(points, times, strict=True)]


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
        kept = rising([point for point in points if point[0] in SIZES | ends])
        errors[system] += [(size, between(kept, size) / time - 1) for size, time in points if size not in SIZES | ends]
    return dict(errors)


def more_ranks(folder):
    """By system: relative errors of 8 ranks predicted from 2 and 4, as parallel/cost/curves.cc goes beyond what was measured:
    each rank more adds the latency that the last ones added, and the rest grows as what a ring carries."""
    errors = defaultdict(list)
    known = curves(folder)
    for (system, kind, ranks), points in known.items():
        few, some = (dict(rising(known.get((system, kind, n), []))) for n in ("2", "4"))
        if ranks != "8" or not few or not some:
            continue
        share = RING_SHARE.get(kind, lambda n: (n - 1) / n)
        latency = min(some.values())
        more = max(0.0, latency - min(few.values())) / 2
        errors[system] += [(latency + 4 * more + (some[size] - latency) * share(8) / share(4)) / time - 1
                           for size, time in points if size in some]
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


def _compute_seconds(m, n, k, flops_per_s, bytes_per_s, sms, fill):
    """What a matmul's FLOPs take: tiles in whole waves, as parallel/cost/tiles.cc has them."""
    import numpy as np

    if not sms:
        return 2 * m * n * (k + fill) / flops_per_s, 0 * m
    best, partial_sums = np.full(len(m), np.inf), np.zeros(len(m))
    for tile_m, tile_n, share in TILES:
        for splits in SPLITS:
            waves = np.ceil(np.ceil(m / tile_m) * np.ceil(n / tile_n) * splits / sms)
            tiles = 2 * waves * sms * tile_m * tile_n * (k / splits + fill) / share / flops_per_s
            sums = 4 * splits * m * n / bytes_per_s * (splits > 1)
            less = tiles + sums < best + partial_sums
            best, partial_sums = np.where(less, tiles, best), np.where(less, sums, partial_sums)
    return best, partial_sums


def _fit_matmuls(rows, peak, rate, sms, fill):
    import numpy as np
    from scipy.optimize import minimize

    rows = sorted(rows, key=lambda r: zlib.crc32(f"{r[0]}-{r[1]}-{r[2]}".encode()))
    m, n, k, time = np.array(rows).T
    moved = 2 * (m * k + k * n + m * n)
    large = np.minimum(np.minimum(m, n), k) >= 1024
    first = np.arange(len(rows)) < len(rows) // 5

    def predicted(x):
        tiles, sums = _compute_seconds(m, n, k, peak * x[0], rate * abs(x[1]), sms, fill)
        return abs(x[2]) * 1e-6 + np.maximum(tiles, moved / (rate * abs(x[1]))) + sums

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

    def table(title, columns, rows, names=1):  # so many columns are words, the others numbers
        lines.extend(["", title, "", f"| {' | '.join(columns)} |",
                      "|" + " --- |" * names + " ---: |" * (len(columns) - names), *rows])

    by_system = collectives(folder)
    if by_system:
        everything = [e for errors in by_system.values() for e in errors]
        rows = []
        for system, errors in [*by_system.items(), ("all", everything)]:
            large = [abs(e) for size, e in errors if size >= MIB]
            rows.append(f"| {system} | {len(errors)} | {100 * mean(abs(e) for _, e in errors):.1f} | "
                        f"{100 * mean(large):.1f} |" if large else f"| {system} | {len(errors)} | | |")
        table("Collectives within a node: of each curve 11 sizes and straight lines between them, once no larger one takes less "
              "time, the others held out.", ("system", "sizes held out", "mean %", "from 1 MiB %"), rows)
    beyond = more_ranks(folder)
    if beyond:
        table("Collectives of 8 ranks, predicted from 2 and 4.", ("system", "sizes", "mean %", "bias %"),
              [f"| {system} | {len(errors)} | {100 * mean(map(abs, errors)):.1f} | {100 * mean(errors):.1f} |"
               for system, errors in beyond.items()])
    shapes = matmuls(folder)
    if shapes:
        table("Matmuls in bf16: share of the peak, share of the memory's rate and launch in us fitted on a fifth.",
              ("device", "constants", "held out", "mean %", "all sides >= 1,024, mean %"),
              [f"| {device} | {', '.join(f'{c:g}' for c in s['constants'])} | {s['held_out']} | {s['all_pct']:.1f} | {s['large_pct']:.1f} |"
               for device, s in shapes.items()], names=2)
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
