#!/usr/bin/env python3
"""gpu_check.py [--no-build] [--bin DIR] [--out DIR] [--limit SECONDS]: what a GPU alone can tell; see gpu_check.sh.

Each part is a function that runs programs of this build and returns (a line for the table, details
for the JSON) or raises Failed. Rates and shares are those that the programs print.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPERATIONS = ("context_ops", "cpu_ops", "dropout", "expert_ops", "optimizer", "precision")
TARGETS = ["meshbench", "gpu_bench", "gpu_mesh_oracle_test", *(f"gpu_{name}_test" for name in OPERATIONS)]
ON_ONE_GPU = "mode=cuda+threads"
# Ranks that share the GPU, held to one rank in fp64 by the run itself.
MESHES = ["mesh=dp1", "mesh=dp2", "mesh=tp2", "mesh=pp2", "mesh=dp2 zero=1", "mesh=dp2 zero=2", "mesh=dp2 zero=3",
          "mesh=cp2", "mesh=dp2.tp2", "mesh=dp2.pp2", "model=moe-tiny mesh=ep2"]
DTYPES = ["fp64", "fp32", "bf16", "fp16"]
# One rank in bf16: layers as wide as those of published models, as many as are quick. The last is
# the one that graphs and tracing are tried on.
STEPS = ["model=gpt2 micro_batch=4 global_batch=8",
         "model=gpt3-1.3b model.layers=8 micro_batch=2 global_batch=4",
         "model=gpt3-6.7b model.layers=4 micro_batch=1 global_batch=2"]
# Long sequences, where attention by tiles and by cuDNN's kernels differ most.
ATTENTION = "model=gpt3-1.3b model.layers=8 model.sequence=4096 micro_batch=1 global_batch=2"
STEP_WORDS = "mesh=dp1 dtype=bf16 verify=off warm_up=3 steps=5"
GIB = 2**30


class Failed(Exception):
    """A part that could not be done or did not hold; `details` go to the JSON all the same."""

    def __init__(self, message, details=None):
        super().__init__(message)
        self.details = details


class Check:
    def __init__(self, binaries, out, limit_s):
        self.binaries, self.out = binaries, out
        self.deadline = time.monotonic() + limit_s
        self.peak_flops_per_s = None  # of products in bf16, once measured

    def run(self, command, limit_s):
        """Output of a command. It fails by its exit code, by its own limit, or at the end of all time."""
        left = min(limit_s, self.deadline - time.monotonic())
        if left <= 0:
            raise Failed("no time left")
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=left, cwd=ROOT)
        except FileNotFoundError:
            raise Failed(f"{command[0]} is not there; build it") from None
        except subprocess.TimeoutExpired:
            raise Failed(f"{Path(command[0]).name} was still running after {left:.0f} s") from None
        if done.returncode != 0:
            raise Failed(last_line(done.stderr or done.stdout) or f"exit code {done.returncode}", text_of(done))
        return done.stdout

    def meshbench(self, verb, words, limit_s=60, flags=()):
        text = self.run([str(self.binaries / "bench" / "meshbench"), verb, *words.split(), *flags, "--json"], limit_s)
        return parsed(text, f"meshbench {verb} {words}")


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def text_of(done):
    return {"exit_code": done.returncode, "stdout": done.stdout[-4000:], "stderr": done.stderr[-4000:]}


def parsed(text, what):
    try:
        return json.loads(text)
    except ValueError as error:
        raise Failed(f"{what} printed no JSON: {error}") from None


def value(row, name):
    return (row.get("metrics", {}).get(name) or {}).get("value")


def milliseconds(row):
    step_s = value(row, "step_s")
    return None if step_s is None else 1e3 * step_s


def each(cases, attempt):
    """attempt(case) for every case; one that fails leaves the others alone. Fails if any did."""
    results, failures = {}, []
    for case in cases:
        try:
            results[case] = attempt(case)
        except Failed as failed:
            results[case] = {"failed": str(failed), "details": failed.details}
            failures.append(f"{case}: {failed}")
    if failures:
        more = f"; and {len(failures) - 1} more" if len(failures) > 1 else ""
        raise Failed(f"{len(failures)} of {len(results)} failed: {failures[0]}{more}", results)
    return results


# --- parts ---


def architectures(check):
    """Those of the GPUs here, as CMake's option: a third of the time of all, and older toolkits lack the newest."""
    try:
        text = check.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], 20)
    except Failed:
        return []
    numbers = sorted({line.strip().replace(".", "") for line in text.splitlines()})
    return ["-DCMAKE_CUDA_ARCHITECTURES=" + ";".join(numbers)] if all(n.isdigit() for n in numbers) and numbers else []


