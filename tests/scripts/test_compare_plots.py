"""Figures that hold one thing to another: prediction, base, history, ranks, roofs."""

import json

import pytest

from conftest import failed_row, make_coll_row, make_row, many_rows, metric_of
from mb import plot
from mb.figures import forest, history, look, predicted, roofline, straggler, waterfall
from test_plot import bars, texts

pytestmark = pytest.mark.filterwarnings("error")


def ranked(row):
    row["ranks"] = {name: {"unit": "s", "min": 1.0, "min_rank": 0, "median": 2.0, "max": 4.0, "max_rank": 3}
                    for name in straggler.METRICS}
    return row


def launches(times, machine="a" * 16, start=0):
    rows = []
    for k, time in enumerate(times, start):
        row = make_row()
        row["metrics"]["step_s"] = metric_of([time], "s")
        row["time_utc"] = f"2026-{1 + k // 28:02d}-{1 + k % 28:02d}T00:00:00Z"
        row["fingerprint"] = {**row["fingerprint"], "id": machine}
        row["build"]["git"] = f"{k:040x}"
        rows.append(row)
    return rows


@pytest.mark.parametrize("draw", [predicted.predicted, waterfall.waterfall, straggler.straggler, history.history])
def test_no_row_and_no_measurement_are_told_apart(draw):
    with pytest.raises(look.NoData, match="no row to draw"):
        draw([])
    with pytest.raises(look.NoData, match=r"among 2 \(oom\)"):
        draw([failed_row(), failed_row()])


@pytest.mark.parametrize("draw", [predicted.predicted, straggler.straggler])
@pytest.mark.parametrize("count", [1, 2, 500])
def test_any_number_of_rows_is_drawn(draw, count, tmp_path):
    assert all(path.stat().st_size > 1000 for path in look.save(draw([ranked(r) for r in many_rows(count)]), tmp_path, "f"))


def test_predictions_meet_measurements_of_the_same_case():
    measured, virtual = make_row("dp2"), make_row("dp2", mode="sim")
    virtual["metrics"]["step_s"] = metric_of([1.1 * measured["metrics"]["step_s"]["value"]], "s")
    virtual["params"]["machine"] = "h100x8"
    found = predicted.pairs([measured, virtual, make_row("dp4", mode="sim")])
    (guess, seen, low, high), = found["step"]["virtual time, h100x8"]
    assert guess == pytest.approx(1.1 * seen) and low < seen < high
    assert predicted.mape(found["step"]["virtual time, h100x8"]) == pytest.approx(0.1)
    assert set(found["memory"]) == {"closed form", "plan"} and predicted.mape(found["memory"]["plan"]) == 0
    figure = predicted.predicted([measured, virtual])
    assert [ax.get_xlabel() for ax in figure.axes] == ["measured step time (ms)", "measured peak memory of a rank (MiB)"]
    assert any("n = 1, MAPE 10 %" in t.get_text() for t in figure.axes[0].get_legend().get_texts())


def test_collectives_are_held_to_alpha_beta():
    row = make_coll_row()
    row["coll"]["expected"]["seconds"] = 2e-3
    (guess, seen, low, high), = predicted.pairs([row])["collective"]["alpha-beta"]
    assert (guess, seen) == (2e-3, 1e-3) and low == pytest.approx(1e-3 / 1.1)


def test_predictions_without_measurements_are_said():
    with pytest.raises(look.NoData, match="both a prediction and a measurement"):
        predicted.predicted([make_row(mode="sim")])


def test_a_waterfall_adds_up_from_one_step_to_the_other():
    base, candidate = make_row("pp4", 8), make_row("pp4", 16)
    ax, = waterfall.waterfall([base, candidate]).axes
    (_, start), *changes, (_, end) = bars(ax)
    assert start == pytest.approx(1e3 * sum(waterfall.parts(base).values()))
    assert end == pytest.approx(1e3 * sum(waterfall.parts(candidate).values()))
    assert start + sum(width for _, width in changes) == pytest.approx(end)
    assert "+ is slower" in texts(ax.figure)
    assert waterfall.changes(base, candidate)[0] == ("compute", pytest.approx(0.24))


def test_a_waterfall_of_equal_steps_has_no_changes():
    assert waterfall.changes(make_row(), make_row()) == []
    assert len(bars(waterfall.waterfall([make_row(), make_row()]).axes[0])) == 2


@pytest.mark.parametrize("count", [1, 3, 500])
def test_a_waterfall_wants_two_rows(count):
    with pytest.raises(look.NoData, match="give two rows"):
        waterfall.waterfall(many_rows(count))


def test_stragglers_are_drawn_from_the_least_to_the_most_with_their_ranks():
    figure = straggler.straggler([ranked(make_row())])
    assert len(figure.axes) == 3
    assert list(figure.axes[0].lines[0].get_xdata()) == [1, 4] and list(figure.axes[0].lines[2].get_xdata()) == [2]
    assert {t.get_text() for t in figure.axes[0].texts} == {"0", "3"}
    with pytest.raises(look.NoData, match="no row has times of its ranks"):
        straggler.straggler([make_row()])


