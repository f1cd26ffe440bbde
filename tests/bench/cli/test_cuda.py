"""pytest tests/bench/cli/test_cuda.py: ranks on GPUs, with the command that has emulated ones, and what is refused."""

import json
import os
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench"))
EMULATED = BIN.parent / "tests" / "meshbench_emulated"
SMALL = ["model=gpt-tiny", "global_batch=8", "steps=2", "warm_up=1"]


def run(*words, program=EMULATED, **environment):
    if program != BIN / "meshbench" and not program.exists():
        pytest.skip("no CUDA toolkit here, whose headers the emulation takes")
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **environment})


def message_of(done):
    assert done.returncode != 0
    return [line for line in done.stderr.splitlines() if line.startswith("meshbench:")][0]


def row_at(path):
    row = json.loads(path.read_text())
    jsonschema.validate(row, json.loads((ROOT / "bench/report/row.schema.json").read_text()))
    return row


def test_ranks_share_gpus_in_turn_and_train_as_one_rank_does(tmp_path):
    out = tmp_path / "row.json"
    done = run("run", *SMALL, "mode=cuda+threads", "mesh=dp2.pp2.tp2", "zero=1", "-o", out, EMULATED_DEVICES="3")
    assert done.returncode == 0, done.stderr
    assert "TEST DOUBLE" in done.stderr and "emulated device (test double)" in done.stdout
    row = row_at(out)
    assert row["mode"] == "cuda+threads" and row["verified"]["ok"]
    assert [device["device"] for device in row["cuda"]["devices"]] == [0, 1, 2]
    for device in row["cuda"]["devices"]:
        assert 0 < device["allocated_bytes"] <= device["used_bytes"] < device["total_bytes"]
    assert row["cuda"]["clock_uncertainty_ns"] > 0
    assert all(entry["equal"] for entry in row["traffic"])
    assert row["metrics"]["bubble_fraction_own_cores"]["reason"]
    assert row["peak"]["flops_per_s"] is None and row["peak"]["devices"] == 3


NO_SPEED = "a test double of GPUs, whose times mean nothing"


def test_no_speed_is_told_of_a_double(tmp_path):
    out = tmp_path / "row.json"
    done = run("run", *SMALL, "mode=cuda+threads", "mesh=dp2", "-o", out)
    assert done.returncode == 0, done.stderr
    for name in ("step time", "throughput"):
        assert re.search(f"^{name} +{NO_SPEED}$", done.stdout, re.M), done.stdout
    row = row_at(out)
    for name, metric in row["metrics"].items():
        if metric["unit"] == "s" or metric["unit"].endswith("/s") or name in ("mfu", "hfu", "bubble_fraction", "overlap_ratio"):
            assert metric["value"] is None and metric["reason"] == NO_SPEED, name
    assert row["no_speed"] == NO_SPEED and row["metrics"]["loss"]["value"] and row["metrics"]["peak_bytes"]["value"]
    assert row["breakdown"] is row["critical_path"] is None and row["stages"] == row["link_fits"] == []
    assert row["theory"]["forward_s"] is None and not row["ranks"]
    assert row["collectives"] and all(
        c["reason"] == NO_SPEED and c["busbw_bytes_per_s"] is c["wait_s"] is c["wait_max_s"] is c["transfer_s"] is None
        for c in row["collectives"])
    assert f"Where the step went is not told: {NO_SPEED}" in done.stdout


TIMES = re.compile(r"\d (s|ms|us|ns)\b|\d \S+/s\b")


@pytest.mark.parametrize("words", [["mode=cuda+threads", "mesh=dp2.pp2"], ["mode=nccl+threads", "mesh=dp2", "zero=3"]])
def test_no_table_of_a_double_has_times(words):
    done = run("run", *SMALL, *words, EMULATED_DEVICES="4")
    if "this build has no NCCL" in done.stderr:
        pytest.skip("no nccl.h here")
    assert done.returncode == 0, done.stderr
    assert "Communication over all groups and recorded steps, without times: " + NO_SPEED in done.stdout
    assert not [line for line in done.stdout.splitlines() if TIMES.search(line)]


