#!/usr/bin/env python3
"""gpu_check.py [--no-build] [--bin DIR] [--out DIR] [--limit SECONDS] [--tiny]: what a GPU alone can tell; see gpu_check.sh.

Each part is a function that runs programs of this build and returns (a line for the table, details
for the JSON) or raises Failed. Rates and shares are those that the programs print.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from gpu_check_report import report_of, table, write
from gpu_check_rows import matmul_flops_per_s, memory_of, milliseconds, rates_of, time_by_operation, value

ROOT = Path(__file__).resolve().parents[1]
OPERATIONS = ("context_ops", "cpu_ops", "dropout", "expert_ops", "optimizer", "precision")
TARGETS = ["meshbench", "gpu_bench", "gpu_mesh_oracle_test", *(f"gpu_{name}_test" for name in OPERATIONS)]
ON_ONE_GPU = "mode=cuda+threads"
# Ranks that share the GPU, held to one rank in fp64 by the run itself.
MESHES = ["mesh=dp1", "mesh=dp2", "mesh=tp2", "mesh=pp2", "mesh=dp2 zero=1", "mesh=dp2 zero=2", "mesh=dp2 zero=3",
          "mesh=cp2", "mesh=dp2.tp2", "mesh=dp2.pp2", "model=moe-tiny mesh=ep2"]
DTYPES = ["fp64", "fp32", "bf16", "fp16"]
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Cases:
    """What steps are taken: the same script goes through small ones where time or a GPU is short."""
    judged: str  # its speed is held to the goals; graphs and tracing are tried on it
    steps: tuple  # beside it
    attention: str  # a long sequence, where attention by tiles and by cuDNN's kernels differ most
    step_words: str
    oracle_parts: int  # of the meshes, each a process
    tiny: bool = False


# One rank in bf16: layers as wide as those of published models, as many as are quick.
FULL = Cases(judged="model=gpt3-6.7b model.layers=4 micro_batch=2 global_batch=8",  # hidden 4096, sequence 2048
             steps=("model=gpt2 micro_batch=8 global_batch=16",
                    "model=gpt3-1.3b model.layers=8 micro_batch=2 global_batch=4"),
             attention="model=gpt3-1.3b model.layers=8 model.sequence=4096 micro_batch=1 global_batch=2",
             step_words="mesh=dp1 dtype=bf16 verify=off warm_up=3 steps=5", oracle_parts=8)
TINY = Cases(judged="model=gpt-tiny model.hidden=64 model.heads=4 micro_batch=1 global_batch=2",
             steps=("model=gpt-tiny micro_batch=1 global_batch=2",),
             attention="model=gpt-tiny model.hidden=64 model.heads=4 model.sequence=64 micro_batch=1 global_batch=2",
             step_words="mesh=dp1 dtype=bf16 verify=off warm_up=1 steps=2", oracle_parts=64, tiny=True)


class Failed(Exception):
    """A part that could not be done or did not hold; `details` go to the JSON all the same."""

    def __init__(self, message, details=None):
        super().__init__(message)
        self.details = details


class NoTime(Failed):
    """What did not fit into the time of all."""


class Check:
    def __init__(self, binaries, out, limit_s, cases=FULL):
        self.binaries, self.out, self.cases = binaries, out, cases
        self.deadline = time.monotonic() + limit_s
        self.peak_flops_per_s = None  # of products in bf16, once measured
        self.no_speed = None  # why the programs tell no speed, as of a test double
        self.seen = {}  # details of the parts that goals are about
        self.cut = set()  # parts for which there was not time enough

    def left_s(self):
        return self.deadline - time.monotonic()

    def run(self, command, limit_s, environment=None):
        """Output of a command. It fails by its exit code, by its own limit, or at the end of all time."""
        left = min(limit_s, self.left_s())
        if left <= 0:
            raise NoTime("no time was left")
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=left, cwd=ROOT,
                                  env={**os.environ, **(environment or {})})
        except FileNotFoundError:
            raise Failed(f"{command[0]} is not there; build it") from None
        except subprocess.TimeoutExpired:
            kind = Failed if left == limit_s else NoTime
            raise kind(f"{Path(command[0]).name} was still running after {left:.0f} s") from None
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


def each(cases, attempt):
    """attempt(case) for every case; one that fails leaves the others alone. Fails if any did."""
    results, failures, cut = {}, [], []
    for case in cases:
        try:
            results[case] = attempt(case)
        except NoTime as late:
            results[case] = {"cut": str(late)}
            cut.append(case)
        except Failed as failed:
            results[case] = {"failed": str(failed), "details": failed.details}
            failures.append(f"{case}: {failed}")
    not_done = f"; for {len(cut)} no time was left" if cut else ""
    if failures:
        more = f"; and {len(failures) - 1} more" if len(failures) > 1 else ""
        raise Failed(f"{len(failures)} of {len(results)} failed: {failures[0]}{more}{not_done}", results)
    if cut:
        raise NoTime(f"{len(results) - len(cut)} of {len(results)} held{not_done}", results)
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


def gtest(check, name, arguments=(), limit_s=60, environment=None):
    """A GoogleTest program: how many of its tests held. NoTime where it did not come to its end."""
    path = check.out / f"{name}.json"
    path.unlink(missing_ok=True)
    message = None
    try:
        check.run([str(check.binaries / "tests" / name), f"--gtest_output=json:{path}", "--gtest_brief=1", *arguments],
                  limit_s, environment)
    except NoTime:
        raise
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
    """Every mesh that has a name in the tests, part by part as long as there is time."""
    parts, tests = check.cases.oracle_parts, 0
    for part in range(1 if check.cases.tiny else parts):
        try:
            tests += gtest(check, "gpu_mesh_oracle_test", ["--gtest_filter=Cases/*"], 90,
                           {"GTEST_TOTAL_SHARDS": str(parts), "GTEST_SHARD_INDEX": str(part)})["tests"]
        except NoTime as late:
            if part == 0:
                raise
            raise NoTime(f"{tests} meshes equal one rank in fp64; the others were cut: {late}") from None
    return f"{tests} meshes equal one rank in fp64", {"tests": tests}


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
        if not path.is_file() or not path.read_text(encoding="utf-8").strip():  # else it holds what could not be measured
            raise
    report = parsed(path.read_text(encoding="utf-8"), "gpu_bench")
    rates = rates_of(report)
    products = {name: rate for name, rate in rates.items() if name.startswith("gemm/bf16/")}
    bf16 = [rate["TFLOP_per_s"] for rate in products.values() if "TFLOP_per_s" in rate]
    details = {"gpu": report.get("context", {}).get("meshbench_gpu"), "rates": rates}
    bad = [f"{name}: {rate['failed']}" for name, rate in rates.items() if "failed" in rate]
    if bf16:
        check.peak_flops_per_s = 1e12 * max(bf16)
    not_told = [rate["label"] for rate in products.values() if "label" in rate]
    if not bad and not bf16 and not_told:
        return f"{len(rates)} ran; {not_told[0]}", details
    if bad or not bf16:
        raise Failed("; ".join(bad) or "no rate of a product in bf16", details)
    copy = rates.get("copy/within", {}).get("GB_per_s")
    return f"bf16 {max(bf16):.0f} TFLOP/s, memory {copy or 0:.0f} GB/s", details


def step(check, words, extra=""):
    trace = check.out / "trace.json"
    trace.unlink(missing_ok=True)
    row = check.meshbench("run", f"{ON_ONE_GPU} {words} {check.cases.step_words} profile=off {extra}".strip(), 90,
                          ["--trace", str(trace)])
    spans = json.loads(trace.read_text()) if trace.is_file() else {"traceEvents": []}
    flops_per_s, of_matmuls = value(row, "model_flops_per_s"), matmul_flops_per_s(spans)
    peak, seconds = check.peak_flops_per_s, time_by_operation(spans)
    if value(row, "step_s") is None:  # then the spans mean nothing either
        check.no_speed = row["metrics"]["step_s"].get("reason")
        flops_per_s = of_matmuls = seconds = None
    return {
        "case": row.get("case"), "step_ms": milliseconds(row), "not_told": check.no_speed,
        "tokens_per_s": value(row, "tokens_per_s"),
        "attention": (row.get("cuda") or {}).get("attention"), "mfu": value(row, "mfu"),
        "compute_s": value(row, "compute_s"), "idle_s": value(row, "idle_s"), "model_flops_per_s": flops_per_s,
        "of_measured_gemm_peak": flops_per_s / peak if flops_per_s and peak else None,
        "matmul_flops_per_s": of_matmuls, "matmuls_of_measured_gemm_peak": of_matmuls / peak if of_matmuls and peak else None,
        "seconds_by_operation": seconds or None,
        "memory": memory_of(row)}


def name_of(words):
    return words.split()[0].removeprefix("model=")


def size_text(count):
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"


def share_text(share):
    return "not known" if share is None else f"{100 * share:.0f} %"


def steps(check):
    def one(words):
        result = step(check, words)
        if words == check.cases.judged:
            check.seen["steps"] = result
        return result

    results = each([check.cases.judged, *check.cases.steps], one)
    if check.no_speed:
        return f"{len(results)} models ran; no speed is told: {check.no_speed}", results
    shown = [f"{name_of(words)} {result['step_ms']:.1f} ms, {share_text(result['of_measured_gemm_peak'])} of the peak, "
             f"its products by themselves {share_text(result['matmuls_of_measured_gemm_peak'])}"
             for words, result in results.items()]
    return "; ".join(shown), results


def memory(check):
    """Of the step that `steps` took, what was planned and what was counted."""
    if "steps" not in check.seen:
        raise (NoTime if steps in check.cut else Failed)(f"the step of {name_of(check.cases.judged)} has not run")
    result = check.seen["steps"]["memory"]
    off = [c["class"] for c in result["classes"] if c["plan_bytes"] != c["measured_bytes"]]
    if off or not result["total"]:
        raise Failed(f"not as planned: {', '.join(off) or 'nothing is told'}", result)
    used = [device.get("used_bytes") for device in (result["cuda"] or {}).get("devices", [])]
    return (f"plan and count agree, {size_text(result['total']['measured_bytes'])}; the driver says "
            + (size_text(used[0]) if used and used[0] else "nothing")), result


def compared(check, off, on, what, case):
    """A case with one key two ways, turn and turn about."""
    times, idle_s = {off: [], on: []}, {off: [], on: []}
    for words in (off, on, on, off):
        result = step(check, case, words)
        times[words].append(result["step_ms"])
        idle_s[words].append(result["idle_s"])
    if check.no_speed:
        return f"steps with {off} and {on} ran; no speed is told: {check.no_speed}", {"not_told": check.no_speed}
    if any(ms is None for taken in times.values() for ms in taken):
        raise Failed("no step time", times)
    ratio = sum(times[on]) / sum(times[off])
    return (f"{what}: the step of {name_of(case)} takes {ratio:.3f} times as long with {on}",
            {"step_ms": times, "idle_s": idle_s, "ratio": ratio})


def graph(check):
    line, details = compared(check, "graph=off", "graph=on", "CUDA graph, its capture apart", check.cases.judged)
    check.seen["graph"] = details
    return line, details


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
    line, details = compared(check, "attention=tiled", "attention=auto", "attention by cuDNN", check.cases.attention)
    return line, {**told, **details}


def tracing(check):
    """Steps that CUPTI traces beside those before them that it does not, and its times beside device events'."""
    row = check.meshbench("run", f"{ON_ONE_GPU} {check.cases.judged} {check.cases.step_words} profile=cupti", 90)
    cupti = row["profile"]["cupti"]
    records = cupti["records"]
    lost = {name: n for name, n in records.items() if name in ("dropped", "without_time") and n}
    if lost or not records["placed"]:
        raise Failed(f"of its records {', '.join(f'{n} {name}' for name, n in lost.items()) or 'none has its instruction'}",
                     cupti)
    check.seen["tracing"] = cupti
    if cupti["overhead"] is None:
        check.no_speed = row["metrics"]["step_s"].get("reason")
        return f"{records['placed']} records have their instruction; no speed is told: {check.no_speed}", cupti
    if not cupti["end_difference"]:
        raise Failed("no instruction has both an end by CUPTI and one by device events", cupti)
    return (f"CUPTI adds {100 * cupti['overhead']:.1f} % to the step; ends of instructions are at most "
            f"{1e6 * cupti['end_difference']['s']:.0f} us from device events'"), cupti