def test_history_never_joins_two_machines_and_marks_where_they_change():
    rows = launches([1, 1.01], "a" * 16) + launches([2, 2.01, 2.02], "b" * 16, 2) + launches([1.02], "a" * 16, 5)
    assert history.machines(rows) == [(0, 2, "a" * 16), (2, 5, "b" * 16), (5, 6, "a" * 16)]
    ax, = history.history(rows[::-1]).axes
    joined = [list(container.lines[0].get_xdata()) for container in ax.containers]
    assert joined == [[0, 1], [2, 3, 4], [5]]
    assert [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"] == [1.5, 4.5]


def test_history_marks_a_change_of_level_with_its_commit():
    rows = launches([1 + 0.01 * (k % 3) for k in range(12)] + [1.3 + 0.01 * (k % 3) for k in range(12)])
    assert history.changes(rows) == [12]
    ax, = history.history(rows).axes
    assert [t.get_text() for t in ax.texts] == [f"{12:040x}"[:10]]


def test_history_wants_a_case_measured_twice():
    with pytest.raises(look.NoData, match="no case was measured twice"):
        history.history([make_row("dp2"), make_row("dp4")])
    assert len(history.history(many_rows(500)).axes) == history.MOST_PANELS


def finding(verdict="REGRESSED", worse=0.08, **more):
    return {"case": "model=gpt-1m mesh=dp2", "metric": "step_s", "verdict": verdict, "scale": "ratio", "unit": "s",
            "base": 1.0, "candidate": 1 + worse, "worse": worse, **more}


def test_the_forest_draws_effects_intervals_and_verdicts():
    figure = forest.forest([finding(low=0.05, high=0.11, n=24), finding("IMPROVED", -0.2), finding("MISSING", 0) | {
        "worse": None}, finding("CHANGED", 3.0) | {"scale": "difference"}])
    ax, = figure.axes
    assert [list(c.lines[0].get_xdata()) for c in ax.containers] == [[8], [-20]]
    assert [[round(x, 9) for x in segment[:, 0]] for segment in ax.containers[0].lines[2][0].get_segments()] == [[5, 11]]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["REGRESSED", "IMPROVED"]
    assert "not drawn: 2" in texts(figure) and "n = 24 pairs" in texts(figure)
    assert len({look_of for look_of in forest.LOOKS.values()}) == len(forest.LOOKS)


@pytest.mark.parametrize("count", [1, 2, 500])
def test_any_number_of_findings_is_drawn(count, tmp_path):
    figure = forest.forest([finding(worse=0.001 * k - 0.1) for k in range(count)])
    assert len(figure.axes[0].containers) == min(count, forest.MOST)
    look.save(figure, tmp_path, "forest")


def test_findings_without_effects_or_none_at_all_are_said():
    with pytest.raises(look.NoData, match="no finding to draw"):
        forest.forest([])
    with pytest.raises(look.NoData, match="none of 1 findings has an effect"):
        forest.forest([finding("MISSING") | {"worse": None}])


def test_the_forest_reads_what_the_gate_prints(tmp_path, capsys):
    path = tmp_path / "verdict.json"
    path.write_text(json.dumps({"exit": 1, "counts": {}, "findings": [finding()]}))
    assert plot.main(["forest", str(path), "--out", str(tmp_path)]) == 0
    for text in ("[]", "{", '{"rows": 1}'):
        path.write_text(text)
        with pytest.raises(Exception, match="not what mb gate --json prints"):
            plot.main(["forest", str(path), "--out", str(tmp_path)])


def bench(name, **counters):
    return {"name": name, **counters}


BENCHES = [bench("ceiling/fma/fp32/iterations:1", GFLOP_per_s=100.0), bench("ceiling/triad/iterations:1", GB_per_s=10.0),
           bench("op/gpt/matmul_8", GFLOP_per_s=80.0, GB_per_s=4.0), bench("op/gpt/add", GB_per_s=9.0)]


def on_machine(mesh="dp2.tp2"):
    row = make_row(mesh, mode="sim")
    row["machine"] = {"name": "h100x8", "nic_gb_per_s": 50, "link_gb_per_s": 450}
    row["metrics"]["hardware_flops"] = metric_of([4e12], "FLOP")
    row["collectives"] = [
        {"axis": "tp", "kind": "all_reduce", "group_size": 2, "count": 6, "link": "intra", "link_bytes": 1e9},
        {"axis": "dp", "kind": "all_reduce", "group_size": 2, "count": 2, "link": "mixed", "link_bytes": 1e9},
        {"axis": "pp", "kind": "send_recv", "group_size": 2, "count": 4, "link": "inter", "link_bytes": 1e9}]
    return row


def test_the_roofline_of_operations_has_the_ceilings_that_were_measured():
    assert roofline.operations(BENCHES) == [("matmul_8", 20.0, 80.0)]
    ax, = roofline.roofline((BENCHES, [])).axes
    roof = next(line for line in ax.lines if len(line.get_xdata()) == 3)
    assert list(roof.get_xdata())[1] == 10 and list(roof.get_ydata())[1:] == [100, 100]


def test_the_roofline_of_steps_counts_what_a_rank_sends_over_each_link():
    row = on_machine()
    assert roofline.sent_over(row) == {("within nodes", "link_gb_per_s"): 3e9, ("between nodes", "nic_gb_per_s"): 2e9}
    within, between = roofline.steps([row])
    step = row["metrics"]["step_s"]["value"]
    assert within[1:] == ("within nodes", 1e12 / 3e9, 1e12 / step, 1e11, 450e9)
    assert between[2] == 1e12 / 2e9 and between[5] == 50e9
    assert len(roofline.roofline((BENCHES, [row])).axes) == 2


def test_the_roofline_reads_benches_and_rows(row_file, tmp_path):
    (tmp_path / "ops.json").write_text(json.dumps({"context": {}, "benchmarks": BENCHES}))
    benches, rows = roofline.load([tmp_path / "ops.json", row_file([make_row()])])
    assert len(benches) == 4 and len(rows) == 1
    with pytest.raises(look.NoData, match="no operation of ops_bench"):
        roofline.roofline(([], rows))