def traced(tmp_path, *words, **environment):
    """The block "profile" of a run on emulated GPUs, and what it printed."""
    out = tmp_path / "row.json"
    done = run("run", *SMALL, "mode=cuda+threads", "-o", out, *words, **environment)
    if "this build has no CUPTI" in done.stdout + done.stderr:
        pytest.skip("no cupti.h here")
    assert done.returncode == 0, done.stderr
    return row_at(out)["profile"], done.stdout


def test_steps_are_traced_by_cupti_after_those_that_count(tmp_path):
    profile, text = traced(tmp_path, "mesh=dp2", EMULATED_DEVICES="2")
    assert profile["source"] == "cupti" and profile["reason"] is None
    cupti = profile["cupti"]
    assert (cupti["steps"], cupti["ranks"]) == (2, 2)
    assert cupti["overhead"] is cupti["traced_step_s"] is cupti["untraced_step_s"] is None  # of a double
    records = cupti["records"]
    assert records["placed"] > 0 and records["dropped"] == records["without_time"] == 0
    classes = {c["class"]: c for c in cupti["classes"]}
    assert sum(c["kernels"] + c["copies"] for c in classes.values()) == records["placed"]
    # Every product is a launch of its own, and is launched once in each step of each rank.
    assert classes["matmul"]["kernels"] == classes["matmul"]["instructions"] > 0
    assert classes["matmul"]["instructions"] % 4 == 0
    assert cupti["end_difference"] is cupti["begin_difference"] is None
    assert all(c["busy_s"] is None for c in cupti["classes"])
    assert "traced          by CUPTI, in 2 steps after the recorded ones; times are not told: " + NO_SPEED in text
    assert "Work of the GPUs by CUPTI" in text


def test_records_without_a_time_are_counted(tmp_path):
    cupti = traced(tmp_path, EMULATED_CUPTI_FAULTS="5")[0]["cupti"]
    assert cupti["records"]["without_time"] > 0 and cupti["records"]["placed"] > 0
    assert cupti["host"]["without_time"] > 0 and cupti["host"]["waits"] > 0


def test_what_the_host_did_is_told_beside(tmp_path):
    profile, text = traced(tmp_path, "mesh=dp2", EMULATED_DEVICES="2")
    host = profile["cupti"]["host"]
    assert host["waits"] > 0 and host["waiting_s"] is host["overhead_s"] is None
    assert host["stream_waits"] > 0 and host["overheads"] > 0 and host["without_time"] == 0
    assert host["allocations"] == host["allocated_bytes"] == 0
    assert re.search("host, in all of them: [0-9]+ waits for devices; [0-9]+ spans of CUPTI's own; 0 allocations", text)


def test_what_nccl_launches_is_led_back_to_its_collective(tmp_path):
    done = run("run", *SMALL, "mode=nccl+threads", "mesh=dp2", "-o", tmp_path / "row.json", EMULATED_DEVICES="2")
    if "this build has no" in done.stdout + done.stderr:
        pytest.skip("a library's header is not here")
    cupti = row_at(tmp_path / "row.json")["profile"]["cupti"]
    assert cupti["records"]["uncorrelated"] == 0
    collectives = [c for c in cupti["classes"] if c["class"] not in ("matmul", "attention", "other", "optimizer")]
    assert sum(c["kernels"] for c in collectives) > 0, cupti["classes"]


def test_where_cupti_cannot_trace_device_events_time_and_the_reason_is_told(tmp_path):
    not_permitted = {"EMULATED_CUPTI": "35"}
    profile, text = traced(tmp_path, **not_permitted)
    assert profile["source"] == "device_events" and profile["cupti"] is None
    assert "the driver lets root alone profile" in profile["reason"]
    assert "traced          by device events alone: cuptiActivityEnable: " in text
    assert traced(tmp_path, "profile=off")[0]["reason"] == "profile=off"
    done = run("run", *SMALL, "mode=cuda+threads", "profile=cupti", **not_permitted)
    assert done.returncode == 3 and "the driver lets root alone profile" in message_of(done)
    done = run("run", *SMALL, "profile=cupti", program=BIN / "meshbench")
    assert "profile=cupti traces GPUs, and mode=threads has none" in message_of(done)