def build(check):
    check.run(["cmake", "--preset", "cuda", "--log-level=WARNING", *architectures(check)], 60)
    check.run(["cmake", "--build", "--preset", "cuda", "-j", str(os.cpu_count()), "--target", *TARGETS], 400)
    return "cuda preset " + "".join(architectures(check)), None


def node(check):
    """What the doctor says; its exit code is that of the mode it is asked for."""
    program = str(check.binaries / "bench" / "meshbench")
    try:
        text = check.run([program, "doctor", ON_ONE_GPU, "--json"], 30)
    except Failed as failed:
        if not failed.details or failed.details["exit_code"] != 1:
            raise
        text = failed.details["stdout"]
    report = parsed(text, "meshbench doctor")
    gpus = [c["value"] for c in report["checks"] if c["check"].startswith("GPU ")]
    wrong = [f"{c['check']}: {c['value']}" for c in report["checks"] if c["verdict"] == "would fail"]
    if wrong:
        raise Failed("; ".join(wrong), report)
    notes = sum(c["verdict"] == "note" for c in report["checks"])
    return f"{'; '.join(gpus) or 'no GPU is told'}; {notes} notes", report


def gtest(check, name, arguments=(), limit_s=60):
    """A GoogleTest program: how many of its tests held."""
    path = check.out / f"{name}.json"
    path.unlink(missing_ok=True)
    message = None
    try:
        check.run([str(check.binaries / "tests" / name), f"--gtest_output=json:{path}", "--gtest_brief=1", *arguments],
                  limit_s)
    except Failed as failed:
        message = str(failed)
        if not path.is_file():
            raise
    report = parsed(path.read_text(encoding="utf-8"), name)
    bad = [f"{suite['name']}.{test['name']}" for suite in report["testsuites"] for test in suite["testsuite"]
           if test.get("failures")]
    counts = {"tests": report["tests"], "failures": report["failures"], "failed": bad}
    if bad or message or not report["tests"]:
        raise Failed(f"{report['failures']} of {report['tests']} tests failed"
                     + (f", first {bad[0]}" if bad else f": {message or 'there are none'}"), counts)
    return counts


def operations(check):
    """Every kernel in every dtype against PyTorch's values, closed forms and fp64."""
    results = each([f"gpu_{name}_test" for name in OPERATIONS], lambda name: gtest(check, name))
    return f"{sum(r['tests'] for r in results.values())} tests of kernels held", results


def verified(check, words):
    row = check.meshbench("run", f"{ON_ONE_GPU} {words} profile=off steps=2 warm_up=1")
    told = row.get("verified") or {}
    if not told.get("ok"):
        raise Failed("its numbers are not those of one rank in fp64", told)
    return {"error": told.get("error"), "by": told.get("by")}


def ranks(check):
    cases = [f"model=gpt-tiny mesh=dp1 dtype={dtype}" for dtype in DTYPES]
    cases += [words if "model=" in words else f"model=gpt-tiny {words}" for words in MESHES]
    results = each(cases, lambda words: verified(check, words))
    return f"{len(results)} cases of 1, 2 and 4 ranks equal one rank in fp64", results


def oracle(check):
    counts = gtest(check, "gpu_mesh_oracle_test", ["--gtest_filter=Cases/*"], 90)
    return f"{counts['tests']} meshes equal one rank in fp64", counts


def nccl(check):
    row = check.meshbench("run", "mode=nccl+threads model=gpt-tiny mesh=dp1 profile=off steps=2 warm_up=1")
    if not (row.get("verified") or {}).get("ok"):
        raise Failed("its numbers are not those of one rank in fp64", row.get("verified"))
    return "one rank equals one rank in fp64", {"nccl": row.get("nccl"), "verified": row["verified"]}


