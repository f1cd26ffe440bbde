"""gpu_check.sh on stand-ins for its programs: parts fail alone, and what is written can be read."""

import json
import subprocess
import sys

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
                        "tokens_per_s": metric(1e5)}},
           "memory": {{"classes": [{{"class": "parameter", "plan_bytes": 8, "measured_bytes": 8}}],
                      "total": {{"plan_bytes": 8, "measured_bytes": 2**30}}}},
           "cuda": {{"devices": [{{"used_bytes": 2 * 2**30}}], "attention": ["cuDNN 9.19.0"]}}}}
    if (folder / "no_cudnn").exists():
        row["cuda"]["attention"] = ["tiles of products: cuDNN is not there"]
    if "profile=cupti" in words:
        lost = 3 if (folder / "lost_records").exists() else 0
        row["profile"] = {{"cupti": {{"overhead": 0.02, "end_difference": {{"s": 5e-6}}, "records": {{
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
    assert done.returncode == 0, done.stdout
    assert list(parts) == [part.__name__ for part in gpu_check.PARTS if part is not gpu_check.build]
    assert {part["status"] for part in parts.values()} == {"ok"}
    assert parts["node"]["result"] == "Fake, 80 GiB; 1 notes"
    assert parts["operations"]["result"] == "12 tests of kernels held"
    assert parts["peaks"]["result"] == "bf16 700 TFLOP/s, memory 3000 GB/s"
    first = next(iter(parts["steps"]["details"].values()))
    assert first["of_measured_gemm_peak"] == 0.5
    assert first["matmul_flops_per_s"] == pytest.approx(2 * 1 * 2 * 3 / 0.002)
    assert first["matmuls_of_measured_gemm_peak"] == pytest.approx(6000 / 700e12)
    assert first["seconds_by_operation"] == {"matmul": 0.004, "norm": 0.0005}
    assert parts["memory"]["result"] == "plan and count agree, 1.0 GiB; the driver says 2.0 GiB"
    assert parts["graph"]["details"]["ratio"] == pytest.approx(1 / 1.1)
    assert parts["tracing"]["result"] == ("CUPTI adds 2.0 % to the step; ends of instructions are at most 5 us from "
                                          "device events'")


def test_attention_has_to_be_cudnns(build):
    (build / "bin" / "no_cudnn").write_text("")
    done, parts = run(build)
    assert done.returncode == 1
    assert [name for name, part in parts.items() if part["status"] == "failed"] == ["attention"]
    assert parts["attention"]["result"] == "cuDNN has not run it: tiles of products: cuDNN is not there"


def test_lost_records_fail_the_tracing_part(build):
    (build / "bin" / "lost_records").write_text("")
    done, parts = run(build)
    assert done.returncode == 1
    assert [name for name, part in parts.items() if part["status"] == "failed"] == ["tracing"]
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
    done, parts = run(build, "--limit", "1", broken="doctor hang\n")
    assert done.returncode == 1
    assert parts["node"]["result"] == "meshbench was still running after 1 s"
    assert parts["oracle"]["result"] == "no time left"


def test_a_node_that_is_not_fit_is_told_by_its_checks():
    class Unfit:
        binaries = ROOT

        def run(self, command, limit_s):
            report = {"checks": [{"check": "driver", "value": "none", "verdict": "would fail"}]}
            raise gpu_check.Failed("would fail", {"exit_code": 1, "stdout": json.dumps(report)})

    with pytest.raises(gpu_check.Failed, match="^driver: none$"):
        gpu_check.node(Unfit())


def test_unknown_flags_are_refused():
    done = subprocess.run([ROOT / "scripts" / "gpu_check.sh", "--fast"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--fast" in done.stderr
