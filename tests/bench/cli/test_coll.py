"""pytest tests/bench/cli/test_coll.py: meshbench coll and collectives_bench, run as a user would."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench"))
sys.path.insert(0, str(ROOT / "scripts"))
QUICK = ["time_cap=10ms", "warm_up=2"]


def run(*words, cwd=None, program="meshbench", env=None):
    verb = ["coll"] if program == "meshbench" else []
    return subprocess.run([BIN / program, *verb, *words], cwd=cwd, capture_output=True, text=True, timeout=120,
                          env={**os.environ, **(env or {})})


def strict(text):
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")
    return json.loads(text, parse_constant=refuse)


def rows_of(*words, **more):
    done = run(*words, "--json", **more)
    assert done.returncode == 0, done.stderr
    return [strict(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def printed():
    done = run("size=1K,64K,1M", *QUICK)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_table_is_read_by_columns_counted_from_the_right(printed):
    lines = [re.sub(" +", " ", line.strip(" ")).split(" ") for line in printed.splitlines()]
    head = next(re.sub(" +", " ", line[1:].strip(" ")).split(" ") for line in printed.splitlines()
                if "time" in line and "busbw" in line and line.split()[1] == "size")
    for first in (head.index, lambda name: len(head) - 1 - list(reversed(head)).index(name)):
        size, time_at, busbw = head.index("size"), first("time") - len(head), first("busbw") - len(head)
        rows = [line for line in lines if re.match(r"\d+", line[0])]
        assert [int(row[size]) for row in rows] == [1024, 65536, 1048576]
        for row in rows:
            assert float(row[busbw]) == pytest.approx(int(row[size]) / float(row[time_at]) / 1e3, rel=0.03, abs=0.01)


def test_mean_is_the_fifth_word_of_the_one_line_about_bandwidth(printed):
    about = [line.split() for line in printed.splitlines() if "bandwidth" in line.lower()]
    assert len(about) == 1
    assert float(about[0][5]) > 0


def test_last_row_is_found_by_tail_and_awk(printed):
    found = subprocess.run(["bash", "-c", "tail -n 4 | head -n 1 | awk '{print $1, $12}'"], input=printed,
                           capture_output=True, text=True, check=True).stdout.split()
    assert found[0] == "1048576"
    assert float(found[1]) > 0


def test_every_operation_type_and_reduction_is_right_and_follows_the_schema():
    schema = jsonschema.Draft202012Validator(json.loads((ROOT / "bench/report/row.schema.json").read_text()))
    rows = rows_of("op=all", "mesh=dp3", "size=12000", *QUICK)
    rows += rows_of("op=all_reduce,reduce_scatter", "dtype=all", "redop=all", "size=4K", "time_cap=1ms", "warm_up=1")
    for row in rows:
        schema.validate(row)
        coll = row["coll"]
        assert coll["check"]["wrong"] == 0 or coll["operation"] == "barrier", coll
        assert row["metrics"]["completion_s"]["value"] >= 0
    assert len({row["coll"]["operation"] for row in rows}) == 13
    assert len({(row["coll"]["dtype"], row["coll"]["redop"]) for row in rows if row["coll"]["redop"]}) == 50
    assert len({row["key"] for row in rows}) == len(rows)


def test_rows_of_every_group_have_bandwidths_of_their_own_size():
    rows = rows_of("op=all_gather", "mesh=dp2.tp3", "axis=all", "size=1000", *QUICK)
    assert [(row["coll"]["axis"], row["coll"]["ranks"]) for row in rows if not row["coll"]["in_place"]] == [
        ("tp", [0, 1, 2]), ("tp", [3, 4, 5]), ("dp", [0, 3]), ("dp", [1, 4]), ("dp", [2, 5])]
    for row in rows:
        n, coll, metrics = len(row["coll"]["ranks"]), row["coll"], row["metrics"]
        assert coll["bytes"] == 1000 // 4 // n * n * 4
        assert metrics["algbw_bytes_per_s"]["value"] == pytest.approx(coll["bytes"] / metrics["completion_s"]["value"])
        assert metrics["busbw_bytes_per_s"]["value"] == pytest.approx(
            metrics["algbw_bytes_per_s"]["value"] * (n - 1) / n)


def test_one_rank_has_a_time_and_no_bus():
    row = rows_of("mesh=1", "size=1K", "in_place=out", *QUICK)[0]
    assert row["metrics"]["busbw_bytes_per_s"] == {"value": None, "unit": "B/s", "n": 0,
                                                   "reason": "not defined for one rank"}
    text = run("mesh=1", "size=1K", *QUICK).stdout
    assert "not defined" in text and "# Avg bus bandwidth    : N/A" in text


def test_simulation_predicts_the_same_rows():
    words = ["op=all_reduce,all_to_all", "mesh=dp2.tp2", "axis=all", "size=1K,1M"]
    measured, predicted = rows_of(*words, *QUICK), rows_of(*words, "mode=sim", "machine=h100x8")
    identity = ("operation", "axis", "ranks", "bytes", "in_place", "factor")
    assert [[row["coll"][key] for key in identity] for row in measured] == [
        [row["coll"][key] for key in identity] for row in predicted]
    assert measured[0].keys() == predicted[0].keys() and measured[0]["coll"].keys() == predicted[0]["coll"].keys()
    again = rows_of(*words, "mode=sim", "machine=h100x8")
    assert [row["coll"] for row in again] == [row["coll"] for row in predicted]


def test_the_case_of_a_row_reruns_it():
    row = rows_of("op=broadcast", "mesh=dp2.tp2", "axis=tp", "size=4K", "root=1", *QUICK)[0]
    again = rows_of(*row["case"].split())[0]
    assert (again["case"], again["key"]) == (row["case"], row["key"])


def test_csv_and_json_lines_hold_the_same(tmp_path):
    from mb import rows as reader

    done = run("op=all", "mesh=dp2.tp2", "axis=all", "size=0,4K", "iterations=6,12", *QUICK, "--raw", "-o", "rows.jsonl", "--csv",
               "rows.csv", cwd=tmp_path, env={"NCCL_ALGO": "x,\"y\"", "NCCL_API_KEY": "hidden"})
    assert done.returncode == 0, done.stderr
    lines, cells = reader.load([tmp_path / "rows.jsonl"]), reader.load([tmp_path / "rows.csv"])
    assert lines == cells
    assert json.dumps(lines) == json.dumps(cells)
    assert lines[0]["env"]["NCCL_ALGO"] == 'x,"y"'
    assert "hidden" not in (tmp_path / "rows.jsonl").read_text()
    assert "all_to_all_v" in reader.coll_table(lines)


@pytest.mark.parametrize("sent, code", [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_rows_before_the_end_of_a_run_stay(sent, code, tmp_path):
    file, table = tmp_path / "rows.jsonl", tmp_path / "rows.csv"
    process = subprocess.Popen([BIN / "meshbench", "coll", "size=1K:1G:x1.01", "time_cap=30ms", "interval=0.0001",
                                "-o", file, "--csv", table], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not file.exists() or file.read_text().count("\n") < 3:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(sent)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    from mb import rows as reader

    written = reader.load([file])
    assert len(written) >= 3
    assert len(reader.load([table])) in (len(written) - 1, len(written))
    if sent == signal.SIGINT:
        assert "interrupted" in errors and "meshbench coll op=all_reduce" in errors


def test_a_rank_that_is_kept_back_is_named():
    words = ["mesh=dp4", "size=4K", "in_place=out", "inject=rank:3:3ms", "iterations=10,20", "warm_up=1"]
    row = rows_of(*words)[0]
    assert row["coll"]["verdict"]["fault"] == "late_rank" and row["coll"]["verdict"]["who"] == [3]
    assert row["coll"]["injected_delay_s"] == pytest.approx(3e-3)
    text = run(*words).stdout
    assert "rank 3 is kept back by 3 ms" in text and "late rank 3" in text


def test_a_rank_that_never_comes_ends_the_run(tmp_path):
    done = run("size=1K", "mesh=dp3", "inject=rank:1:1000s", "timeout_s=0.5", "-o", "rows.jsonl", cwd=tmp_path)
    assert done.returncode == 3
    for part in ["all_reduce of 1 KiB", "0.5 s", "arrived: 0, 2", "not arrived: 1 (kept back"]:
        assert part in done.stderr
    assert (tmp_path / "rows.jsonl").read_text() == ""


@pytest.mark.parametrize("words, code, parts", [
    (["size=2Mfoo"], 2, ["size=2Mfoo", "size=2Mfoo: not a size"]),
    (["size=99999999T"], 2, ["99999999T"]),
    (["size=8:4:x2"], 2, ["size=8:4:x2", "begins above its end"]),
    (["size=8:64:+0"], 2, ["step of 0"]),
    (["op=allreduce"], 2, ["op=allreduce", "did you mean"]),
    (["mesh=dp2.xp2"], 2, ["xp"]),
    (["op=reduce", "root=5"], 2, ["root=5", "0 to 1"]),
    (["mesh=dp300"], 2, ["300", "256"]),
    (["size=64T"], 66, ["256 TiB", "left", "64T"]),
    (["op=barrier", "in_place=in"], 2, ["in_place=in"]),
    (["machine=@nowhere.json"], 4, ["nowhere.json"]),
    (["-o", "/proc/nowhere/rows.jsonl"], 4, ["--out", "/proc/nowhere"]),
    (["-o", "x", "--csv", "x"], 2, ["--out and --csv"]),
    (["--matrix"], 2, ["--matrix", "one size="]),
    (["--matrix", "mesh=1", "size=1K"], 2, ["mesh=1", "mesh=dp2.tp2"]),
    (["--fitt", "x"], 2, ["--fitt"]),
    (["--tune", "x", "algorithm=ring"], 2, ["--tune x", "algorithm=own,ring,tree"]),
    (["--tune", "x", "--matrix", "size=1K", "mesh=dp2.tp2", "algorithm=own,ring"], 2, ["--tune and --matrix"]),
    (["--tune", "x", "op=barrier", "algorithm=ring,tree", "mode=sim"], 2, ["--tune x", "barrier", "add own"]),
    (["algorithm=@nowhere.json"], 4, ["nowhere.json"]),
])
def test_bad_input_is_refused_on_one_line(words, code, parts, tmp_path):
    done = run(*words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) <= 2
    for part in parts:
        assert part in done.stderr


def test_a_fitted_machine_is_read_back(tmp_path):
    done = run("op=all_reduce,shift", "mesh=dp2", "size=64K:4M:x4", *QUICK, "--fit", "here.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "all_reduce over 2 ranks on 1 node" in done.stderr and "nic_gb_per_s: 0 rows" in done.stderr
    row = rows_of("mode=sim", "machine=@here.json", "size=1M", cwd=tmp_path)[0]
    assert row["metrics"]["completion_s"]["value"] > 0


def test_a_fit_of_one_size_is_refused(tmp_path):
    done = run("size=1M", *QUICK, "--fit", "here.json", cwd=tmp_path)
    assert done.returncode == 3
    assert "one size" in done.stderr
    assert not (tmp_path / "here.json").exists()


def test_a_tuned_table_chooses_the_algorithm_of_every_size(tmp_path):
    words = ["mode=sim", "mesh=dp8", "size=1K:1G:x64", "in_place=out"]
    done = run("op=all_reduce,broadcast", *words, "algorithm=ring,halving_doubling,tree", "--tune", "tuned.json",
               cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("algorithm tree") == 2 * 4
    table = strict((tmp_path / "tuned.json").read_text())
    assert (table["schema"], table["mode"], table["machine"]) == ("meshbench-tuning/1", "sim", "h100x8")
    chosen = set()
    for operation in ["all_reduce", "broadcast"]:
        # By the algorithm that a row names: a broadcast has no halving_doubling and goes its own way.
        alone = {rows[0]["coll"]["algorithm"]: rows
                 for rows in (rows_of(f"op={operation}", *words, f"algorithm={name}")
                              for name in ["ring", "halving_doubling", "tree"])}
        tuned = rows_of(f"op={operation}", *words, "algorithm=@tuned.json", cwd=tmp_path)
        assert len(tuned) == 4
        for k, row in enumerate(tuned):
            seconds = {name: rows[k]["metrics"]["completion_s"]["value"] for name, rows in alone.items()}
            assert seconds[row["coll"]["algorithm"]] == min(seconds.values())
            assert row["params"]["algorithm"] == row["coll"]["algorithm"]
            chosen.add(row["coll"]["algorithm"])
    assert len(chosen) > 1
    done = run("op=all_gather", "algorithm=@tuned.json", cwd=tmp_path)
    assert done.returncode == 2 and "has no all_gather" in done.stderr


def test_algorithms_are_timed_in_turn_and_the_table_is_read_back(tmp_path):
    rows = rows_of("mesh=dp2.tp2", "axis=tp", "size=1K,64K", "algorithm=own,ring", *QUICK, "--tune", "tuned.json",
                   cwd=tmp_path)
    assert len({row["key"] for row in rows}) == len(rows) == 16
    assert [row["coll"]["algorithm"] for row in rows[::4]] == ["own", "ring"] * 2
    table = strict((tmp_path / "tuned.json").read_text())
    assert table["operations"][0]["members"] == 2 and table["case"] == rows[0]["case"]
    chosen = {step["algorithm"] for step in table["operations"][0]["steps"]}
    assert {row["coll"]["algorithm"] for row in rows_of("size=1K,64K", "algorithm=@tuned.json", *QUICK,
                                                        cwd=tmp_path)} == chosen
    (tmp_path / "other.json").write_text('{"schema": "meshbench-row/1"}')
    done = run("algorithm=@other.json", cwd=tmp_path)
    assert done.returncode == 2 and "meshbench-tuning/1" in done.stderr


def test_interference_is_told_for_every_pair_of_axes():
    text = run("mesh=dp2.tp2", "size=64K", "--matrix", *QUICK).stdout
    assert re.search(r"slow-down of +beside tp +beside dp", text)
    assert re.search(r"^tp +\d+\.\d\d +\d+\.\d\d$", text, re.M) and re.search(r"^dp +\d+\.\d\d +\d+\.\d\d$", text, re.M)
    rows = rows_of("mesh=dp2.tp2", "axis=tp", "size=64K", "beside=all_gather:dp:64K", *QUICK)
    assert all(row["coll"]["beside"]["slow_down"] > 0 for row in rows)


@pytest.mark.parametrize("kind", ["matmul", "memory"])
def test_overlap_has_three_times_and_an_efficiency(kind):
    overlap = rows_of("size=64K", "in_place=out", f"overlap={kind}", *QUICK)[0]["coll"]["overlap"]
    operation, computation = overlap["operation_s"], overlap["compute_s"]
    expected = (operation + computation - overlap["both_s"]) / min(operation, computation)
    defined = computation <= 2 * operation  # a unit of computation may be longer than the operation
    assert overlap["efficiency"] == (pytest.approx(expected) if defined else None)


def test_a_stream_has_a_time_of_submission():
    schema = jsonschema.Draft202012Validator(json.loads((ROOT / "bench/report/row.schema.json").read_text()))
    for call in ["blocking", "stream"]:
        row = rows_of("size=64K", "in_place=out", f"call={call}", *QUICK)[0]
        schema.validate(row)
        assert row["coll"]["call"] == call and row["coll"]["check"]["wrong"] == 0
        assert (row["coll"]["submit"] is None) == (call == "blocking")
    assert row["coll"]["submit"]["n"] == 2 * row["coll"]["completion"]["n"]
    assert "submit us" in run("size=1K", "call=stream", "--explain", *QUICK).stdout


def test_explanation_has_factors_ceilings_and_a_second_table():
    text = run("op=all_reduce,all_to_all", "mesh=dp2.tp8", "axis=all", "mode=sim", "size=1G", "--explain").stdout
    for part in ["2(n-1)/n", "(n-1)/n", "450 GB/s", "ceiling GB/s", "reached %", "verdict"]:
        assert part in text


def test_simulated_ranks_need_neither_memory_nor_time():
    start = time.monotonic()
    rows = rows_of("mode=sim", "mesh=dp512.tp8", "axis=world,tp", "groups=one", "size=1T", "in_place=out")
    assert time.monotonic() - start < 20  # 0.1 s on an idle core
    assert [len(row["coll"]["ranks"]) for row in rows] == [4096, 8]


def test_benchmarks_have_names_and_finite_counters(tmp_path):
    out = tmp_path / "out.json"
    done = run("op=all_reduce size=4K in_place=out time_cap=5ms", f"--benchmark_out={out}", program="collectives_bench")
    assert done.returncode == 0, done.stderr
    entry = strict(out.read_text())["benchmarks"][0]
    assert entry["name"].startswith("all_reduce/threads/2/fp32/4KiB")
    assert entry["busbw"] == pytest.approx(entry["algbw"]) and entry["algbw"] > 0
    assert entry["bytes"] == 4096
    assert run("op=nothing", program="collectives_bench").returncode == 2
    assert run("--benchmark_filter=matches_nothing", program="collectives_bench").returncode == 4


@pytest.mark.parametrize("algorithm", ["own", "native"])
def test_processes_of_mpi_leave_the_same_rows_once(algorithm, tmp_path):
    if not shutil.which("mpirun.openmpi"):
        pytest.skip("Open MPI is not here")
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(["mpirun.openmpi", "--oversubscribe", "-n", "2", BIN / "meshbench", "coll", "mode=mpi",
                           "op=all_reduce,all_gather", "size=4K", f"algorithm={algorithm}", *QUICK, "-o", "rows.jsonl"],
                          cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Avg bus bandwidth") == 2
    from mb import rows as reader

    rows = reader.load([tmp_path / "rows.jsonl"])
    assert [(row["mode"], row["coll"]["check"]["wrong"]) for row in rows] == [("mpi", 0)] * 4
    assert {row["mpi"]["library"] for row in rows} == {"Open MPI"}
    assert not any("orte" in name for row in rows for name in row["env"])


def test_shaped_links_hold_the_axis_that_crosses_nodes():
    rows = rows_of("mesh=dp2.tp2", "axis=all", "ranks_per_node=2", "size=1M", "in_place=out", *QUICK,
                   "link=intra:4GB/s,2us;inter:0.05GB/s,20us")
    crossing = [row["metrics"]["completion_s"]["value"] for row in rows if row["coll"]["axis"] == "dp"]
    assert all(seconds >= 2 * 2**19 / 0.05e9 for seconds in crossing)
    assert [row["coll"]["expected"]["link"] for row in rows] == ["intra", "intra", "inter", "inter"]