def peaks(check):
    path = check.out / "gpu_bench.json"
    path.unlink(missing_ok=True)
    try:
        check.run([str(check.binaries / "bench" / "gpu_bench"), f"--benchmark_out={path}",
                   "--benchmark_out_format=json"], 90)
    except Failed:
        if not path.is_file():  # else it holds which rates could not be measured
            raise
    report = parsed(path.read_text(encoding="utf-8"), "gpu_bench")
    rates = {}
    for line in report["benchmarks"]:
        name = line["name"].split("/iterations")[0]
        if line.get("error_occurred"):
            rates[name] = {"failed": line.get("error_message")}
            continue
        rates[name] = {unit: line[unit] for unit in ("TFLOP_per_s", "GB_per_s", "busbw_GB_per_s", "of_datasheet", "label")
                       if unit in line}
    bf16 = {name: rate["TFLOP_per_s"] for name, rate in rates.items()
            if name.startswith("gemm/bf16/") and "TFLOP_per_s" in rate}
    details = {"gpu": report.get("context", {}).get("meshbench_gpu"), "rates": rates}
    bad = [f"{name}: {rate['failed']}" for name, rate in rates.items() if "failed" in rate]
    if bf16:
        check.peak_flops_per_s = 1e12 * max(bf16.values())
    if bad or not bf16:
        raise Failed("; ".join(bad) or "no rate of a product in bf16", details)
    copy = rates.get("copy/within", {}).get("GB_per_s")
    return f"bf16 {max(bf16.values()):.0f} TFLOP/s, memory {copy or 0:.0f} GB/s", details


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


def step(check, words, extra=""):
    trace = check.out / "trace.json"
    trace.unlink(missing_ok=True)
    row = check.meshbench("run", f"{ON_ONE_GPU} {words} {STEP_WORDS} profile=off {extra}".strip(), 90,
                          ["--trace", str(trace)])
    spans = json.loads(trace.read_text()) if trace.is_file() else {"traceEvents": []}
    flops_per_s, of_matmuls = value(row, "model_flops_per_s"), matmul_flops_per_s(spans)
    peak = check.peak_flops_per_s
    return {
        "case": row.get("case"), "step_ms": milliseconds(row), "tokens_per_s": value(row, "tokens_per_s"),
        "attention": (row.get("cuda") or {}).get("attention"), "mfu": value(row, "mfu"),
        "compute_s": value(row, "compute_s"), "idle_s": value(row, "idle_s"), "model_flops_per_s": flops_per_s,
        "of_measured_gemm_peak": flops_per_s / peak if flops_per_s and peak else None,
        "matmul_flops_per_s": of_matmuls, "matmuls_of_measured_gemm_peak": of_matmuls / peak if of_matmuls and peak else None,
        "seconds_by_operation": time_by_operation(spans) or None,
        "memory": memory_of(row)}


def share_text(share):
    return "?" if share is None else f"{100 * share:.0f} %"


def steps(check):
    results = each(STEPS, lambda words: step(check, words))
    shown = [f"{words.split()[0].removeprefix('model=')} {result['step_ms'] or 0:.1f} ms, "
             f"{share_text(result['of_measured_gemm_peak'])} ({share_text(result['matmuls_of_measured_gemm_peak'])})"
             for words, result in results.items()]
    return f"step and share of the measured bf16 peak (its matmuls alone): {'; '.join(shown)}", results


def memory(check):
    result = step(check, STEPS[-1])["memory"]
    off = [c["class"] for c in result["classes"] if c["plan_bytes"] != c["measured_bytes"]]
    if off or not result["total"]:
        raise Failed(f"not as planned: {', '.join(off) or 'nothing is told'}", result)
    used = [device.get("used_bytes") for device in (result["cuda"] or {}).get("devices", [])]
    return (f"plan and count agree, {result['total']['measured_bytes'] / GIB:.1f} GiB; the driver says "
            + (f"{used[0] / GIB:.1f} GiB" if used and used[0] else "nothing")), result


def compared(check, off, on, what, case=STEPS[-1]):
    """A case with one key two ways, turn and turn about."""
    times, idle_s = {off: [], on: []}, {off: [], on: []}
    for words in (off, on, on, off):
        result = step(check, case, words)
        times[words].append(result["step_ms"])
        idle_s[words].append(result["idle_s"])
    if any(ms is None for taken in times.values() for ms in taken):
        raise Failed("no step time", times)
    ratio = sum(times[on]) / sum(times[off])
    return (f"{what}: the step takes {ratio:.3f} times as long with {on}",
            {"step_ms": times, "idle_s": idle_s, "ratio": ratio})