def test_out_of_memory_is_a_row_with_the_bytes_needed_and_there(tmp_path):
    out = tmp_path / "row.json"
    done = run("run", "model=gpt-10m", "mode=cuda+threads", "-o", out, EMULATED_BYTES=str(64 << 20))
    assert done.returncode == 66
    assert "rank 0: cuda device 0 is out of memory: the memory of a rank takes " in message_of(done)
    assert "give a smaller model or micro_batch" in message_of(done)
    detail = row_at(out)["status_detail"]
    assert row_at(out)["status"] == "oom"
    assert detail["needed_bytes"] > detail["capacity_bytes"] == 64 << 20
    done = run("memory", "model=gpt-10m", "mode=cuda+threads", "--run", EMULATED_BYTES=str(64 << 20))
    assert done.returncode == 66 and "is out of memory" in message_of(done)


@pytest.mark.parametrize("mode", ["cuda+threads", "nccl+threads"])
def test_a_collective_without_room_is_a_row_too(mode, tmp_path):
    out = tmp_path / "rows.jsonl"
    done = run("coll", f"mode={mode}", "mesh=dp2", "op=all_gather", "size=256M", "-o", out, EMULATED_BYTES=str(64 << 20))
    if "this build has no NCCL" in done.stderr:
        pytest.skip("no nccl.h here")
    assert done.returncode == 66 and "is out of memory" in message_of(done) and "give smaller sizes" in message_of(done)
    (row,) = map(json.loads, out.read_text().splitlines())
    jsonschema.validate(row, json.loads((ROOT / "bench/report/row.schema.json").read_text()))
    assert row["status"] == "oom" and row["mode"] == mode and row["params"]["size"] == 256 << 20
    assert row["status_detail"]["needed_bytes"] >= 256 << 20 and row["status_detail"]["capacity_bytes"] <= 64 << 20
    assert row["status_detail"]["message"] in message_of(done)


def test_a_collective_that_the_host_has_no_room_for_is_a_row_too(tmp_path):
    out = tmp_path / "rows.jsonl"
    done = run("coll", "mesh=dp2", "size=1K,4T", "-o", out, program=BIN / "meshbench")
    assert done.returncode == 66 and "the buffers of the ranks on host" in message_of(done)
    (row,) = map(json.loads, out.read_text().splitlines())
    jsonschema.validate(row, json.loads((ROOT / "bench/report/row.schema.json").read_text()))
    assert row["status"] == "oom" and row["mode"] == "threads" and row["metrics"] == {}
    assert row["status_detail"]["needed_bytes"] > 8 << 40 > row["status_detail"]["capacity_bytes"] > 0


def test_a_step_that_the_host_has_no_room_for_is_a_row_too(tmp_path):
    out = tmp_path / "row.json"
    done = run("run", "model=gpt3-175b", "mesh=dp1", "global_batch=1", "verify=off", "-o", out, program=BIN / "meshbench")
    assert done.returncode == 66 and "the ranks of this case take" in message_of(done)
    detail = row_at(out)["status_detail"]
    assert row_at(out)["status"] == "oom" and detail["needed_bytes"] > 1 << 40 > detail["capacity_bytes"] > 0


def test_a_simulated_device_too_small_is_told_and_predicted_all_the_same(tmp_path):
    done = run("coll", "mesh=dp8", "mode=sim", "machine=h100x8", "size=1M,100G", "--json", program=BIN / "meshbench")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["status"] for row in rows if row["params"]["in_place"] == "out"] == ["ok", "oom_predicted"]
    for row in rows:
        jsonschema.validate(row, json.loads((ROOT / "bench/report/row.schema.json").read_text()))
    assert rows[-1]["status_detail"]["needed_bytes"] > rows[-1]["status_detail"]["capacity_bytes"] == 80_000_000_000
    done = run("coll", "mesh=dp8", "mode=sim", "machine=h100x8", "size=100G", program=BIN / "meshbench")
    assert "# does not fit: the buffers of all_reduce of 100 GiB fp32 over world take 200 GiB on a rank, and a device of h100x8 has" in done.stdout


