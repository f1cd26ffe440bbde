"""Forwards and backwards of a pipeline over time, a lane for each rank of it; the bubble is shaded."""

import json
import pathlib
from collections import defaultdict
from decimal import Decimal

from mb import rows as rows_of
from mb.figures import look

PASSES = {"forward": (look.SKY, ""), "backward": (look.ORANGE, ""), "input_grad": (look.VERMILION, ""),
          "weight_grad": (look.YELLOW, "//"), "recompute": (look.PURPLE, "..")}
OPTIMIZER = (look.GREEN, "..")
DARKER = 0.6  # each further chunk of a rank
MOST_PANELS = 8


def load(paths):
    """(trace, row or None) of Chrome traces, and of rows that name one. Throws RowError."""
    found = []
    for path in (f for p in paths for f in rows_of.files_of(p)):
        if path.suffix == ".json" and (trace := trace_in(path)) is not None:
            found.append((trace, None))
            continue
        for row in rows_of.load([path]):
            if "trace" in row["artifacts"]:
                found.append((trace_of(row, path), row))
    return found


def trace_in(path):
    """The trace in a file, its times as exact decimals; None if the file holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except OSError as error:
        raise rows_of.RowError(f"{path}: {error.strerror}; make it with meshbench run --trace") from None
    except ValueError as error:
        raise rows_of.RowError(f"{path}: not a trace: {error}; write it again with --trace") from None
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        return None
    return {"name": path.stem, **content}


def trace_of(row, path):
    """The trace that a row names, from the folder that meshbench ran in or from the row's own."""
    name = pathlib.Path(row["artifacts"]["trace"])
    for file in (name, path.parent / name, path.parent / name.name):
        if file.is_file() and (trace := trace_in(file)) is not None:
            return trace
    raise rows_of.RowError(f"{path}: its trace {name} is not there; run in the folder that meshbench ran in")


def to_ns(microseconds):
    return int(Decimal(str(microseconds)) * 1000)


def compute_spans(trace):
    """(rank, stage, pass, micro_batch, start_ns, end_ns, chunk) of what the compute streams did."""
    for event in trace["traceEvents"]:
        if event.get("ph") != "X" or event.get("cat") != "compute":
            continue
        args, start = event["args"], to_ns(event["ts"])
        end = start + to_ns(event["dur"])
        yield event["pid"], args["stage"], args["pass"], args["micro_batch"], start, end, args.get("chunk", 0)


def union(spans):
    """Sorted spans without overlap that cover the same instants."""
    merged = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def one_pipeline(spans):
    """The spans of the lowest rank of each stage."""
    rank_of = {}
    for rank, stage, *_ in spans:
        rank_of[stage] = min(rank, rank_of.get(stage, rank))
    return [span for span in spans if rank_of[span[1]] == span[0]]


def blocks(spans):
    """{(stage, pass, micro_batch, chunk): (start_ns, end_ns)}: a slot of the schedule, first to last operation."""
    found = {}
    for _, stage, name, micro_batch, start, end, chunk in spans:
        if name in PASSES and name != "recompute":  # it lies between the operations of its backward
            slot = stage, name, micro_batch, chunk
            known = found.get(slot, (start, end))
            found[slot] = min(known[0], start), max(known[1], end)
    return found


def computed(spans):
    """{(stage, pass, chunk): spans without overlap in which it computed}, of all that is drawn."""
    found = defaultdict(list)
    for _, stage, name, _, start, end, chunk in spans:
        if name in PASSES or name == "optimizer":
            found[stage, name, chunk].append((start, end))
    return {key: union(parts) for key, parts in found.items()}


def gaps(spans):
    """The pipeline window, and by stage the spans within it in which nothing was computed."""
    of_pipeline = [span for span in spans if span[2] in PASSES]
    window = min(span[4] for span in of_pipeline), max(span[5] for span in of_pipeline)
    busy = defaultdict(list)
    for _, stage, _, _, start, end, _ in spans:
        if min(end, window[1]) > max(start, window[0]):
            busy[stage].append((max(start, window[0]), min(end, window[1])))
    empty = {}
    for stage in sorted({span[1] for span in spans}):
        edges = [window[0], *(t for span in union(busy[stage]) for t in span), window[1]]
        empty[stage] = [(a, b) for a, b in zip(edges[::2], edges[1::2]) if a < b]
    return window, empty


