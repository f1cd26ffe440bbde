"""gpu_check.sh on stand-ins for its programs: parts fail alone, and what is written can be read. And whole, on the test
double of GPUs, in small cases."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpu_check
from conftest import ROOT

# All programs in one: it goes by the name that it is called by. `broken` is read from a file beside
# the programs: "NAME what" lines, where what is fail, hang, garbage or missing.
STAND_IN = '''#!{python} -SE
import json, pathlib, sys, time
name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
folder = pathlib.Path(__file__).resolve().parents[1]
for line in (folder / "broken").read_text().splitlines():
    match, what = line.rsplit(" ", 1)
    if match in " ".join([name, *words]):
        if what == "hang":
            time.sleep(60)
        if what == "garbage":
            print("no JSON")
            sys.exit(0)
        print("first line\\n" + match + " broke", file=sys.stderr)
        sys.exit(3)

def metric(value):
    return {{"value": value}}

if name == "gpu_bench":
    lines = [{{"name": "gemm/bf16/8192x8192x8192/iterations:1", "TFLOP_per_s": 700.0, "of_datasheet": 0.71}},
             {{"name": "gemm/fp64/4096x4096x4096/iterations:1", "TFLOP_per_s": 60.0}},
             {{"name": "copy/within/iterations:1", "GB_per_s": 3000.0}}]
    bad = (folder / "bad_rate").exists()
    if bad:
        lines[1] = {{"name": "gemm/fp64/4096x4096x4096", "error_occurred": True, "error_message": "out of memory"}}
    out = next(w for w in words if w.startswith("--benchmark_out=")).split("=", 1)[1]
    pathlib.Path(out).write_text(json.dumps({{"context": {{"meshbench_gpu": "Fake"}}, "benchmarks": lines}}))
    sys.exit(3 if bad else 0)
elif name.startswith("gpu_"):
    out = next(w for w in words if w.startswith("--gtest_output=json:")).split(":", 1)[1]
    tests = [{{"name": "Holds"}}, {{"name": "Also"}}]
    bad = (folder / "bad_test").exists() and name == "gpu_precision_test"
    if bad:
        tests[1]["failures"] = [{{"failure": "1 is not 2"}}]
    pathlib.Path(out).write_text(json.dumps({{"tests": 2, "failures": int(bad),
                                             "testsuites": [{{"name": "Suite", "testsuite": tests}}]}}))
    sys.exit(1 if bad else 0)
elif words[0] == "doctor":
    print(json.dumps({{"checks": [{{"check": "GPU 0", "value": "Fake, 80 GiB", "verdict": "ok"}},
                                  {{"check": "CUPTI", "value": "x", "verdict": "note"}}]}}))
else:
    if "--trace" in words:
        span = {{"ph": "X", "cat": "compute", "dur": 2000, "args": {{"action": "matmul 1x2x3 nt"}}}}
        other = {{"ph": "X", "cat": "compute", "dur": 500, "args": {{"action": "norm layer 1x2"}}}}
        pathlib.Path(words[words.index("--trace") + 1]).write_text(json.dumps({{"traceEvents": [other, span, span]}}))
    slow = 1.1 if "graph=off" in words else 1.0
    row = {{"case": " ".join(words[1:]), "verified": {{"ok": True, "error": 1e-7, "by": "fp64"}},
           "metrics": {{"step_s": metric(0.01 * slow), "model_flops_per_s": metric(350e12), "mfu": metric(None),
                        "tokens_per_s": metric(1e5), "idle_s": metric(0.0001)}},
           "memory": {{"classes": [{{"class": "parameter", "plan_bytes": 8, "measured_bytes": 8}}],
                      "total": {{"plan_bytes": 8, "measured_bytes": 2**30}}}},
           "cuda": {{"devices": [{{"used_bytes": 2 * 2**30}}], "attention": ["cuDNN 9.19.0"]}}}}
    if (folder / "no_cudnn").exists():
        row["cuda"]["attention"] = ["tiles of products: cuDNN is not there"]
    if "profile=cupti" in words:
        lost = 3 if (folder / "lost_records").exists() else 0
        row["profile"] = {{"cupti": {{"overhead": 0.02, "steps": 5, "classes": [{{"busy_s": 0.04}}, {{"busy_s": 0.0095}}],
                                     "end_difference": {{"s": 5e-6}}, "records": {{
            "placed": 10, "dropped": lost, "without_time": 0, "out_of_window": 0, "uncorrelated": 1}}}}}}
    print(json.dumps(row))
'''


@pytest.fixture
def build(tmp_path):
    """A folder like build/cuda; `broken` lines say what does not work in it."""
    for name in ["bench/meshbench", "bench/gpu_bench", "tests/gpu_mesh_oracle_test",
                 *(f"tests/gpu_{name}_test" for name in gpu_check.OPERATIONS)]:
        path = tmp_path / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STAND_IN.format(python=sys.executable))
        path.chmod(0o755)
    (tmp_path / "bin" / "broken").write_text("")
    return tmp_path


def run(build, *flags, broken=""):
    (build / "bin" / "broken").write_text(broken)
    done = subprocess.run([ROOT / "scripts" / "gpu_check.sh", "--no-build", "--bin", build / "bin", "--out", build / "out",
                           *flags], capture_output=True, text=True, timeout=100)
    report = json.loads((build / "out" / "gpu_check.json").read_text())
    assert (build / "out" / "gpu_check.txt").read_text() == done.stdout
    return done, {part["part"]: part for part in report["parts"]}


def test_all_parts_pass_and_say_what_they_saw(build):
    done, parts = run(build)
    assert done.returncode == 1  # of the goals, products and the step are slow
    assert list(parts) == [part.__name__ for part in gpu_check.PARTS if part is not gpu_check.build]
    assert {part["status"] for part in parts.values()} == {"ok"}
    assert parts["node"]["result"] == "Fake, 80 GiB; 1 notes"
    assert parts["operations"]["result"] == "12 tests of kernels held"
    assert parts["peaks"]["result"] == "bf16 700 TFLOP/s, memory 3000 GB/s"
    first = next(iter(parts["steps"]["details"].values()))
    assert "gpt3-6.7b 10.0 ms, 50 % of the peak, its products by themselves 0 %; " in parts["steps"]["result"]
    assert first["of_measured_gemm_peak"] == 0.5
    assert first["matmul_flops_per_s"] == pytest.approx(2 * 1 * 2 * 3 / 0.002)
    assert first["matmuls_of_measured_gemm_peak"] == pytest.approx(6000 / 700e12)
    assert first["seconds_by_operation"] == {"matmul": 0.004, "norm": 0.0005}
    assert parts["memory"]["result"] == "plan and count agree, 1.0 GiB; the driver says 2.0 GiB"
    assert parts["graph"]["details"]["ratio"] == pytest.approx(1 / 1.1)
    assert parts["tracing"]["result"] == ("CUPTI adds 2.0 % to the step; ends of instructions are at most 5 us from "
                                          "device events'")


def test_goals_are_met_or_missed_and_told_below_the_parts(build):
    done, _ = run(build)
    goals = json.loads((build / "out" / "gpu_check.json").read_text())["goals"]
    assert [goal["status"] for goal in goals] == ["MISSED", "MISSED", "met", "met"]
    assert [goal["measured"] for goal in goals] == pytest.approx([6000 / 700e12, 0.5, 1 - 0.0495 / 5 / 0.01, 0.02])
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Meshbench on Fake, 20")
    at = lines.index("what                                               wanted         measured  status")
    assert lines[at - 1].startswith("Goals, of mode=cuda+threads model=gpt3-6.7b model.layers=4 ")
    assert lines[at + 2].split() == "the whole step (MFU), of the measured bf16 peak at least 60 % 50.0 % MISSED".split()
    assert lines[at + 4].split() == "CUPTI's tracing, added to the step under 3 % 2.0 % met".split()


def test_gaps_are_those_of_device_events_where_cupti_does_not_trace(build):
    run(build, broken="profile=cupti fail\n")
    goals = json.loads((build / "out" / "gpu_check.json").read_text())["goals"]
    assert goals[2]["measured"] == pytest.approx(0.0001 / 0.01)
    assert goals[3]["status"] == "not measured: a part that it is from has no result"


def test_what_does_not_fit_into_the_time_is_cut_and_said(build):
    done, parts = run(build, "--limit", "25")
    assert done.returncode == 1
    cut = [name for name, part in parts.items() if part["status"] == "cut"]
    assert cut == ["peaks", "steps", "graph", "memory", "attention"]
    assert parts["peaks"]["result"].startswith("not begun: it wants 30 s, and 2")
    assert parts["memory"]["result"] == "the step of gpt3-6.7b has not run"
    assert parts["oracle"]["status"] == "ok"


def test_cases_that_time_ends_are_cut_and_not_failed(build):
    check = gpu_check.Check(build / "bin", build, 60)

    def attempt(case):
        if case == "late":
            raise gpu_check.NoTime("no time was left")
        return case

    with pytest.raises(gpu_check.NoTime, match="^2 of 3 held; for 1 no time was left$") as late:
        gpu_check.each(["a", "b", "late"], attempt)
    assert late.value.details == {"a": "a", "b": "b", "late": {"cut": "no time was left"}}
    check.deadline = 0
    with pytest.raises(gpu_check.NoTime):
        gpu_check.oracle(check)


def test_attention_has_to_be_cudnns(build):
    (build / "bin" / "no_cudnn").write_text("")
    done, parts = run(build)
    assert done.returncode == 1
    assert [name for name, part in parts.items() if part["status"] == "FAILED"] == ["attention"]
    assert parts["attention"]["result"] == "cuDNN has not run it: tiles of products: cuDNN is not there"


def test_lost_records_fail_the_tracing_part(build):
    (build / "bin" / "lost_records").write_text("")
    done, parts = run(build)
    assert done.returncode == 1
    assert [name for name, part in parts.items() if part["status"] == "FAILED"] == ["tracing"]
    assert parts["tracing"]["result"] == "of its records 3 dropped"


def test_a_part_that_fails_says_why_and_leaves_the_others_alone(build):
    (build / "bin" / "bad_test").write_text("")
    (build / "bin" / "tests" / "gpu_mesh_oracle_test").unlink()
    done, parts = run(build, broken="gpu_bench fail\nzero=2 fail\ngraph=on garbage\ndoctor garbage\n")
    assert done.returncode == 1
    assert {name for name, part in parts.items() if part["status"] == "ok"} == {"nccl", "steps", "memory", "attention",
                                                                                  "tracing"}
    assert parts["peaks"]["result"] == "gpu_bench broke"
    assert parts["ranks"]["result"] == "1 of 15 failed: model=gpt-tiny mesh=dp2 zero=2: zero=2 broke"
    assert parts["operations"]["result"] == "1 of 6 failed: gpu_precision_test: 1 of 2 tests failed, first Suite.Also"
    assert parts["oracle"]["result"].endswith("gpu_mesh_oracle_test is not there; build it")
    assert "printed no JSON" in parts["graph"]["result"]
    assert "printed no JSON" in parts["node"]["result"]
    # Without a measured peak there is no share of it.
    assert next(iter(parts["steps"]["details"].values()))["of_measured_gemm_peak"] is None


def test_a_rate_that_cannot_be_measured_leaves_the_others(build):
    check = gpu_check.Check(build / "bin", build, 60)
    (build / "bin" / "bad_rate").write_text("")
    with pytest.raises(gpu_check.Failed, match="^gemm/fp64/4096x4096x4096: out of memory$") as failed:
        gpu_check.peaks(check)
    assert failed.value.details["rates"]["copy/within"] == {"GB_per_s": 3000.0}
    assert check.peak_flops_per_s == 700e12


def test_time_that_is_up_ends_what_runs_and_what_would(build):
    done, parts = run(build, "--limit", "6", broken="doctor hang\n")
    assert done.returncode == 1
    assert parts["node"]["status"] == "cut" and parts["node"]["result"] == "meshbench was still running after 6 s"
    assert parts["oracle"]["result"] == "not begun: it wants 15 s, and 0 s were left"


def test_a_node_that_is_not_fit_is_told_by_its_checks():
    class Unfit:
        binaries = ROOT

        def run(self, command, limit_s):
            report = {"checks": [{"check": "driver", "value": "none", "verdict": "would fail"}]}
            raise gpu_check.Failed("would fail", {"exit_code": 1, "stdout": json.dumps(report)})

    with pytest.raises(gpu_check.Failed, match="^driver: none$"):
        gpu_check.node(Unfit())


def test_the_whole_script_runs_on_the_test_double_and_tells_no_speed_of_it(tmp_path):
    tests = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench")).parent / "tests"
    programs = {"bench/meshbench": "meshbench_emulated", "bench/gpu_bench": "gpu_bench_emulated",
                **{f"tests/gpu_{name}_test": f"cuda_{name}_test" for name in (*gpu_check.OPERATIONS, "mesh_oracle")}}
    for name, emulated in programs.items():
        if not (tests / emulated).exists():
            pytest.skip(f"{emulated} is not built")
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(tests / emulated)
    done = subprocess.run([ROOT / "scripts" / "gpu_check.sh", "--no-build", "--tiny", "--bin", tmp_path, "--out",
                           tmp_path / "out"], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "EMULATED_DEVICES": "1"})
    if "this build has no" in done.stdout:
        pytest.skip("a library's header is not here")
    report = json.loads((tmp_path / "out" / "gpu_check.json").read_text())
    parts = {part["part"]: part for part in report["parts"]}
    assert done.returncode == 1, done.stderr
    # There is no driver, whatever the programs take for GPUs.
    assert [name for name, part in parts.items() if part["status"] != "ok"] == ["node"], done.stdout
    assert parts["node"]["result"] == "build: without CUDA; GPUs: none"
    assert report["no_speed"] == "a test double of GPUs, whose times mean nothing"
    assert done.stdout.splitlines()[1] == (f"No speed is told, and none of this says anything of a GPU: {report['no_speed']}.")
    assert {goal["measured"] for goal in report["goals"]} == {None}
    assert not speeds_in(report)


def speeds_in(json_value, key=""):
    """What is told of times and rates, but how long parts took and how far clocks are apart."""
    if isinstance(json_value, dict):
        return [speed for name, value in json_value.items() for speed in speeds_in(value, name)]
    if isinstance(json_value, list):
        return [speed for value in json_value for speed in speeds_in(value, key)]
    is_speed = key != "clock_uncertainty_ns" and key.endswith(("_s", "_ms", "_per_s", "_ns")) or key in ("mfu", "ratio", "overhead", "of_datasheet")
    return [(key, json_value)] if is_speed and json_value is not None else []


def test_unknown_flags_are_refused():
    done = subprocess.run([ROOT / "scripts" / "gpu_check.sh", "--fast"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--fast" in done.stderr