@pytest.mark.parametrize("devices, says", [
    ("0", "there is no CUDA device; 'nvidia-smi' lists those of the driver, and CUDA_VISIBLE_DEVICES may hide them"),
    ("-1", "there is no NVIDIA driver; install one for CUDA "),
])
def test_no_device_and_no_driver_are_told_apart(devices, says):
    for words in (["run", *SMALL, "mode=cuda+threads"], ["coll", "mode=cuda+threads", "size=1K"],
                  ["run", *SMALL, "mode=nccl+threads", "mesh=dp2"], ["coll", "mode=nccl+threads", "size=1K"]):
        done = run(*words, EMULATED_DEVICES=devices)
        if "this build has no NCCL" in done.stderr:
            pytest.skip("no nccl.h here")
        assert done.returncode == 3 and says in message_of(done), words


def test_ranks_with_gpus_of_their_own_communicate_by_nccl(tmp_path):
    out = tmp_path / "row.json"
    done = run("run", *SMALL, "mode=nccl+threads", "mesh=dp2.tp2", "zero=3", "-o", out, EMULATED_DEVICES="4")
    if "this build has no NCCL" in done.stderr:
        pytest.skip("no nccl.h here")
    assert done.returncode == 0, done.stderr
    assert "they communicate by NCCL" in done.stdout
    row = row_at(out)
    assert row["mode"] == "nccl+threads" and row["verified"]["ok"]
    assert row["nccl"]["library"] and row["nccl"]["algorithm"] is None and row["nccl"]["reason"]
    assert len(row["cuda"]["devices"]) == 4


@pytest.mark.parametrize("words", [
    ["mode=cuda+threads", "mesh=dp1", "offload=all", "dropout=0.1"],
    ["mode=nccl+threads", "mesh=dp2", "zero=2"],
    ["mode=nccl+threads", "mesh=pp2.dp2.tp2", "zero=3", "sequence_parallel=on"],
    ["mode=nccl+threads", "mesh=ep2", "model=moe-tiny", "model.capacity_factor=1.25"],
])
def test_steps_as_graphs_train_to_the_same_bits(words, tmp_path):
    rows = {}
    for graph in ("off", "on"):
        out = tmp_path / f"{graph}.json"
        case = {word.split("=")[0]: word for word in [*SMALL, "steps=4", *words]}
        done = run("run", *case.values(), f"graph={graph}", "-o", out)
        if "this build has no NCCL" in done.stderr:
            pytest.skip("no nccl.h here")
        assert done.returncode == 0, done.stderr
        rows[graph] = row_at(out)
        assert rows[graph]["verified"]["ok"]
    assert rows["on"]["profile"]["reason"].startswith("graph=on: ")
    assert rows["on"]["training"]["losses"] == rows["off"]["training"]["losses"]
    assert "graph=on" in rows["on"]["case"] and "graph" not in rows["off"]["case"]


@pytest.mark.parametrize("words, says", [
    (["mode=threads"], "graph=on: mode=threads has no GPUs; give mode=nccl+threads, nccl+mpi or cuda+threads"),
    (["mode=sim"], "graph=on: mode=sim has no GPUs"),
    (["mode=cuda+threads", "mesh=dp2"], "communicate by the host, which no graph waits for; give mode=nccl+threads"),
    (["mode=nccl+threads", "mesh=ep2", "model=moe-tiny"], "give model.capacity_factor=1.25, or graph=off"),
    (["mode=nccl+threads", "mesh=dp2", "profile=cupti"], "graph=on profile=cupti: CUPTI leads all of a graph back"),
])
def test_no_graph_where_a_step_wants_the_host(words, says):
    case = {word.split("=")[0]: word for word in [*SMALL, *words]}
    assert says in message_of(run("check", *case.values(), "graph=on", program=BIN / "meshbench"))


GPU_MODES = ["cuda+threads", "nccl+threads"]
RICH = ["mesh=pp2.dp2.tp2", "zero=3", "sequence_parallel=on", "dtype=bf16"]


@pytest.mark.parametrize("mode", GPU_MODES)
@pytest.mark.parametrize("words", [["mesh=dp2", "zero=2", "offload=optimizer"], RICH,
                                   ["mesh=ep2.tp2", "model=moe-tiny"], ["mesh=cp2.dp2", "schedule=gpipe"]])