# --- the whole ---

# In this order, which is that of their worth: with each the seconds without which it is not begun.
PARTS = {build: 60, node: 5, operations: 20, peaks: 30, steps: 30, graph: 40, tracing: 15, memory: 0, nccl: 10, ranks: 15,
         attention: 45, oracle: 15}


def do(part, check):
    start, least_s = time.monotonic(), 0 if check.cases.tiny else PARTS[part]
    try:
        if check.left_s() < least_s:
            raise NoTime(f"not begun: it wants {least_s} s, and {max(0, check.left_s()):.0f} s were left")
        if check.left_s() <= 0:
            raise NoTime("not begun: no time was left")
        line, details = part(check)
        status = "ok"
    except NoTime as late:
        line, details, status = str(late), late.details, "cut"
        check.cut.add(part)
    except Failed as failed:
        line, details, status = str(failed), failed.details, "FAILED"
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:  # a program's output that is not as it was
        line, details, status = f"cannot read what was printed: {error!r}", None, "FAILED"
    return {"part": part.__name__, "status": status, "seconds": round(time.monotonic() - start, 1), "result": line,
            "details": details}


def main(argv=None):
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description="Proves the GPU backend on the GPU of this machine.",
                                     epilog="Parts: " + ", ".join(part.__name__ for part in PARTS))
    parser.add_argument("--no-build", action="store_true", help="take what is built already")
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "cuda", help="the build (build/cuda)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu_check", help="where results go")
    parser.add_argument("--limit", type=float, default=470, metavar="SECONDS",
                        help="of all parts together (470); what does not fit is cut, the last parts first")
    parser.add_argument("--tiny", action="store_true",
                        help="small models in place of those that are judged: checks this script, and no GPU's speed")
    flags = parser.parse_args(argv)
    flags.out.mkdir(parents=True, exist_ok=True)
    check = Check(flags.bin.resolve(), flags.out.resolve(), flags.limit, TINY if flags.tiny else FULL)
    parts = []
    for part in PARTS:
        if part is build and flags.no_build:
            continue
        print(f"{part.__name__} ...", file=sys.stderr, flush=True)
        parts.append(do(part, check))
        report = report_of(check, f"{ON_ONE_GPU} {check.cases.judged} {check.cases.step_words}", parts)
        write(check.out, report)
    print(table(report), end="")
    print(f"written to {check.out}/gpu_check.json and gpu_check.txt", file=sys.stderr)
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
