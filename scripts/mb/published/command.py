"""mb published --published DIR -o OUT: published steps through the simulator, predicted beside measured."""

import argparse
import csv
import json
import math
import time
from collections import defaultdict
from pathlib import Path
from statistics import mean, median

from mb.exit_codes import ExitCode
from mb.published import cases, fit, kernels

COLUMNS = ("source", "id", "stack", "fitted_on", "measured_s", "predicted_s", "low_s", "high_s", "error_pct",
           "inside_80pct", "measured_memory_gib", "memory_kind", "planned_memory_gib", "expected_memory_gib", "total_memory_gib", "fits", "skipped", "case")


def _ranks(values):
    """Ranks from 1, the mean of them for equal values."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for k in range(first, last + 1):
            ranks[order[k]] = (first + last) / 2 + 1
        first = last + 1
    return ranks


def spearman(a, b):
    """Rank correlation; None where it is not defined."""
    if len(a) < 3:
        return None
    x, y = _ranks(a), _ranks(b)
    mx, my = mean(x), mean(y)
    spread = math.sqrt(sum((v - mx) ** 2 for v in x) * sum((v - my) ** 2 for v in y))
    return sum((v - mx) * (w - my) for v, w in zip(x, y, strict=True)) / spread if spread else None


def regrets(rows):
    """By group of rows that differ in the mesh alone: how much slower the predicted best is than the best."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["group"]].append(row)
    found = []
    for members in groups.values():
        if len(members) > 1:
            chosen = min(members, key=lambda r: r["predicted_s"])
            found.append(chosen["measured_s"] / min(r["measured_s"] for r in members) - 1)
    return sorted(found)


def summary(rows):
    """What the held-out rows of a source say, in percent."""
    held = [r for r in rows if not r["fitted_on"]]
    errors = [r["error_pct"] for r in held]
    sizes = [abs(e) for e in errors]
    worse = regrets(rows)
    rank = spearman([r["measured_s"] for r in held], [r["predicted_s"] for r in held])
    return {"rows": len(rows), "fitted_on": len(rows) - len(held), "held_out": len(held),
            "mean_pct": mean(sizes) if sizes else None, "median_pct": median(sizes) if sizes else None,
            "largest_pct": max(sizes, default=None), "bias_pct": mean(errors) if errors else None, "spearman": rank,
            "groups": len(worse), "regret_mean_pct": 100 * mean(worse) if worse else None,
            "regret_p95_pct": 100 * worse[math.ceil(0.95 * len(worse)) - 1] if worse else None,
            "coverage_pct": 100 * mean(r["inside_80pct"] for r in held) if held else None}


def row_of(p, fitted, q=None):
    """A line of the table; `q` is what the binary predicts."""
    row = {key: "" for key in COLUMNS} | {"source": p.source, "id": p.id, "stack": p.stack, "group": p.group,
                                           "measured_s": p.measured_s, "skipped": p.skipped, "case": p.words or "",
                                           "fitted_on": p.id in fitted.get(p.stack, ()),
                                           "measured_memory_gib": p.memory_gib, "memory_kind": p.memory_kind}
    if q is None:
        return row
    if "error" in q:
        return row | {"skipped": "refused: " + q["error"], "case": q["case"]}
    planned = q["planned_bytes"]
    allocated = planned + q["stack_bytes"] + q["rounding_bytes"]
    beside = q["library_bytes"] + q["context_bytes"]
    counted = {"allocated": allocated, "reserved": q["reserved_bytes"]}
    expected = next((bytes for word, bytes in counted.items() if word in p.memory_kind), q["reserved_bytes"] + beside)
    total = allocated + q["fragmentation_bytes"] + beside
    return row | {"predicted_s": q["step_s"], "low_s": q["step_low_s"], "high_s": q["step_high_s"],
                  "error_pct": 100 * (q["step_s"] / p.measured_s - 1),
                  "inside_80pct": q["step_low_s"] <= p.measured_s <= q["step_high_s"],
                  "planned_memory_gib": planned / 2**30,
                  "expected_memory_gib": expected / 2**30, "total_memory_gib": total / 2**30, "fits": q["fits"], "case": q["case"]}


def _number(value):
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) and abs(value) < 1 else f"{value:.1f}"


def markdown(by_source, skipped, seconds, stacks, fitted):
    """The table as text, with the constants and where they are from."""
    head = ("source", "rows", "fitted on", "held out", "mean %", "median %", "largest %", "bias %", "rank corr.",
            "groups", "regret mean %", "regret p95 %", "in 80 % interval %")
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    for source, s in by_source.items():
        cells = [source, *(str(s[k]) for k in ("rows", "fitted_on", "held_out")),
                 *(_number(s[k]) for k in ("mean_pct", "median_pct", "largest_pct", "bias_pct")),
                 "" if s["spearman"] is None else f"{s['spearman']:.3f}", str(s["groups"]),
                 *(_number(s[k]) for k in ("regret_mean_pct", "regret_p95_pct", "coverage_pct"))]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", f"Errors, bias, rank correlation and coverage are of held-out rows; regret is over all. {seconds:.0f} s.", "",
              "| stack | compute share | memory share | comm share | host us | spread % | fitted on |", "| --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    for s in stacks:
        lines.append(f"| {s['name']} | {s['compute_share']:g} | {s['memory_share']:g} | {s['comm_share']:g} | {s['host_us']:g} | "
                     f"{100 * s['log_sigma']:.1f} | {', '.join(fitted.get(s['name'], [])) or 'nothing'} |")
    lines += ["", "Left out, and why:", ""]
    lines += [f"* {count} of {source}: {why}" for (source, why), count in sorted(skipped.items())]
    return "\n".join(lines) + "\n"