def test_traffic_and_memory_are_counted_as_planned(mode, words):
    for verb in ("traffic", "memory"):
        case = {word.split("=")[0]: word for word in ["model=gpt-tiny", "global_batch=8", *words]}
        done = run(verb, *case.values(), f"mode={mode}", "--run", "--json")
        if "this build has no NCCL" in done.stderr:
            pytest.skip("no nccl.h here")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        if verb == "traffic":
            rows = [row for rank in told["pipeline_ranks"] for row in rank.get("traffic", [])]
            assert rows and told["equal"] and all(row["counted"] == row["plan"] for row in rows)
        else:
            assert told["capacity_bytes"] > 0 and "emulated device (test double)" in told["capacity_of"]
            for rank in told["ranks"]:
                assert rank["fits"] and rank["total"]["measured_bytes"] == rank["total"]["plan_bytes"] > 0
                for row in rank["classes"]:
                    assert row["measured_bytes"] == row["plan_bytes"], row


def test_ranks_that_share_a_gpu_share_its_memory():
    words = ["memory", "model=gpt-tiny", "global_batch=8", "mode=cuda+threads", "mesh=dp4", "--run", "--json"]
    told = json.loads(run(*words, EMULATED_DEVICES="2", EMULATED_BYTES=str(1 << 28)).stdout)
    assert told["capacity_bytes"] == 1 << 27 and told["capacity_of"].startswith("each of 2 ranks on a ")


@pytest.mark.parametrize("mode", GPU_MODES)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_attention_is_by_cudnn_where_it_goes_and_the_row_says_so(mode, dtype, tmp_path):
    case = ["model=gpt-tiny", "global_batch=8", "steps=2", "warm_up=1", "verify=on", f"mode={mode}", f"dtype={dtype}",
            "mesh=tp2", "profile=off"]
    told = {}
    for attention in ("auto", "tiled"):
        done = run("run", *case, f"attention={attention}", "-o", tmp_path / "row.json")
        if "this build has no NCCL" in done.stderr:
            pytest.skip("no nccl.h here")
        assert done.returncode == 0, done.stderr
        row = row_at(tmp_path / "row.json")
        assert row["verified"]["ok"]
        told[attention] = row["cuda"]["attention"]
    assert told["tiled"] == ["tiles of products: attention=tiled"]
    if "this build has no cuDNN" not in told["auto"][0]:
        assert len(told["auto"]) == 1 and told["auto"][0].startswith("cuDNN ")


@pytest.mark.parametrize("words, reason", [(["dtype=fp32"], "fused kernels are for bf16 and fp16"),
                                           (["dtype=bf16", "dropout=0.1"], "draw dropout in their own order"),
                                           (["dtype=bf16", "model.heads=16"], "heads of")])
def test_attention_in_tiles_says_why(words, reason, tmp_path):
    done = run("run", *SMALL, "mode=cuda+threads", "profile=off", *words, "-o", tmp_path / "row.json")
    assert done.returncode == 0, done.stderr
    told = row_at(tmp_path / "row.json")["cuda"]["attention"]
    assert reason in told[0] or "this build has no cuDNN" in told[0]
    assert f"attention       {told[0]}" in done.stdout


def test_tf32_rounds_products_of_fp32_alone(tmp_path):
    errors = {}
    for tf32 in ("off", "on"):
        done = run("run", *SMALL, "mode=cuda+threads", "profile=off", f"tf32={tf32}", "-o", tmp_path / "row.json")
        assert done.returncode == 0, done.stderr
        row = row_at(tmp_path / "row.json")
        assert row["verified"]["ok"]
        errors[tf32] = row["verified"]["error"]
    assert errors["off"] < 1e-5 < errors["on"] and "as far as TF32 rounds" in row["verified"]["by"]
    assert "cuBLASLt in TF32" in done.stdout and "tf32=on" in row["case"]