def graph(check):
    return compared(check, "graph=off", "graph=on", "CUDA graph, its capture apart")


def attention(check):
    """cuDNN's fused kernels beside tiles of products: the same numbers, and how long steps take."""
    words = "model=gpt-tiny model.hidden=64 model.heads=4 dtype=bf16 mesh=dp1"
    row = check.meshbench("run", f"{ON_ONE_GPU} {words} verify=on profile=off steps=2 warm_up=1")
    ran_on = (row.get("cuda") or {}).get("attention") or []
    told = {"attention": ran_on, "verified": row.get("verified")}
    if not (row.get("verified") or {}).get("ok"):
        raise Failed("its numbers are not those of one rank in fp64", told)
    if not any(line.startswith("cuDNN") for line in ran_on):
        raise Failed(f"cuDNN has not run it: {'; '.join(ran_on) or 'nothing is told'}", told)
    line, details = compared(check, "attention=tiled", "attention=auto", "attention by cuDNN", ATTENTION)
    return line, {**told, **details}


def tracing(check):
    """Steps that CUPTI traces beside those before them that it does not, and its times beside device events'."""
    row = check.meshbench("run", f"{ON_ONE_GPU} {STEPS[-1]} {STEP_WORDS} profile=cupti", 90)
    cupti = row["profile"]["cupti"]
    records = cupti["records"]
    lost = {name: n for name, n in records.items() if name in ("dropped", "without_time") and n}
    if lost or not records["placed"] or not cupti["end_difference"]:
        raise Failed(f"of its records {', '.join(f'{n} {name}' for name, n in lost.items()) or 'none has its instruction'}",
                     cupti)
    return (f"CUPTI adds {100 * cupti['overhead']:.1f} % to the step; ends of instructions are at most "
            f"{1e6 * cupti['end_difference']['s']:.0f} us from device events'"), cupti


# The longest of those that only tests say last: where time is short, it is the one to miss.
PARTS = [build, node, operations, ranks, nccl, peaks, steps, memory, attention, graph, tracing, oracle]


def do(part, check):
    start = time.monotonic()
    try:
        line, details = part(check)
        status = "ok"
    except Failed as failed:
        line, details, status = str(failed), failed.details, "failed"
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:  # a program's output that is not as it was
        line, details, status = f"cannot read what was printed: {error!r}", None, "failed"
    return {"part": part.__name__, "status": status, "seconds": round(time.monotonic() - start, 1), "result": line,
            "details": details}


def table(parts):
    lines = [("part", "status", "s", "result")]
    lines += [(p["part"], p["status"], f"{p['seconds']:.1f}", p["result"]) for p in parts]
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    return "".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d}\n" for a, b, c, d in lines)


def write(check, parts):
    report = {"schema": "meshbench-gpu-check/1", "time_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
              "ok": all(p["status"] == "ok" for p in parts), "parts": parts}
    (check.out / "gpu_check.json").write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    (check.out / "gpu_check.txt").write_text(table(parts), encoding="utf-8")


def main(argv=None):
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description="Proves the GPU backend on the GPU of this machine.",
                                     epilog="Parts: " + ", ".join(part.__name__ for part in PARTS))
    parser.add_argument("--no-build", action="store_true", help="take what is built already")
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "cuda", help="the build (build/cuda)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu_check", help="where results go")
    parser.add_argument("--limit", type=float, default=470, metavar="SECONDS", help="of all parts together (470)")
    flags = parser.parse_args(argv)
    flags.out.mkdir(parents=True, exist_ok=True)
    check = Check(flags.bin.resolve(), flags.out.resolve(), flags.limit)
    parts = []
    for part in PARTS:
        if part is build and flags.no_build:
            continue
        print(f"{part.__name__} ...", file=sys.stderr, flush=True)
        parts.append(do(part, check))
        write(check, parts)
    print(table(parts), end="")
    print(f"written to {check.out}/gpu_check.json and gpu_check.txt", file=sys.stderr)
    return 0 if all(p["status"] == "ok" for p in parts) else 1


if __name__ == "__main__":
    sys.exit(main())