def draw(rows, path):
    """Predicted against measured, a panel for each source."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    sources = sorted({r["source"] for r in rows})
    across = 3
    down = math.ceil(len(sources) / across)
    figure, panels = plt.subplots(down, across, figsize=(4 * across, 3.8 * down), squeeze=False)
    for panel, source in zip(panels.flat, sources + [None] * (across * down - len(sources)), strict=True):
        if source is None:
            panel.axis("off")
            continue
        for fitted_on, colour, label in ((False, "#1f5fa8", "held out"), (True, "#d97706", "fitted on")):
            some = [r for r in rows if r["source"] == source and r["fitted_on"] == fitted_on]
            panel.errorbar([r["measured_s"] for r in some], [r["predicted_s"] for r in some],
                           yerr=[[r["predicted_s"] - r["low_s"] for r in some], [r["high_s"] - r["predicted_s"] for r in some]],
                           fmt="o", ms=3, lw=0.6, color=colour, alpha=0.7, label=label)
        ends = [f([r["measured_s"] for r in rows if r["source"] == source]) for f in (min, max)]
        panel.plot(ends, ends, color="black", lw=0.8)
        panel.set(xscale="log", yscale="log", title=source, xlabel="measured, s a step", ylabel="predicted, s a step")
        panel.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _parser():
    parser = argparse.ArgumentParser(
        prog="mb published", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Examples:\n  mb published --published ../shared/published -o results/published\n"
               "  mb published --published ../shared/published --fit megatron-2021=compute_share,comm_share\n\n"
               "Exit codes: 0 done; 2 wrong use; 4 no row, or one that cannot be read.")
    parser.add_argument("--published", required=True, metavar="DIR",
                        help="folder with measured_steps.csv, vtrain_single_node.csv, b200_steps.csv, or some of them")
    parser.add_argument("-o", "--out", metavar="DIR", help="write rows.csv, summary.json, summary.md and steps.png there")
    parser.add_argument("--fit", metavar="STACK=CONSTANT,...", help="fit these constants on a fifth of the stack's rows, print them and stop")
    return parser


def _fit(rows, text):
    stack, _, names = text.partition("=")
    names = names.split(",") if names else []
    unknown = [name for name in names if name not in fit.CONSTANTS]
    mine = [p for p in rows if p.stack == stack and p.words]
    if unknown or not names or len(names) > 3:
        print(f"mb published: --fit {text}: give one to three of {', '.join(fit.CONSTANTS)}")
        return ExitCode.USAGE
    if len(mine) < 5 * len(names):
        print(f"mb published: --fit {text}: {len(mine)} rows; a fifth of them is too few for {len(names)} constants")
        return ExitCode.USAGE
    chosen = fit.chosen_rows(mine)
    constants, error = fit.fit(chosen, stack, names)
    sigma = fit.spread(fit.log_errors(chosen, stack, constants), len(names))
    print(json.dumps({"stack": stack, **constants, "log_sigma": round(sigma, 3),
                      "mean_log_error": error, "rows": [p.id for p in chosen]}))
    return ExitCode.OK


def main(argv=None):
    args = _parser().parse_args(argv)
    rows = cases.load(args.published)
    if args.fit:
        return _fit(rows, args.fit)
    fitted = json.loads(fit.FITTED.read_text())
    todo = [p for p in rows if p.words]
    start = time.monotonic()
    predicted = fit.predict([f"{p.words} stack={p.stack}" for p in todo])
    seconds = time.monotonic() - start
    lines = [row_of(p, fitted, q) for p, q in zip(todo, predicted, strict=True)] + [row_of(p, fitted) for p in rows if not p.words]
    good = [r for r in lines if r["predicted_s"] != ""]
    skipped = defaultdict(int)
    for r in lines:
        if r["skipped"]:
            skipped[r["source"], r["skipped"]] += 1
    by_source = {source: summary([r for r in good if r["source"] == source]) for source in sorted({r["source"] for r in good})}
    text = markdown(by_source, skipped, seconds, fit.stacks(), fitted) + kernels.markdown(args.published) + kernels.memory_markdown(good)
    print(text, end="")
    if args.out:
        out = Path(args.out)
        out.mkdir(parents=True, exist_ok=True)
        with open(out / "rows.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(lines)
        (out / "summary.json").write_text(json.dumps(by_source, indent=2) + "\n")
        (out / "summary.md").write_text(text)
        draw(good, out / "steps.png")
        kernels.draw(args.published, out / "collectives.png")
    return ExitCode.OK