@pytest.mark.parametrize("words, says", [
    (["tf32=on"], "tf32=on: mode=threads has no GPUs"),
    (["tf32=on", "mode=cuda+threads", "dtype=bf16"], "tf32=on rounds operands of dtype=fp32, not bf16"),
    (["attention=tiled"], "attention=tiled: mode=threads has no GPUs"),
    (["attention=fused", "mode=cuda+threads"], "auto"),
])
def test_gpu_words_are_refused_where_they_do_nothing(words, says):
    assert says in message_of(run("check", *SMALL, *words, program=BIN / "meshbench"))


@pytest.mark.parametrize("mode", GPU_MODES)
def test_collectives_of_gpus_move_what_they_should(mode, tmp_path):
    words = ["coll", f"mode={mode}", "mesh=dp2.tp2", "axis=all", "op=all", "size=4K", "time_cap=1ms", "iterations=4,4",
             "warm_up=0", "-o", tmp_path / "rows.jsonl"]
    done = run(*words, EMULATED_DEVICES="4")
    if "this build has no NCCL" in done.stderr:
        pytest.skip("no nccl.h here")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    schema = json.loads((ROOT / "bench/report/row.schema.json").read_text())
    for row in rows:
        jsonschema.validate(row, schema)
        assert row["mode"] == mode
        assert row["coll"]["check"]["wrong"] == (None if row["coll"]["operation"] == "barrier" else 0)
        assert all(metric["value"] is None and metric["reason"] == NO_SPEED for metric in row["metrics"].values())
    assert len({row["coll"]["operation"] for row in rows}) == 13
    assert "Out of bounds values : 0 OK" in done.stdout and "TEST DOUBLE" in done.stderr
    assert f"# no time or rate is shown: {NO_SPEED}" in done.stdout and "Avg bus bandwidth    : N/A" in done.stdout
    lines = [line for line in done.stdout.splitlines() if re.match(" +[0-9]", line)]
    assert len(lines) > 20 and all(line.split()[5:8] == ["N/A"] * 3 == line.split()[9:12] for line in lines)
    done = run(*words[:-2], "--fit", tmp_path / "fit.json", EMULATED_DEVICES="4")
    assert "are made of times, and this is " + NO_SPEED in message_of(done)


@pytest.mark.parametrize("gpus, says", [(1, "not defined: one GPU has nobody to talk to"), (2, f"not told: {NO_SPEED}")])
def test_best_rates_of_collectives_are_for_two_gpus_or_more(gpus, says):
    done = run("--benchmark_filter=collective", "--benchmark_format=json", program=BIN.parent / "tests/gpu_bench_emulated",
               EMULATED_DEVICES=str(gpus), EMULATED_BYTES=str(1 << 30))
    if "this build has no NCCL" in done.stdout + done.stderr:
        pytest.skip("no nccl.h here")
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)["benchmarks"]
    assert [line["name"].split("/")[1] for line in lines] == ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
    assert all(line["label"] == says and "busbw_GB_per_s" not in line for line in lines)


def test_a_collective_of_gpus_is_also_submitted(tmp_path):
    done = run("coll", "mode=cuda+threads", "mesh=dp2", "size=4K", "time_cap=1ms", "iterations=4,4", "call=stream", "--json",
               EMULATED_DEVICES="2")
    assert done.returncode == 0, done.stderr
    assert all(row["coll"]["call"] == "stream" for row in map(json.loads, done.stdout.splitlines()))


def test_what_collectives_reach_stands_beside_links_and_what_nccl_reached_before(tmp_path):
    done = run("run", *SMALL, "mode=nccl+threads", "mesh=dp2.tp2", "-o", tmp_path / "row.json", EMULATED_DEVICES="4")
    if "this build has no NCCL" in done.stderr:
        pytest.skip("no nccl.h here")
    assert done.returncode == 0, done.stderr
    row = row_at(tmp_path / "row.json")
    assert row["link_references"] == {"ceilings": None, "no_measured": NO_SPEED}
    assert all(c["measured_bytes_per_s"] is None and c["no_ceiling"] for c in row["collectives"])
    assert "no datasheet of emulated device (test double) is known" in {c["no_ceiling"] for c in row["collectives"]}
    assert f"No measured rates: {NO_SPEED}." in done.stdout
    done = run("run", *SMALL, "mode=cuda+threads", "mesh=dp2", "-o", tmp_path / "row.json")
    assert "through memory of the host" in row_at(tmp_path / "row.json")["link_references"]["no_measured"]


