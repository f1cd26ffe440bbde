"""pytest tests/bench/cli: the meshbench command and the Google Benchmark binaries, run as a user would."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import jsonschema
import pytest
from test_fit import nccl_log

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench"))
VERBS = [
    "run", "sim", "predict", "choose", "compare", "scaling", "check", "plan", "theory", "place", "traffic", "memory",
    "coll", "fit", "doctor", "models", "machines", "stacks", "schedules", "cases",
]
SCHEMA = json.loads((ROOT / "bench" / "report" / "row.schema.json").read_text())
SMALL = ["model=gpt-tiny", "mesh=dp2.pp2", "global_batch=8", "steps=2", "warm_up=1"]


def run(*words, cwd=None, program="meshbench"):
    return subprocess.run([BIN / program, *words], cwd=cwd, capture_output=True, text=True, timeout=120)


def strict(text):
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")
    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def row(tmp_path_factory):
    path = tmp_path_factory.mktemp("row") / "row.json"
    done = run("run", *SMALL, "-o", path, "--trace", path.with_name("trace.json"), "--timeline", path.with_name("timeline.txt"))
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_holds_examples(verb):
    done = run(verb, "--help")
    assert done.returncode == 0
    assert "Examples:" in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_every_example_of_the_help_runs(verb, tmp_path):
    shutil.copy(ROOT / "README.md", tmp_path)
    (tmp_path / "all_reduce.log").write_text(nccl_log(8, 1, 20, 100, 1.75))
    (tmp_path / "all_gather_2nodes.log").write_text(nccl_log(16, 2, 60, 40, 0.9375))
    (tmp_path / "cases.txt").write_text("model=gpt3-13b mesh=tp8 machine=h100x8 dtype=bf16 global_batch=8\n")
    (tmp_path / "steps.csv").write_text("case,step_s\n" + "".join(
        f"model=gpt3-1.3b mesh={mesh} dtype=bf16 global_batch=16,{step}\n"
        for mesh, step in (("dp8", 0.16), ("dp4.tp2", 0.2), ("pp4.tp2", 0.23))))
    examples = run(verb, "--help").stdout.split("Examples:")[1]
    commands = [line.strip() for line in examples.splitlines() if line.strip().startswith("meshbench")]
    assert commands
    for command in commands:
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})
        assert done.returncode == 0, f"{command}: {done.stderr}"


def test_check_answers_each_line_with_the_case_in_full_or_why_it_cannot_run():
    lines = ["mesh=dp2 model=gpt-tiny", "mesh=tp3", "mesg=dp2", "mode=sim mesh=tp8.pp8 model=gpt3-175b", "model=@no.json"]
    done = subprocess.run([BIN / "meshbench", "check", "--lines"], input="\n".join(lines) + "\n", capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rows = [strict(line) for line in done.stdout.splitlines()]
    assert [row["status"] for row in rows] == ["ok", "invalid", "invalid", "ok", "invalid"]
    assert [row["status_detail"].get("phase") for row in rows] == [None, "rules", "words", None, "words"]
    live, sim = rows[0], rows[3]
    assert live["params"]["steps"] == "5" and live["check"]["model"]["layers"] == 2 and live["check"]["machine"] is None
    assert 0 < live["check"]["needed_bytes"] < live["check"]["capacity_bytes"]
    assert sim["check"]["needed_bytes"] > sim["check"]["capacity_bytes"] == 80 * 10**9
    simulated = strict(run("sim", "mesh=tp8.pp8", "model=gpt3-175b", "--json").stdout)
    assert sim["check"]["step_s"] == simulated["metrics"]["step_s"]["value"]
    assert {field: sim[field] for field in ("case", "params", "key")} == {
        field: simulated[field] for field in ("case", "params", "key")}


def test_check_refuses_as_run_does():
    checked, ran = (run(verb, "mesh=tp3") for verb in ("check", "run"))
    assert checked.returncode == ran.returncode == 2 and checked.stderr == ran.stderr


def test_json_is_one_document_and_all_of_stdout():
    done = run("run", *SMALL, "--json")
    assert strict(done.stdout)["status"] == "ok"


def test_a_row_follows_its_schema(row):
    jsonschema.Draft202012Validator(SCHEMA).validate(strict(row.read_text()))


@pytest.mark.parametrize("case", [
    "mesh=dp2 zero=3", "mesh=tp2 sequence_parallel=on", "mesh=cp2", "mesh=cp2 context=ulysses",
    "model=moe-tiny mesh=ep2", "mesh=pp2 model.layers=4 schedule=zb-v recompute=full",
    "mesh=dp2 dtype=bf16", "mesh=dp2 dtype=fp16", "offload=all dropout=0.1"])
def test_a_row_of_every_strategy_follows_its_schema_and_is_verified(case):
    words = case.split() + ([] if "model=" in case else ["model=gpt-tiny"])
    done = run("run", *words, "steps=2", "warm_up=1", "--json")
    assert done.returncode == 0, done.stderr
    row = strict(done.stdout)
    jsonschema.validate(row, json.loads((ROOT / "bench/report/row.schema.json").read_text()))
    assert row["verified"]["ok"] or "dropout" in case
    metrics = row["metrics"]
    assert (metrics["balance_loss"]["value"] is None) == ("moe" not in case)
    assert metrics["loss_scale"]["value"] == (1024 if "fp16" in case else 1)
    assert (metrics["peak_host_bytes"]["value"] > 0) == ("offload" in case)
    assert (metrics["recomputed_flops"]["value"] > 0) == ("recompute" in case)


def test_a_row_is_verified_against_one_rank(row):
    verified = strict(row.read_text())["verified"]
    assert verified["ok"] and verified["error"] < 1e-5


def test_the_case_of_a_row_reruns_it(row):
    case = strict(row.read_text())["case"]
    again = run("run", *case.split(), "--json")
    assert again.returncode == 0
    assert strict(again.stdout)["case"] == case


def test_traffic_and_memory_of_a_row_are_those_of_its_plan(row):
    data = strict(row.read_text())
    assert all(entry["equal"] for entry in data["traffic"])
    for entry in data["memory"]["classes"] + [data["memory"]["total"]]:
        assert entry["measured_bytes"] == entry["plan_bytes"], entry


RICH = ["model=llama-tiny", "model.layers=4", "mesh=dp2.pp2.tp4", "zero=2", "sequence_parallel=on",
        "recompute=full", "dtype=bf16", "global_batch=8"]


def test_traffic_is_told_three_times_and_equal():
    data = strict(run("traffic", *RICH, "--run", "--json").stdout)
    assert data["equal"]
    assert [entry["stages"] for entry in data["pipeline_ranks"]] == [[0], [1]]
    for entry in data["pipeline_ranks"]:
        for row in entry["traffic"]:
            assert row["closed_form"] == row["plan"] == row["counted"], row
        assert entry["data_wire_bytes"] > entry["data_wire_bytes_without_zero"]


def test_traffic_of_a_large_case_is_not_counted():
    text = run("traffic", "model=gpt3-175b", "mesh=dp2.pp4.tp8", "mode=sim", "global_batch=64").stdout
    assert "Pipeline ranks 1-2 of 4, alike" in text
    assert "counted" not in text
    assert "DIFFERS" not in text


def test_traffic_of_one_rank_is_nothing():
    assert "nothing" in run("traffic", "model=gpt-tiny", "mesh=1").stdout


def test_slices_of_a_trace_never_overlap_on_a_track(row):
    events = strict(row.with_name("trace.json").read_text())["traceEvents"]
    tracks = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)))
    assert tracks
    for slices in tracks.values():
        slices.sort()
        assert all(a[1] <= b[0] for a, b in zip(slices, slices[1:]))


def test_virtual_time_repeats_itself():
    first, second = (strict(run("sim", "case=a100-64", "--json").stdout)["metrics"] for _ in range(2))
    assert first == second
    assert first["bubble_fraction"]["value"] > 0


@pytest.mark.parametrize("words, code, parts", [
    (["run", "meesh=dp2"], 2, ["meesh=dp2", "mesh"]),
    (["run", "mesh=tp3"], 2, ["tp=3", "heads"]),
    (["run", "--trce", "x"], 2, ["--trce"]),
    (["fly"], 2, []),
    (["plan", "mesh=pp2", "--rank", "7"], 2, ["--rank 7", "0 to 1"]),
    (["memory", "mesh=pp2", "--rank", "2"], 2, ["--rank 2", "0 to 1", "all"]),
    (["memory", "mode=sim", "--run"], 2, ["--run", "mode=threads"]),
    (["memory", "--zero-table", "mesh=dp2"], 2, ["mesh=dp2", "groups="]),
    (["memory", "--zero-table", "groups=0"], 2, ["groups=0", "1,8,64"]),
    (["run", "--trace", "-"], 2, ["--trace -", "give a file"]),
    (["traffic", "mode=sim", "--run"], 2, ["--run", "mode=sim"]),
    (["models", "gpt-3"], 2, ["gpt-3", "did you mean"]),
    (["cases", "frist"], 2, ["frist", "first"]),
    (["run", "data=nowhere.txt"], 4, ["nowhere.txt"]),
    (["run", "-o", "/proc/nowhere/row.json"], 4, ["--out", "/proc/nowhere/row.json"]),
])
def test_bad_input_is_refused_on_one_line(words, code, parts):
    done = run(*words)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) <= 2
    for part in parts:
        assert part in done.stderr


def test_slots_of_a_schedule_are_read_back_as_they_are_printed(tmp_path):
    for schedule in json.loads(run("schedules", "--json").stdout):
        shape = ["pp=2", "m=4"] + (["chunks=2"] if schedule["placement"] == "looped" else [])
        slots = run("schedules", schedule["name"], *shape)
        assert slots.returncode == 0, slots.stderr
        (tmp_path / "mine.txt").write_text(slots.stdout)
        case = ["model=gpt-tiny", "model.layers=4", "mesh=pp2", "global_batch=4"]
        mine = run("plan", *case, "schedule=@mine.txt", cwd=tmp_path)
        assert mine.returncode == 0, mine.stderr
        assert slots.stdout in mine.stdout


def test_data_that_will_not_do_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "short.txt").write_text("x" * 50)
    (tmp_path / "ids.bin").write_bytes((300).to_bytes(2, "little") * 4000)
    for name, parts in {"empty.txt": ["empty"], "short.txt": ["short.txt"], "ids.bin": ["300", "vocabulary"]}.items():
        done = run("run", "model=gpt-1m", f"data={name}", "-o", "row.json", cwd=tmp_path)
        assert done.returncode == 4, done.stderr
        assert all(part in done.stderr for part in parts), done.stderr
        assert not (tmp_path / "row.json").exists()


def test_text_data_trains(tmp_path):
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 400)
    done = run("run", "model=gpt-1m", "model.layers=1", "data=text.txt", "mesh=dp2", "steps=3", "--json", cwd=tmp_path)
    losses = strict(done.stdout)["training"]["losses"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("sent, code", [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_run_that_is_stopped_leaves_earlier_rows_as_they_were(sent, code, tmp_path):
    row = tmp_path / "row.json"
    row.write_text("{}")
    process = subprocess.Popen([BIN / "meshbench", "run", "model=gpt-1m", "steps=100000", "verify=off", "-o", row],
                               stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    while len(os.listdir(f"/proc/{process.pid}/task")) < 3:  # until it trains: the handler is there, ranks are at work
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(sent)
    process.communicate(timeout=60)
    assert process.returncode == code
    assert row.read_text() == "{}"
    assert [path.name for path in tmp_path.iterdir()] == ["row.json"]


def test_an_interrupted_run_keeps_the_steps_that_it_recorded(tmp_path):
    row = tmp_path / "row.json"
    process = subprocess.Popen([BIN / "meshbench", "run", "model=gpt-1m", "steps=100000", "warm_up=0", "-o", row],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while len(os.listdir(f"/proc/{process.pid}/task")) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    kept = strict(row.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(kept)
    assert kept["status"] == "cancelled" and re.search(r"interrupted after step \d+ of 100000", kept["status_detail"]["message"])
    assert kept["status_detail"]["message"] in said and kept["metrics"]["step_s"]["n"] >= 1
    assert not kept["verified"]["ok"]


def test_headroom_is_what_a_device_has_left(row):
    sim = strict(run("sim", "model=gpt3-1.3b", "dtype=bf16", "mesh=dp8", "zero=3", "machine=h100x8", "--json").stdout)
    left = 1e9 * (sim["machine"]["memory_gb"] - sim["machine"]["context_gb"] - sim["machine"]["library_gb"])
    peak = sim["metrics"]["peak_bytes"]["value"]
    # What the allocator rounds up and at most leaves unused between tensors, and buffers of communicators.
    beside = left - peak - sim["metrics"]["headroom_bytes"]["value"]
    assert sim["status"] == "ok" and 0.24 * peak < beside < 0.4 * peak
    large = strict(run("sim", "case=textbook-100b", "--json").stdout)
    assert large["status"] == "oom_predicted" and large["metrics"]["headroom_bytes"]["value"] < 0
    here = strict(row.read_text())["metrics"]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < here["headroom_bytes"]["value"] <= memory - here["process_peak_rss_bytes"]["value"]


def test_no_words_print_the_help():
    done = run()
    assert done.returncode == 2
    assert "Subcommands:" in done.stderr


def test_a_row_goes_to_stdout_and_through_links(tmp_path):
    assert strict(run("run", *SMALL, "-o", "-").stdout)["status"] == "ok"
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    assert run("run", *SMALL, "-o", "link.json", cwd=tmp_path).returncode == 0
    assert (tmp_path / "link.json").is_symlink()
    assert strict((tmp_path / "real.json").read_text())["status"] == "ok"
    assert run("run", *SMALL, "-o", "same", "--trace", "same", cwd=tmp_path).returncode == 2


def test_a_run_that_diverges_fails_and_leaves_no_row(tmp_path):
    done = run("run", *SMALL, "learning_rate=1e300", "-o", "row.json", cwd=tmp_path)
    assert done.returncode == 3
    assert "learning_rate" in done.stderr
    assert not (tmp_path / "row.json").exists()


def test_a_simulated_step_that_does_not_fit_says_so():
    done = run("sim", "case=textbook-100b", "--json")
    row = strict(done.stdout)
    assert row["status"] == "oom_predicted"
    assert row["status_detail"]["needed_bytes"] > row["status_detail"]["capacity_bytes"]


def test_memory_counts_what_the_plan_says_on_every_stage():
    done = run("memory", "model=gpt-tiny", "mesh=dp2.pp2", "zero=2", "dtype=bf16", "offload=optimizer", "--run", "--json")
    data = strict(done.stdout)
    assert [report["stage"] for report in data["ranks"]] == [0, 1]
    for report in data["ranks"]:
        assert report["fits"]
        for entry in report["classes"] + [report["total"], report["host"]]:
            assert entry["measured_bytes"] == entry["plan_bytes"], entry
            if entry["closed_form"] == "exact":
                assert entry["closed_form_bytes"] == entry["plan_bytes"], entry
        assert sum(entry["composition_bytes"] for entry in report["classes"]) == report["total"]["plan_bytes"]
        assert sum(live["bytes"] for live in report["live"]) <= report["total"]["plan_bytes"]


def test_memory_of_a_large_model_says_whether_it_fits():
    case = ["model=gpt3-175b", "dtype=bf16", "micro_batch=1", "global_batch=64", "zero=1", "mode=sim"]
    start = time.monotonic()
    fits = strict(run("memory", *case, "mesh=tp8.pp8", "recompute=full", "--json").stdout)
    assert time.monotonic() - start < 20  # 0.3 s on an idle core
    assert len(fits["ranks"]) == 8 and all(report["fits"] for report in fits["ranks"])
    over = strict(run("memory", *case, "mesh=tp8.pp4", "--json").stdout)
    assert not over["ranks"][0]["fits"]


def test_rank_picks_what_memory_tells():
    case = ["model=gpt-tiny", "mesh=pp2", "global_batch=4"]
    assert run("memory", *case, "--rank", "1").stdout.count("memory class") == 1
    assert run("memory", *case, "--rank", "all").stdout.count("memory class") == 2


def test_the_zero_table_is_figure_1_of_the_paper():
    rows = strict(run("memory", "--zero-table", "params=7.5e9", "groups=64", "--json").stdout)["rows"]
    assert [round(row["gb"], 1) for row in rows if row["state"] == "2 + 2 + 12"] == [120.0, 31.4, 16.6, 1.9]


def test_versions_are_told():
    done = run("--version")
    assert done.returncode == 0
    assert re.search(r"meshbench \d+\.\d+", done.stdout)


@pytest.mark.parametrize("program", ["ops_bench", "step_bench", "sim_bench", "collectives_bench"])
def test_benchmarks_fail_on_an_unknown_flag_and_on_an_empty_selection(program):
    assert run("--benchmark_fliter=x", program=program).returncode == 2
    assert run("--benchmark_filter=matches_nothing", program=program).returncode == 4


def test_counters_of_a_step_benchmark_are_finite(tmp_path):
    out = tmp_path / "out.json"
    case = shlex.join(SMALL).replace("'", "")
    done = run(case, "--benchmark_min_time=0.01", f"--benchmark_out={out}", program="step_bench")
    assert done.returncode == 0, done.stderr
    entry = strict(out.read_text())["benchmarks"][0]
    for counter in ["tokens_per_s", "bubble_fraction", "exposed_comm_s", "peak_bytes", "peak_activation_bytes"]:
        assert entry[counter] > 0


def test_doctor_is_content_with_what_this_build_can_do():
    done = run("doctor", "mode=threads", "--json")
    assert done.returncode == 0, done.stderr
    report = strict(done.stdout)
    assert report["would_fail"] == 0
    assert {"cores", "memory", "time source", "MPI", "build"} <= {check["check"] for check in report["checks"]}


def test_doctor_fails_where_what_was_asked_for_would():
    asked = run("doctor", "mode=nccl+threads")
    failing = [check for check in strict(run("doctor", "mode=nccl+threads", "--json").stdout)["checks"]
               if check["verdict"] == "would fail"]
    assert asked.returncode == (1 if failing else 0)
    assert all(check["advice"] for check in failing)
    assert asked.stdout.count("would fail  ") == len(failing)


@pytest.mark.parametrize("words, message", [
    (["mode=gpu"], "mode=gpu is not known; did you mean 'mpi'? Known: threads, mpi, cuda+threads, cuda+mpi, "
     "nccl+threads, nccl+mpi, sim"),
    (["dtype=bf16"], "doctor knows no dtype=bf16; give mode="),
    (["mode=nccl+threads", "mode=mpi"], "doctor takes one word, mode=; leave out mode=mpi")])
def test_doctor_refuses_what_it_does_not_know(words, message):
    done = run("doctor", *words)
    assert done.returncode == 2
    assert message in done.stderr
