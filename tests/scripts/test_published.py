"""mb published: rows to cases, statistics, refusals; and the published rows where they are at hand."""

import csv
import json
import os
from pathlib import Path

import pytest

from mb.main import main
from mb.published import cases, command, fit, kernels
from conftest import ROOT

BIN = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench"))
PUBLISHED = ROOT.parent / "shared" / "published"
built = pytest.mark.skipif(not (BIN / "meshbench").exists(), reason=f"meshbench is not built in {BIN}")


@pytest.fixture
def folder(tmp_path):
    """A published folder with three steps of one node."""
    with open(tmp_path / "vtrain_single_node.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow("id n_gpus gbs mbs hidden heads layers seq tp dp pp iter_time_ms".split())
        for k, (tp, dp, pp) in enumerate([(2, 1, 1), (1, 2, 1), (1, 1, 2)]):
            writer.writerow([f"row{k}", 2, 4, 1, 1024, 16, 12, 1024, tp, dp, pp, 200 + k])
    return tmp_path


def test_rows_become_cases(folder):
    rows = cases.load(folder)
    assert [p.measured_s for p in rows] == [0.2, 0.201, 0.202]
    assert "mesh=tp2 machine=a100x8 dtype=fp16 recompute=full micro_batch=1 global_batch=4" in rows[0].words
    assert len({p.group for p in rows}) == 1, "they differ in the mesh alone"


def test_rows_that_cannot_be_cases_say_why():
    row = dict.fromkeys(cases.WANTED, "1") | {"moe": "0", "confidence": "recalled", "framework": "", "source": "", "gpu": "H100", "hidden": "64"}
    assert "recalled" in cases._why_not(row)
    row["confidence"] = "verified"
    assert cases._why_not(row) == ""
    assert "head size" in cases._why_not(row | {"hidden": "108"})
    assert cases._why_not(row | {"mbs": ""}) == "not published: mbs"
    assert "mixture" in cases._why_not(row | {"moe": "1"})
    assert cases._why_not(row | {"gpu": "TPU v4"}) == "no machine for TPU v4"


def test_a_source_that_is_not_known_has_the_stack_of_its_kin():
    row = dict.fromkeys(cases.WANTED, "1") | {"source": "a paper", "framework": "Megatron-LM", "gpu": "A100-80GB-SXM"}
    assert cases._source(row) == ("a paper", "megatron-2022")
    assert cases._source(row | {"gpu": "H100-80GB-SXM"}) == ("a paper", "nemo-2024")
    assert cases._source(row | {"framework": "Megatron-DeepSpeed"}) == ("a paper", "megatron-deepspeed")
    assert cases._source(row | {"source": "MPT by MosaicML"}) == ("MPT", "llm-foundry"), "what is known goes first"
    assert cases._source(row | {"framework": "Pathways/T5X"}) == ("a paper", None)


@pytest.mark.parametrize(("precision", "fp8"), [("BF16", False), ("fp16", False), ("FP8-CS", True), ("MXFP8", True)])
def test_products_of_a_stack_of_fp8_are_in_what_the_row_says(precision, fp8):
    columns = ("id model gpu n_gpus gbs seq precision layers hidden heads kv_heads ffn vocab arch moe tp pp dp cp ep vpp mbs nic_gbps_per_gpu "
               "zero_stage seq_parallel recompute schedule iter_time_s iter_time_derived_s tokens_per_s_per_gpu mem_gb mem_kind confidence "
               "framework source notes verified_in").split()
    row = dict.fromkeys(columns, "") | dict.fromkeys(cases.WANTED, "8") | {
        "gpu": "H100-80GB-SXM", "n_gpus": "512", "hidden": "1024", "moe": "0", "precision": precision, "iter_time_s": "1",
        "framework": "Megatron-Bridge 26.04"}
    assert ("stack.fp8_matmul=false" in cases._step(row, "a paper", "megatron-bridge").words) == (not fp8)


def test_rank_correlation():
    assert command.spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert command.spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert command.spearman([1, 2, 2, 3], [1, 2, 2, 3]) == pytest.approx(1)
    assert command.spearman([1, 1, 1], [1, 2, 3]) is None
    assert command.spearman([1, 2], [1, 2]) is None


def test_regret_is_what_the_predicted_best_loses():
    rows = [{"group": "a", "measured_s": 1.0, "predicted_s": 3.0}, {"group": "a", "measured_s": 1.2, "predicted_s": 2.0},
            {"group": "b", "measured_s": 1.0, "predicted_s": 1.0}]
    assert command.regrets(rows) == [pytest.approx(0.2)], "a group of one has no choice"


def test_rows_to_fit_on_are_at_most_a_fifth_and_do_not_hang_on_what_was_measured(folder):
    rows = [cases.Published(f"id{k}", "s", "", "x", 1.0, "w") for k in range(50)]
    chosen = fit.chosen_rows(rows)
    assert len(chosen) == 10
    for p in rows:
        p.measured_s = 2.0
    assert fit.chosen_rows(rows) == chosen


def test_spread_is_conformal_from_ten_rows_on_and_leans_on_a_prior_below():
    errors = [0.01 * k for k in range(1, 21)]
    inside = 1.2816 * fit.spread(errors, 0)
    assert sum(e < inside + 1e-9 for e in errors) == 17, "80 % of 21, the row to come among them"
    assert fit.spread([], 0) == pytest.approx(fit.PRIOR_SIGMA)
    assert fit.spread([0.0, 0.0], 2) == pytest.approx(fit.PRIOR_SIGMA), "as many constants as rows say nothing"
    assert fit.spread([0.2] * 4, 0) == pytest.approx(((4 * 0.06**2 + 4 * 0.2**2) / 8) ** 0.5)


def test_straight_curves_are_met_by_half_their_sizes(tmp_path):
    with open(tmp_path / "nccl_curves.csv", "w") as file:
        file.write("system,nccl,collective,n_gpus,bytes,time_us\n")
        for k in range(9, 30):
            file.write(f"x,2,all_reduce,8,{1 << k},{10 + (1 << k) / 1e5}\n")
    errors = kernels.collectives(tmp_path)["x"]
    assert len(errors) == 10
    assert max(abs(e) for _, e in errors) < 1e-12
    assert "| x | 10 | 0.0 | 0.0 |" in kernels.markdown(tmp_path)
    kernels.draw(tmp_path, tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 5_000
    assert kernels.markdown(tmp_path / "nothing") == ""


def test_what_falls_with_the_size_is_smoothed():
    smooth = kernels.rising([(1, 4.0), (2, 1.0), (4, 3.0), (8, 5.0)])
    assert [size for size, _ in smooth] == [1, 2, 4, 8]
    assert [time for _, time in smooth] == pytest.approx([2.0, 2.0, 3.0, 5.0])
    assert kernels.rising([]) == []


def test_more_ranks_add_latency_and_what_a_ring_carries(tmp_path):
    with open(tmp_path / "nccl_curves.csv", "w") as file:
        file.write("system,nccl,collective,n_gpus,bytes,time_us\n")
        for n in (2, 4, 8):
            for k in (0, 20, 22, 24):
                file.write(f"x,2,all_reduce,{n},{1 << k},{3 + 2 * n + 2 * (n - 1) / n * ((1 << k) - 1) / 1e5}\n")
    assert max(map(abs, kernels.more_ranks(tmp_path)["x"])) < 1e-12
    assert "| x | 4 | 0.0 |" in kernels.markdown(tmp_path)


def test_tiles_take_whole_waves_as_in_the_binary():
    """The numbers that tests/parallel/cost/op_cost_test.cc holds tiles.cc to."""
    import numpy as np

    flops_per_s, bytes_per_s = 80e12, 500e9
    whole, sums = kernels._compute_seconds(np.array([2560]), np.array([1280]), np.array([4096]), flops_per_s, bytes_per_s, 100, 0)
    assert (whole[0], sums[0]) == (pytest.approx(2 * 2560 * 1280 * 4096 / flops_per_s), 0)
    more, _ = kernels._compute_seconds(np.array([2560]), np.array([1281]), np.array([1024]), flops_per_s, bytes_per_s, 100, 0)
    assert more[0] == pytest.approx(9 * 100 * 2 * 64 * 64 * 1024 / 0.7 / flops_per_s)
    deep, sums = kernels._compute_seconds(np.array([256]), np.array([256]), np.array([1 << 20]), flops_per_s, bytes_per_s, 100, 0)
    assert deep[0] == pytest.approx(100 * 2 * 64 * 64 * (1 << 18) / 0.7 / flops_per_s)
    assert sums[0] == pytest.approx(4 * 4 * 256 * 256 / bytes_per_s)


def test_matmuls_of_three_constants_are_found_again(tmp_path):
    peak, rate, _, fill = kernels.PEAKS["h100"]
    with open(tmp_path / "gemm_h100.csv", "w") as file:
        file.write("device,dtype,m,n,k,time_us\n")
        for m in (1024, 2048, 8192):
            for n in (1024, 4096, 16384):
                for k in (1024, 2048, 3072, 8192, 12288, 16384):
                    time = 5e-6 + max(2 * m * n * (k + fill) / (0.7 * peak), 2 * (m * k + k * n + m * n) / (0.8 * rate))
                    file.write(f"h100,bfloat16,{m},{n},{k},{1e6 * time}\n")
    found = kernels.matmuls(tmp_path)["h100"]
    assert found["large_pct"] < 1
    assert found["constants"][0] == pytest.approx(0.7, rel=0.02)


def test_constants_were_fitted_on_at_most_a_fifth_of_what_is_kept():
    fitted = json.loads(fit.FITTED.read_text())
    assert all(len(ids) == len(set(ids)) for ids in fitted.values())


@built
def test_predicts_and_writes(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MESHBENCH_BIN", str(BIN))
    out = tmp_path / "out"
    assert main(["published", "--published", str(folder), "-o", str(out)]) == 0
    assert "vTrain single node" in capsys.readouterr().out
    with open(out / "rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert all(float(r["low_s"]) < float(r["predicted_s"]) < float(r["high_s"]) for r in rows)
    assert (out / "steps.png").stat().st_size > 10_000
    assert json.loads((out / "summary.json").read_text())["vTrain single node"]["rows"] == 3


@built
def test_too_few_rows_are_refused(folder, monkeypatch, capsys):
    monkeypatch.setenv("MESHBENCH_BIN", str(BIN))
    assert main(["published", "--published", str(folder), "--fit", "megatron-vtrain=compute_share"]) == 2
    assert "too few" in capsys.readouterr().out
    assert main(["published", "--published", str(folder), "--fit", "megatron-vtrain=magic"]) == 2


def test_a_folder_without_rows_is_refused(tmp_path, capsys):
    assert main(["published", "--published", str(tmp_path)]) != 0
    assert "measured_steps.csv" in capsys.readouterr().err


@built
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason=f"{PUBLISHED} is not there")
def test_published_rows_are_all_predicted_or_say_why(monkeypatch):
    monkeypatch.setenv("MESHBENCH_BIN", str(BIN))
    rows = cases.load(PUBLISHED)
    assert all(p.words or p.skipped for p in rows)
    some = [p for p in rows if p.words and p.source != "vTrain single node"][::12]
    assert [q["error"] for q in fit.predict([f"{p.words} stack={p.stack}" for p in some]) if "error" in q] == []


def test_memory_is_held_to_what_was_counted():
    row = {"source": "s", "memory_kind": "allocated", "measured_memory_gib": 10.0, "planned_memory_gib": 9.0,
           "expected_memory_gib": 10.1, "total_memory_gib": 9.9}
    assert kernels.memory_markdown([row]).splitlines()[-1] == "| s | allocated | 1 | 10.0 | 1.0 | 1.0 | 1.0 | -1.0 | 1 |"
    assert kernels.memory_markdown([row | {"measured_memory_gib": ""}]) == ""


def test_memory_of_a_row_is_what_its_source_counted():
    q = {"planned_bytes": 8 << 30, "stack_bytes": 1 << 30, "rounding_bytes": 0, "fragmentation_bytes": 3 << 30, "reserved_bytes": 10 << 30,
         "library_bytes": 1 << 30, "context_bytes": 1 << 30, "step_s": 1, "step_low_s": 1, "step_high_s": 1, "fits": True, "case": "c"}
    for kind, gib in (("allocated", 9), ("torch allocator reserved", 10), ("nvidia-smi style GB", 12)):
        p = cases.Published("id", "s", "", "x", 1.0, "w", memory_gib=10, memory_kind=kind)
        row = command.row_of(p, {}, q)
        assert (row["expected_memory_gib"], row["total_memory_gib"]) == (gib, 14)