def gantt(traces):
    """A panel for each (trace, row or None), all over the same time."""
    if not traces:
        raise look.NoData("no trace to draw; make one with meshbench run ... --trace FILE")
    notes = [f"The first {MOST_PANELS} of {len(traces)} traces."] if len(traces) > MOST_PANELS else []
    panels = []
    for trace, row in traces[:MOST_PANELS]:
        spans = one_pipeline(list(compute_spans(trace)))
        if not any(span[2] in PASSES for span in spans):
            raise look.NoData(f"{trace['name']}: no forward or backward in it; write it with meshbench run --trace")
        panels.append((title_of(trace, row), spans))
    lanes = [len({span[1] for span in spans}) for _, spans in panels]
    figure = look.new_figure(13, 1.7 + sum(0.5 * n + 0.7 for n in lanes), "One pipeline over one training step")
    grid = figure.subplots(len(panels), 1, squeeze=False,
                           gridspec_kw={"height_ratios": [n + 0.5 for n in lanes]})[:, 0]
    handles = {}
    for ax, (title, spans) in zip(grid, panels):
        _panel(ax, title, spans, handles)
    handles = {name: handles[name] for name in sorted(handles, key=_legend_order)}
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False)
    look.annotate(figure, [
        "Boxes: one micro-batch through one chunk of a stage, its number inside; strong colour where it computes, pale where it is "
        "held up.",
        "Hatched, the bubble: the stage computes nothing. Where ranks share cores, waiting for one is bubble too.",
        "Window: first forward start to last backward end over all stages. n = 1: the last recorded step.",
        *notes],
        [row for _, row in traces[:MOST_PANELS] if row])
    return figure


def _panel(ax, title, spans, handles):
    from matplotlib.colors import to_rgb

    window, empty = gaps(spans)
    origin = min(span[4] for span in spans)
    length = max(span[5] for span in spans) - origin
    factor, unit = look.time_unit(length / 1e9)
    scale = factor / 1e9

    def bar(stage, start, end, **how):
        return ax.barh(stage, (end - start) * scale, 0.8, left=(start - origin) * scale, **how)

    for stage, spans_of in empty.items():
        whole = bar(stage, *window, color="white", hatch="////", edgecolor=look.GREY, linewidth=0)
        if spans_of:
            handles["bubble"] = whole
    def shade(name, chunk):
        return tuple(part * DARKER**chunk for part in to_rgb(PASSES.get(name, OPTIMIZER)[0]))

    for (stage, name, chunk), parts in computed(spans).items():
        for start, end in parts:
            handles[_legend(name, chunk)] = bar(stage, start, end, color=shade(name, chunk),
                                                hatch=PASSES.get(name, OPTIMIZER)[1], linewidth=0)
    for (stage, name, micro_batch, chunk), (start, end) in sorted(blocks(spans).items()):
        bar(stage, start, end, color=(*shade(name, chunk), 0.3), edgecolor="black", linewidth=0.6)
        if end - start > length / 110:
            ax.text(((start + end) / 2 - origin) * scale, stage, str(micro_batch), ha="center", va="center",
                    fontsize=8, color="white" if chunk else "black")
    idle = sum(end - start for spans_of in empty.values() for start, end in spans_of)
    share = idle / ((window[1] - window[0]) * len(empty))
    ax.set_title(f"{look.short(title, 80)}: bubble {100 * share:.1f} % of the pipeline window", loc="left")
    ax.set_yticks(list(empty), [f"stage {stage}" for stage in empty])
    ax.set_ylim(max(empty) + 0.6, min(empty) - 0.6)
    ax.set_xlim(0, length * scale)
    ax.set_xlabel(f"time since the step began ({unit})")


def _legend(name, chunk):
    return name.replace("_", " ") + (f", chunk {chunk}" if chunk else "")


def _legend_order(legend):
    """By pass as PASSES has them, then the optimizer and the bubble."""
    name, _, chunk = legend.partition(", ")
    order = [_legend(known, 0) for known in PASSES]
    return order.index(name) if name in order else len(order), chunk, name


def title_of(trace, row):
    if row is None:
        return trace["name"]
    cores = row["fingerprint"]["hard"].get("usable_cpus")
    shared = f" on {cores} cores" if cores and not row["virtual_time"] else ""
    words = [row["mesh"]["text"], look.short(row["params"].get("schedule", "")), f"m={rows_of.micro_batches(row)}"]
    return " ".join(words) + (", virtual time" if row["virtual_time"] else f", measured{shared}")
