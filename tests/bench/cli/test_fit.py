"""`meshbench fit` as a user has it: files in, a machine and a stack out, and what is refused."""

import json
import os
import subprocess
from pathlib import Path

import pytest

BIN = Path(os.environ.get("MESHBENCH_BIN", Path(__file__).resolve().parents[3] / "build" / "cpu" / "bench"))

HEADER = """# nThread 1 nGpus 1 minBytes 1024 maxBytes 67108864 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
{ranks}#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1\n#\n"


def nccl_log(ranks, nodes, latency_us, gb_per_s, factor):
    """An all-reduce that takes latency + size / rate."""
    lines = "".join(f"#  Rank {r:2} Group  0 Pid {100 + r} on node{r * nodes // ranks} device  {r % 8} [0x07] NVIDIA H100 80GB HBM3\n"
                    for r in range(ranks))
    text = HEADER.format(ranks=lines)
    for power in range(10, 28, 2):
        size = 1 << power
        time = latency_us + size / gb_per_s / 1e3
        rate = size / time / 1e3
        half = f"{time:8.2f} {rate:7.2f} {rate * factor:7.2f}      0"
        text += f"{size:12} {size // 4:13}     float     sum      -1 {half} {half}\n"
    return text + FOOTER


@pytest.fixture
def meshbench():
    def call(*words, cwd, check=0, **more):
        done = subprocess.run([BIN / "meshbench", *words], cwd=cwd, capture_output=True, text=True, timeout=120, **more)
        assert done.returncode == check, done.stderr
        return done
    return call


@pytest.fixture
def fit(meshbench, tmp_path):
    return lambda *words, **more: meshbench("fit", *words, cwd=tmp_path, **more)


def test_logs_become_a_machine_that_predicts_them(fit, meshbench, tmp_path):
    (tmp_path / "node.txt").write_text(nccl_log(8, 1, 20, 100, 1.75))
    (tmp_path / "two.txt").write_text(nccl_log(16, 2, 60, 40, 1.875))
    done = fit("node.txt", "two.txt", "machine=h100x8", "-o", "here.json", "--report", "report.json")
    assert "all_reduce over 8 ranks on 1 node: 1 segments from 9 rows of node.txt" in done.stdout
    assert "all_reduce over 16 ranks on 2 nodes" in done.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert all(curve["held_out_error"] < 0.01 for curve in report["curves"])
    rows = meshbench("coll", "mode=sim", "machine=@here.json", "mesh=dp16", "size=64M", "--json", cwd=tmp_path)
    seconds = json.loads(rows.stdout.splitlines()[0])["coll"]["completion"]["p50_s"]
    assert seconds == pytest.approx(60e-6 + (64 << 20) / 40e9, rel=0.01)


def test_steps_become_a_stack_with_its_rows(fit, meshbench, tmp_path):
    cases = [f"model=gpt3-125m mesh={mesh} dtype=bf16 micro_batch={size} global_batch=16 machine=h100x8 stack.compute_share=0.5"
             for mesh in ("dp2", "tp2", "pp2") for size in (1, 2, 4)]
    (tmp_path / "cases.txt").write_text("\n".join(cases) + "\n")
    predicted = [json.loads(line) for line in meshbench("predict", "cases.txt", cwd=tmp_path).stdout.splitlines()]
    rows = [f"{case.rsplit(' ', 2)[0]},{p['step_s']}" for case, p in zip(cases, predicted, strict=True)]
    (tmp_path / "steps.csv").write_text("case,step_s\n" + "\n".join(rows) + "\n")
    done = fit("steps.csv", "machine=h100x8", "--stack-out", "ours.json")
    stack = json.loads((tmp_path / "ours.json").read_text())
    assert stack["compute_share"] == pytest.approx(0.5, rel=0.01)
    assert "9 steps of steps.csv" in stack["source"]
    assert "measure next: " in done.stdout
    row = json.loads(meshbench("predict", "-", input=cases[0].rsplit(" ", 1)[0] + " stack=@ours.json\n", cwd=tmp_path).stdout)
    assert row["calibrated_on"] == stack["source"]


def test_a_trace_of_this_program_gives_its_operations_their_times(fit, meshbench, tmp_path):
    meshbench("run", "model=gpt-1m", "steps=1", "warm_up=1", "verify=off", "-q", "--trace", "t.json", cwd=tmp_path)
    fit("t.json", "machine=cpu", "machine.fp32_tflops=1", "-o", "here.json")
    row = json.loads(meshbench("predict", "-", input="model=gpt-1m machine=@here.json\n", cwd=tmp_path).stdout)
    assert row["modelled_ops"] == 0
    assert row["measured_ops"] > 20
    row = json.loads(meshbench("predict", "-", input="model=gpt-1m machine=@here.json machine.fp32_tflops=2\n", cwd=tmp_path).stdout)
    assert row["measured_ops"] == 0, "another device was not measured"


def test_a_trace_of_this_program_gives_its_communication_its_times(fit, meshbench, tmp_path):
    meshbench("run", "model=gpt-1m", "mesh=dp2", "steps=1", "warm_up=1", "verify=off", "-q", "--trace", "t.json", cwd=tmp_path)
    done = fit("t.json", "machine=cpu", "machine.fp32_tflops=1", "-o", "here.json")
    assert "collectives and messages of steps of t.json" in done.stdout
    machine = json.loads((tmp_path / "here.json").read_text())
    assert machine["comm_times"] == "measured"
    longest = max(machine["measured_comm"], key=lambda time: time["bytes"])
    assert (longest["operation"], longest["ranks"], longest["nodes"]) == ("all_reduce", 2, 1)
    longest["us"] = 1e6  # seen to be what the prediction takes
    (tmp_path / "slow.json").write_text(json.dumps(machine))
    row = json.loads(meshbench("predict", "-", input="model=gpt-1m mesh=dp2 machine=@slow.json\n", cwd=tmp_path).stdout)
    assert row["step_s"] > 1
    for without in ("machine.comm_times=none", "machine.link_gb_per_s=10"):
        row = json.loads(meshbench("predict", "-", input=f"model=gpt-1m mesh=dp2 machine=@slow.json {without}\n", cwd=tmp_path).stdout)
        assert row["step_s"] < 0.5


@pytest.mark.parametrize(("text", "message"), [
    ("", "is empty"),
    ("hello\n", "not recognised"),
    (nccl_log(8, 1, 20, 100, 1.75).replace("values : 0 OK", "values : 2 FAILED"), "2 values were wrong"),
    (nccl_log(8, 1, 20, 100, 1.75)[:-200], "Is the log cut off?"),
    (nccl_log(8, 1, 20, 100, 1.75).replace("   20.01 ", "   0.020 "), "is the time in us"),
])
def test_what_cannot_be_read_is_refused_by_name(fit, tmp_path, text, message):
    (tmp_path / "bad.txt").write_text(text)
    done = fit("bad.txt", check=4)
    assert "bad.txt" in done.stderr
    assert message in done.stderr
    assert not done.stdout


def test_too_few_rows_fit_nothing_and_say_what_would_do(fit, tmp_path):
    (tmp_path / "steps.csv").write_text("case,step_s\nmodel=gpt-1m,0.1\n")
    done = fit("steps.csv", "--stack-out", "ours.json", check=3)
    assert "1 measured steps; one constant takes 3" in done.stderr
    assert not (tmp_path / "ours.json").exists()


def test_other_mistakes_are_told(fit, tmp_path):
    assert "cannot be read" in fit("missing.txt", check=4).stderr
    assert "at least one file" in fit("machine=h100x8", check=2).stderr
    (tmp_path / "steps.csv").write_text("case,step_s\n" + "model=gpt-1m mesh=dp3 global_batch=4,0.1\n" * 3)
    assert "steps.csv:2: global_batch=4 does not divide" in fit("steps.csv", check=2).stderr