def test_a_library_of_nccl_that_does_not_fit_the_header_is_named_with_what_to_do():
    for verb in (["run", *SMALL], ["coll", "size=1K"]):
        done = run(*verb, "mode=nccl+threads", "mesh=dp2", EMULATED_NCCL="22005", EMULATED_DEVICES="2")
        if "this build has no NCCL" in done.stderr:
            pytest.skip("no nccl.h here")
        assert done.returncode == 3, done.stderr
        assert "NCCL 2.20.5 is loaded, and this program was built for" in message_of(done)
        assert "LD_LIBRARY_PATH" in message_of(done)


@pytest.mark.parametrize("mode, fault, says", [
    ("cuda+threads", "kernel_launch 40 719 sticky", r"rank \d on cuda device \d \w+, .*CUDA_LAUNCH_BLOCKING=1"),
    ("nccl+threads", "kernel_launch 40 719 sticky", r"rank \d on cuda device \d \w+, .*CUDA_LAUNCH_BLOCKING=1"),
    ("nccl+threads", "ncclAllReduce 150 2", r"rank \d.*ncclAllReduce.*NCCL status 2.*NCCL_DEBUG=INFO"),
])
def test_faults_of_the_device_and_of_nccl_end_all_ranks_with_one_line(mode, fault, says):
    words = ["verify=off", f"mode={mode}", "mesh=tp2"]
    done = run("run", *SMALL, *words, EMULATED_DEVICES="2", EMULATED_FAULT=fault)
    if "this build has no NCCL" in done.stderr:
        pytest.skip("no nccl.h here")
    assert done.returncode == 3, done.stderr
    assert re.search(says, message_of(done)), message_of(done)
    assert len([line for line in done.stderr.splitlines() if line.startswith("meshbench:")]) == 1


def test_nccl_wants_a_gpu_for_each_rank():
    done = run("run", *SMALL, "mode=nccl+threads", "mesh=dp4", EMULATED_DEVICES="2")
    assert "mesh=dp4 has 4 ranks on this machine, and NCCL wants a GPU for each; the driver shows 2" in message_of(done)
    assert "mode=cuda+threads, whose ranks share GPUs" in message_of(done)


def test_what_cannot_be_run_is_refused_with_what_would_do():
    done = run("run", *SMALL, "mode=cuda", program=BIN / "meshbench")
    assert "cuda+threads" in message_of(done) and "nccl+mpi" in message_of(done)
    done = run("run", *SMALL, "mode=nccl+mpi", "mesh=dp2", program=BIN / "meshbench")
    assert "start them with: mpirun -n 2 meshbench run" in message_of(done) and "mode=nccl+mpi" in message_of(done)
    done = run("run", *SMALL, "mode=cuda+mpi", "mesh=dp2", program=BIN / "meshbench")
    assert "start them with: mpirun -n 2 meshbench run" in message_of(done) and "mode=cuda+mpi" in message_of(done)
    done = run("run", *SMALL, "mode=cuda+threads", "offload_gb_per_s=2", program=BIN / "meshbench")
    assert "offload_gb_per_s=2 slows copies of mode=threads down" in message_of(done)
    done = run("coll", "mode=cuda+threads", "overlap=matmul", program=BIN / "meshbench")
    assert "mode=cuda+threads has no beside=, overlap=, cache=cold or pages=small" in message_of(done)
    done = run("coll", "mode=nccl+threads", "algorithm=ring", program=BIN / "meshbench")
    assert "NCCL chooses its algorithms itself" in message_of(done)
    done = run("memory", *SMALL, "mode=cuda+threads", program=BIN / "meshbench")
    assert "give mode=sim machine=NAME" in message_of(done)


def test_a_build_without_cuda_says_how_to_build_with_it():
    done = run("run", *SMALL, "mode=cuda+threads", program=BIN / "meshbench")
    if "this build has no CUDA" not in done.stderr:
        pytest.skip("this build has CUDA")
    assert done.returncode == 3 and "cmake --preset cuda" in message_of(done)
