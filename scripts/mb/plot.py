"""mb plot FIGURE INPUT...: one figure as PNG and SVG, from rows that meshbench wrote.

INPUT is what --out wrote, or a folder of it; where a figure takes something else, its line says so. Each model and what
ran it has a panel of its own; launches of one case by one build on one machine are drawn once, but by history and straggler.
"""

import argparse
import pathlib

from mb import rows as rows_of
from mb.errors import UserError
from mb.figures import (bubble, breakdown, collectives, exposure, forest, gantt, heat_maps, history, look, memory,
                        meshes, pareto, placement, predicted, roofline, scaling, straggler, waterfall)

FIGURES = {
    "bubble": (bubble.bubble, "bubble over micro-batches, next to its closed form"),
    "breakdown": (breakdown.breakdown, "where the step time goes, stacked"),
    "memory": (memory.memory, "peak memory by class: closed form, plan, measured"),
    "placement": (placement.placement, "orders of axes: bytes between nodes, step times (rows of meshbench place)"),
    "meshes": (meshes.meshes, "best MFU by TP x PP and DP x micro-batch; oom, invalid and not run as hatches"),
    "scaling": (scaling.scaling, "throughput and MFU over devices, strong and weak, with the ideal line"),
    "exposure": (exposure.exposure, "exposed and hidden communication over the bandwidth of a link"),
    "pareto": (pareto.pareto, "time against memory: what no other case beats in both"),
    "predicted": (predicted.predicted, "predicted against measured: steps, collectives, memory"),
    "waterfall": (waterfall.waterfall, "from one step to another, part by part (two rows)"),
    "straggler": (straggler.straggler, "times of ranks: least, median, most, and whose"),
    "history": (history.history, "times over campaigns, with change points"),
    "busbw": (collectives.busbw, "bus bandwidth of collectives over size, with ceilings (rows of meshbench coll)"),
    "latency": (collectives.latency, "time of collectives over size, both logarithmic, with latency and rate fitted"),
    "ceiling": (collectives.ceiling, "share of the ceiling that collectives reach, over size"),
    "completion": (collectives.completion, "distribution of completion, its tail to be seen (coll --raw)"),
    "skew": (heat_maps.skew, "by rank and size: who arrives last, who waits, who is slow (coll)"),
    "interference": (heat_maps.interference, "slow-down of an axis' collective beside another's (coll --matrix)"),
    "gantt": (gantt.gantt, "forwards and backwards of a pipeline over time (traces, or rows with one)"),
    "roofline": (roofline.roofline, "operations (ops_bench --benchmark_out) and steps (rows) beside their ceilings"),
    "forest": (forest.forest, "effects and verdicts of the gate (what mb gate --json prints)"),
}
# Figures of other inputs than rows -> what reads these.
LOADERS = {"gantt": gantt.load, "roofline": roofline.load, "forest": forest.load}


def _read(figure, inputs, conditions):
    if figure in LOADERS:
        return LOADERS[figure](inputs)
    return rows_of.select(rows_of.load(inputs), conditions)


def main(argv=None):
    figures = "\n".join(f"  {name:12} {help_text}" for name, (_, help_text) in FIGURES.items())
    parser = argparse.ArgumentParser(
        prog="mb plot", description=f"{__doc__}\nFigures:\n{figures}",
        epilog="Examples:\n"
               "  mb plot breakdown results/quickstart/rows\n"
               "  mb plot bubble results/quickstart/bubble --where mesh=pp4 --out plots\n"
               "  mb plot busbw rows.jsonl --where in_place=out\n"
               "  mb plot gantt results/quickstart/bubble/pp4-1f1b-m8.json --name pp4\n"
               "Exit codes: 0 done; 2 wrong use; 4 nothing to draw, or an input that cannot be read.",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=FIGURES, metavar="FIGURE", help=", ".join(FIGURES))
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="files or folders of rows")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("plots"), metavar="FOLDER",
                        help="where to write (default: plots)")
    parser.add_argument("--name", help="file name without suffix (default: FIGURE)")
    parser.add_argument("--where", action="append", default=[], metavar="KEY=VALUE",
                        help="only rows with this parameter; may be given several times")
    args = parser.parse_args(argv)
    if args.figure in LOADERS and args.where:
        parser.error(f"{args.figure} draws more than rows, which --where cannot choose; name the files")
    import matplotlib

    try:
        with matplotlib.rc_context(look.STYLE):
            figure = FIGURES[args.figure][0](_read(args.figure, args.inputs, args.where))
            paths = look.save(figure, args.out, args.name or args.figure)
    except OSError as error:
        raise UserError(f"cannot write to {args.out}: {error.strerror}; give a folder with --out") from None
    for path in paths:
        print(path)
    return 0
