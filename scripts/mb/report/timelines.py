"""Traces as small tables for the page: lanes of a rank's streams, spans as numbers, labels told once."""

from mb.figures import gantt

# Beyond these a page would grow past 5 MB.
MOST_TRACES, MOST_SPANS = 12, 40_000
KEPT = ("pass", "micro_batch", "chunk", "layer", "stage", "action", "bytes")


def lanes_of(traces):
    """({texts, traces: [{name, window_ns, labels, lanes}]}, lines on what was left out)."""
    notes = [f"The first {MOST_TRACES} of {len(traces)} traces."] if len(traces) > MOST_TRACES else []
    texts, found = {}, []
    most = MOST_SPANS // max(1, min(len(traces), MOST_TRACES))
    for trace, row in traces[:MOST_TRACES]:
        timeline, note = _timeline(gantt.title_of(trace, row), trace["traceEvents"], most, texts)
        found.append(timeline)
        notes += note
    return {"texts": list(texts), "traces": found}, notes


def _slices(events):
    return [event for event in events if event.get("ph") == "X"]


def _fewer(name, slices, most):
    """As many slices as a page holds: of one pipeline, then of what computes, then the first ones."""
    if len(slices) <= most:
        return slices, []
    lowest = {}
    for event in slices:
        if "args" in event:
            stage = event["args"]["stage"]
            lowest[stage] = min(event["pid"], lowest.get(stage, event["pid"]))
    for keep, told in ((lambda e: e["pid"] in lowest.values(), "the lowest rank of each stage"),
                       (lambda e: e["cat"] in ("compute", "bubble"), "what these compute")):
        slices = [event for event in slices if keep(event)]
        if len(slices) <= most:
            return slices, [f"{name}: {told} only."]
    slices = sorted(slices, key=lambda event: event["ts"])[:most]
    return slices, [f"{name}: the first {most} operations of the lowest rank of each stage only."]


def _timeline(name, events, most, texts):
    def told(value):  # texts stand once on the page, and are named by their place
        return texts.setdefault(value, len(texts)) if isinstance(value, str) else value

    slices, notes = _fewer(name, _slices(events), most)
    ranks = {e["pid"]: e["args"]["name"] for e in events if e.get("ph") == "M" and e["name"] == "process_name"}
    streams = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("ph") == "M" and e["name"] == "thread_name"}
    stage_of = {e["pid"]: e["args"]["stage"] for e in slices if "args" in e}
    labels, lanes = {}, {}
    for event in sorted(slices, key=lambda e: (e["ts"], e["dur"])):
        args = event.get("args", {})
        label = tuple(map(told, (event["name"], event["cat"], *(args.get(key) for key in KEPT))))
        start, length = gantt.to_ns(event["ts"]), gantt.to_ns(event["dur"])
        wait = gantt.to_ns(args["wait_us"]) if "wait_us" in args else -1
        lanes.setdefault((event["pid"], event["tid"]), []).append((start, length, labels.setdefault(label, len(labels)), wait))
    end = max((s + d for spans in lanes.values() for s, d, *_ in spans), default=0)
    order = sorted(lanes, key=lambda lane: (stage_of.get(lane[0], 0), lane))
    arrows = _arrows(events, {lane: number for number, lane in enumerate(order)},
                     max((s for spans in lanes.values() for s, *_ in spans), default=0) if notes else None)
    return {"name": name, "window_ns": end, "labels": [list(label) for label in labels], "arrows": arrows,
            "lanes": [{"rank": pid, "name": ranks.get(pid, f"rank {pid}"), "stream": streams.get((pid, tid), str(tid)),
                       "spans": _flat(lanes[pid, tid])} for pid, tid in order]}, notes


def _arrows(events, place, until_ns):
    """[lane and time of a send, lane and time of its receive, ...] of messages whose lanes are there until then."""
    ends = {"s": {}, "f": {}}
    for event in events:
        if event.get("ph") in ends:
            lane, at = (event["pid"], event["tid"]), gantt.to_ns(event["ts"])
            if lane in place and (until_ns is None or at <= until_ns):
                ends[event["ph"]][event["id"]] = (place[lane], at)
    return [number for message, sent in sorted(ends["s"].items()) if message in ends["f"]
            for number in (*sent, *ends["f"][message])]


def _flat(spans):
    """[start after the start before, length, label, wait or -1, ...]: half the digits of absolute times."""
    flat, before = [], 0
    for start, length, label, wait in spans:
        flat += [start - before, length, label, wait]
        before = start
    return flat
