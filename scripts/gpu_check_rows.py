"""What gpu_check.py takes from rows, traces and what gpu_bench writes."""

import math
import re


def value(row, name):
    return (row.get("metrics", {}).get(name) or {}).get("value")


def milliseconds(row):
    step_s = value(row, "step_s")
    return None if step_s is None else 1e3 * step_s


def rates_of(report):
    """Of each of gpu_bench's lines: its rates, why they are not told, or why it failed."""
    rates = {}
    for line in report["benchmarks"]:
        name = line["name"].split("/iterations")[0]
        if line.get("error_occurred"):
            rates[name] = {"failed": line.get("error_message")}
            continue
        rates[name] = {unit: line[unit] for unit in ("TFLOP_per_s", "GB_per_s", "busbw_GB_per_s", "of_datasheet", "label")
                       if unit in line}
    return rates


def time_by_operation(trace):
    """Seconds of compute spans of the last step by the operation's name, most first."""
    seconds = {}
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and event.get("cat") == "compute":
            name = event["args"].get("action", "?").split(" ")[0]
            seconds[name] = seconds.get(name, 0) + event["dur"] / 1e6
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def matmul_flops_per_s(trace):
    """Rate of the matmuls of the last step by themselves, 2 m n k each; None without any."""
    flops, seconds = 0, 0
    for event in trace["traceEvents"]:
        shape = re.match(r"matmul (\d+)x(\d+)x(\d+)", (event.get("args") or {}).get("action", ""))
        if event.get("ph") == "X" and event.get("cat") == "compute" and shape:
            flops += 2 * math.prod(map(int, shape.groups()))
            seconds += event["dur"] / 1e6
    return flops / seconds if seconds else None


def memory_of(row):
    memory = row.get("memory") or {}
    classes = [{key: entry.get(key) for key in ("class", "plan_bytes", "measured_bytes")}
               for entry in memory.get("classes", [])]
    return {"classes": classes, "total": memory.get("total"), "cuda": row.get("cuda")}
