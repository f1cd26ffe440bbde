"""What the figures draw: bar widths, points, texts; and that no input makes them warn or crash."""

import json
import subprocess
import sys

import pytest

from mb import plot
from mb.main import main
from mb import rows as rows_of
from conftest import MIB, ROOT, absent, failed_row, make_place_row, make_row, make_trace, many_rows, metric_of
from mb.figures import bubble, breakdown, gantt, look, memory, placement, rounds

pytestmark = pytest.mark.filterwarnings("error")
OF_ROWS = {"bubble": bubble.bubble, "breakdown": breakdown.breakdown, "memory": memory.memory}


def bars(ax, y=None):
    """(left, width) of the horizontal bars, all or those centred at y."""
    boxes = [patch.get_bbox() for patch in ax.patches]
    return [(b.x0, b.width) for b in boxes if y is None or abs((b.y0 + b.y1) / 2 - y) < 0.01]


def texts(figure):
    found = [figure.get_suptitle(), figure.get_supxlabel()]
    for ax in figure.axes:
        found += [ax.get_title(), ax.get_title("left"), ax.get_xlabel(), ax.get_ylabel()]
        found += [t.get_text() for t in ax.texts]
    return "\n".join(found)


@pytest.mark.parametrize("draw", OF_ROWS.values(), ids=OF_ROWS)
@pytest.mark.parametrize("count", [1, 2, 500])
def test_any_number_of_rows_is_drawn_and_written(draw, count, tmp_path):
    figure = draw(many_rows(count))
    png, svg = look.save(figure, tmp_path, "figure")
    assert png.stat().st_size > 1000 and svg.stat().st_size > 1000


@pytest.mark.parametrize("draw", OF_ROWS.values(), ids=OF_ROWS)
def test_no_row_and_no_measurement_are_told_apart(draw):
    with pytest.raises(look.NoData, match="no row to draw"):
        draw([])
    with pytest.raises(look.NoData, match=r"among 2 \(oom\)"):
        draw([failed_row(), failed_row()])


@pytest.mark.parametrize("draw", OF_ROWS.values(), ids=OF_ROWS)
def test_rows_without_numbers_are_left_out_and_counted(draw):
    assert "Left out, without numbers: 2 (crash, oom)" in texts(
        draw([make_row(), failed_row(), failed_row("crash", "signal 11")]))


@pytest.mark.parametrize("draw", OF_ROWS.values(), ids=OF_ROWS)
def test_footer_names_machine_and_commit(draw):
    rows = [make_row(), make_row()]
    rows[1]["fingerprint"]["id"] = "a" * 16
    rows[1]["build"].update(git=None)
    assert "machine aaaaaaaaaaaaaaaa, fedcba9876543210   commit 0123456789, unknown   2 rows" in texts(draw(rows))


def test_bubble_draws_the_rows_own_numbers_beside_the_closed_form():
    counts = (1, 2, 4, 8, 16)
    rows = [make_row("pp4", m, mode=mode) for m in counts for mode in ("threads", "sim")]
    ax, = bubble.bubble(rows).axes
    by_name = {line.get_label(): line for line in ax.containers}
    theory = ax.lines[0]
    assert list(theory.get_xdata()) == list(counts)
    assert list(theory.get_ydata()) == pytest.approx([100 * 3 / (m + 3) for m in counts])
    assert len(by_name) == 2
    drawn = sorted(list(c.lines[0].get_ydata()) for c in ax.containers)
    assert drawn[0] == pytest.approx([100 * 3 / (m + 3) for m in counts])
    assert drawn[1] == pytest.approx([100 * 3 / (m + 3) + 2 for m in counts])
    assert ax.get_title() == "p = 4 stages" and "n = 5" in texts(ax.figure)


def test_bubble_draws_the_closed_form_of_each_schedule_that_has_one():
    rows = [make_row("pp4", m, schedule=s, mode="sim") for m in (4, 8) for s in ("1f1b", "gpipe", "zb-h1", "zb-v")]
    for row in rows:
        if row["params"]["schedule"] == "zb-h1":
            row["theory"]["bubble_fraction"] /= 2
        if row["params"]["schedule"] == "zb-v":
            row["theory"]["bubble_fraction"] = None
    figure = bubble.bubble(rows)
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == ["Schedule", "gpipe", "zb-h1", "1f1b", "zb-v", "", "Number", "virtual time", "closed form"]
    ax, = figure.axes
    assert len([line for line in ax.lines if line.get_linestyle() == "--"]) == 3
    assert bubble.closed_forms(rows)["zb-h1"] == [(4, pytest.approx(3 / 14)), (8, pytest.approx(3 / 22))]


def test_bubble_draws_the_replay_where_the_row_has_one():
    row = make_row()
    row["metrics"]["bubble_fraction_own_cores"] = metric_of([0.28] * 5, "1")
    ax, = bubble.bubble([row]).axes
    assert sorted(c.lines[0].get_ydata()[0] for c in ax.containers) == pytest.approx([28, 100 * (3 / 11 + 0.02)])
    assert "a core for each rank" in [t.get_text() for t in ax.figure.legends[0].get_texts()]


def test_bubble_has_a_panel_for_each_number_of_stages():
    figure = bubble.bubble([make_row("pp2"), make_row("pp4"), make_row("dp2.pp4"), make_row("dp4")])
    assert [ax.get_title() for ax in figure.axes] == ["p = 2 stages", "p = 4 stages"]
    with pytest.raises(look.NoData, match="no row with a pipeline"):
        bubble.bubble([make_row("dp4")])


@pytest.mark.parametrize("mesh", ["pp4", "dp2.tp2", "dp2.pp2.tp2"])
def test_breakdown_adds_up_to_the_step(mesh):
    row = make_row(mesh)
    ax, = breakdown.breakdown([row]).axes
    main = bars(ax, y=0)
    step_ms = row["breakdown"]["window_ns"] / 5 / 1e6
    assert sum(width for _, width in main) == pytest.approx(step_ms, rel=1e-9)
    assert main[0] == pytest.approx((0, 240))  # compute: 8 micro-batches of 30 ms
    for (left, width), (after, _) in zip(main, main[1:]):
        assert after == pytest.approx(left + width)


def rounds_of(*seconds):
    """Launches of one case whose steps took so long, and a tenth more and less."""
    rows = [make_row("pp4", steps=3) for _ in seconds]
    for row, time in zip(rows, seconds):
        row["metrics"]["step_s"] = metric_of([0.9 * time, time, 1.1 * time], "s")
        row["metrics"]["bubble_fraction"] = metric_of([time / 10] * 3, "1")
        row["breakdown"]["parts"][0]["mean_s"] = time
    return rows


def test_launches_of_a_case_are_one_row_to_a_figure():
    whole, = rounds.as_one(rounds_of(1.0, 4.0, 2.0))
    step = rows_of.metric(whole, "step_s")
    assert (step["value"], step["n"], step["min"], step["max"]) == (2.0, 9, 0.9, 4.4)
    assert whole["breakdown"]["parts"][0]["mean_s"] == pytest.approx(7 / 3) and rounds.count(whole) == 3
    ax, = bubble.bubble(rounds_of(1.0, 4.0, 2.0)).axes
    assert [list(c.lines[0].get_ydata()) for c in ax.containers] == [[20]]
    assert "Cases launched 3 times are drawn once" in texts(ax.figure) and "3 rows" in texts(ax.figure)


def test_launches_of_other_builds_machines_and_failures_stay_apart():
    rows = rounds_of(1.0, 1.0, 1.0)
    rows[1]["build"]["git"] = "f" * 40
    rows[2]["fingerprint"]["id"] = "a" * 16
    assert rounds.as_one([*rows, failed_row(), failed_row()])[:3] == rows
    assert len(rounds.as_one([failed_row(), failed_row()])) == 2
    assert look.numbered(look.labels(rows)) == ["pp4 (1)", "pp4 (2)", "pp4 (3)"]


def test_breakdown_has_a_panel_with_its_own_unit_for_each_kind_of_rows():
    rows = [make_row("pp4"), make_row("pp4", mode="sim")]
    rows[1]["breakdown"]["window_ns"] *= 1000
    upper, lower = breakdown.breakdown(rows).axes
    assert upper.get_title("left") == "gpt-1m, threads" and "(ms)" in upper.get_xlabel() and "(s)" in lower.get_xlabel()


def test_breakdown_draws_hidden_communication_beside_and_does_not_add_it():
    ax, = breakdown.breakdown([make_row("dp4")]).axes
    assert bars(ax, y=0.38) == [pytest.approx((0, 2.0))]
    assert "dp hidden behind compute" in [t.get_text() for t in ax.figure.legends[0].get_texts()]
    ax, = breakdown.breakdown([make_row("pp4")]).axes
    assert bars(ax, y=0.38) == []


def test_breakdown_says_what_it_leaves_out():
    figure = breakdown.breakdown(many_rows(500))
    assert "The first 40 of 500 rows" in texts(figure)
    assert len(figure.axes[0].get_yticklabels()) == 40


def test_memory_stands_in_three_columns():
    ax, = memory.memory([make_row("pp4")]).axes
    assert [t.get_text() for t in ax.get_yticklabels()] == ["closed form", "plan", "measured"]
    assert [width for _, width in bars(ax, y=0)] == pytest.approx([8, 8, 16, 16])
    assert [width for _, width in bars(ax, y=1)] == [width for _, width in bars(ax, y=2)] == pytest.approx(
        [9, 9, 17, 17])
    assert [line.get_xdata()[0] for line in ax.lines] == pytest.approx([48, 49, 49])
    assert ax.get_xlabel() == "memory (MiB)"


def test_memory_that_was_not_measured_is_not_drawn_as_nothing():
    ax, = memory.memory([make_row("pp4", mode="sim")]).axes
    assert bars(ax, y=2) == []
    assert "not measured" in texts(ax.figure)


def test_memory_has_the_capacity_of_a_simulated_device():
    row = make_row("pp4", mode="sim")
    row["machine"] = {"name": "small", "memory_gb": 0.1, "context_gb": 0.005, "library_gb": 0.005}
    ax, = memory.memory([row]).axes
    line = next(line for line in ax.lines if line.get_linestyle() == "--")
    assert line.get_xdata()[0] == pytest.approx(0.09e9 / MIB) and ax.get_xlim()[1] > 0.09e9 / MIB
    assert "49.0 of 85.8" in texts(ax.figure) and "capacity of the device" in [
        t.get_text() for t in ax.figure.legends[0].get_texts()]
    row["machine"]["memory_gb"] = 80  # too far away for a line
    ax, = memory.memory([row]).axes
    assert not [line for line in ax.lines if line.get_linestyle() == "--"] and "49.0 of 76,2" in texts(ax.figure)


def test_memory_tells_how_far_a_measurement_is_off_its_plan():
    row = make_row("pp4")
    row["memory"]["total"]["measured_bytes"] = round(1.02 * row["memory"]["total"]["plan_bytes"])
    assert "(+2.0 % of the plan)" in texts(memory.memory([row]))


def test_large_memory_is_in_gib():
    row = make_row()
    row["memory"]["total"]["plan_bytes"] = 20 * 1024 * MIB
    assert memory.memory([row]).axes[0].get_xlabel() == "memory (GiB)"


def test_labels_name_what_differs():
    rows = [make_row("pp4", 8, "gpipe"), make_row("pp4", 8, "1f1b")]
    assert look.labels(rows) == ["pp4\nschedule=gpipe", "pp4\nschedule=1f1b"]
    assert look.labels(rows[:1]) == ["pp4"]


def test_labels_leave_out_what_follows_from_something_else():
    rows = [make_row("pp4"), make_row("pp4", 16), make_row("pp4", mode="sim")]
    for row in rows:
        virtual = row["params"]["mode"] == "sim"
        row["params"] |= {"dtype": "bf16" if virtual else "fp32", "model": "large" if virtual else "small"}
    assert look.labels(rows)[2] == "pp4\nmodel=large global_batch=8"
    rows[1]["params"]["dtype"] = "bf16"  # now nothing tells it
    assert "dtype=bf16" in look.labels(rows)[1]


def test_words_of_names_are_broken_only_where_a_line_is_too_short_for_them():
    link = "link=intra:8GB/s,2us;inter:0.125GB/s,50us"
    assert look.wrapped(f"zero=1 {link} pp=2", 40) == ["zero=1", link[:40], f"{link[40:]} pp=2"]
    assert look.wrapped("short   one", 40) == ["short   one"]


def test_bars_have_room_for_their_names():
    """Names of many lines must not run into each other."""
    rows = [make_row("pp4", m) for m in (2, 4, 8)]
    low = breakdown.breakdown(rows)
    for at, row in enumerate(rows):
        row["params"] |= {f"key_{k}": f"a_long_value_of_row_{at}" for k in range(6)}
    high = breakdown.breakdown(rows)
    lines = max(1 + name.count("\n") for name in look.labels(rows))
    assert lines >= 6 and (high.get_figheight() - low.get_figheight()) >= 3 * (0.16 * lines - 0.62)


@pytest.mark.parametrize("stages, micro_batches", [(2, 1), (4, 8), (8, 4)])
def test_gantt_shades_exactly_the_bubble(stages, micro_batches):
    spans = gantt.one_pipeline(list(gantt.compute_spans(make_trace(stages, micro_batches))))
    window, empty = gantt.gaps(spans)
    assert window == (0, 3_000_000 * (micro_batches + stages - 1))
    for stage in range(stages):
        assert sum(b - a for a, b in empty[stage]) == 3_000_000 * (stages - 1)
    share = 100 * (stages - 1) / (micro_batches + stages - 1)
    assert f"bubble {share:.1f} % of the pipeline window" in texts(
        gantt.gantt([({"name": "pipe", **make_trace(stages, micro_batches)}, None)]))


def test_gantt_numbers_the_micro_batches_and_nothing_overlaps():
    trace = {"name": "pipe", **make_trace(2, 3)}
    figure = gantt.gantt([(trace, None)])
    assert sorted(t.get_text() for t in figure.axes[0].texts) == sorted("012" * 4)
    spans = gantt.one_pipeline(list(gantt.compute_spans(trace)))
    for stage in (0, 1):
        of_stage = sorted(span for (s, *_), span in gantt.blocks(spans).items() if s == stage)
        assert len(of_stage) == 6
        assert all(a[1] <= b[0] for a, b in zip(of_stage, of_stage[1:]))


def test_gantt_tells_chunks_and_halves_of_the_backward_apart():
    trace = {"name": "pipe", **make_trace(2, 1)}
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    for event, name in zip(events, ("input_grad", "weight_grad", "forward", "forward")):
        event["args"] = {**event["args"], "pass": name, "chunk": int(name != "input_grad")}
    figure = gantt.gantt([(trace, None)])
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"input grad", "weight grad, chunk 1", "forward, chunk 1"} <= set(shown)
    colours = {patch.get_facecolor()[:3] for patch in figure.axes[0].patches if patch.get_linewidth() == 0}
    assert len(colours) >= 3


def test_gantt_keeps_nanoseconds():
    event = make_trace(1, 1)["traceEvents"][1] | {"ts": "9007199254740.993", "dur": "0.001"}
    (_, _, _, _, start, end, _), = gantt.compute_spans({"traceEvents": [event]})
    assert (start, end) == (9007199254740993, 9007199254740994)


def test_gantt_takes_rows_with_their_trace(row_file, tmp_path):
    (tmp_path / "trace.json").write_text(json.dumps(make_trace()))
    path = row_file([{**make_row(), "artifacts": {"trace": "trace.json"}}])
    found = gantt.load([path, tmp_path / "trace.json"])
    assert [row is None for _, row in found] == [False, True]
    assert "pp4 1f1b m=8, measured" in texts(gantt.gantt(found))
    (tmp_path / "trace.json").unlink()
    with pytest.raises(rows_of.RowError, match="its trace trace.json is not there"):
        gantt.load([path])


def test_gantt_without_forwards_or_traces_says_so():
    with pytest.raises(look.NoData, match="no trace to draw"):
        gantt.gantt([])
    with pytest.raises(look.NoData, match="no forward or backward"):
        gantt.gantt([({"name": "x", "traceEvents": []}, None)])


def test_the_same_rows_give_the_same_files(row_file, tmp_path):
    path = str(row_file([make_row("pp4"), make_row("dp4")]))
    for folder in ("one", "two"):
        assert plot.main(["breakdown", path, "--out", str(tmp_path / folder)]) == 0
    for name in ("breakdown.svg", "breakdown.png"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert b"<dc:date>" not in (tmp_path / "one" / "breakdown.svg").read_bytes()


def test_absent_metrics_do_not_stop_a_figure():
    row = make_row()
    for name in ("step_s", "bubble_fraction"):
        row["metrics"][name] = absent(row["metrics"][name]["unit"], "clock went back")
    breakdown.breakdown([row])
    with pytest.raises(look.NoData):
        bubble.bubble([row])


@pytest.mark.parametrize("arguments, code, word", [
    (["breakdown", "none.json"], 4, "none.json: no such file"),
    (["breakdown", "rows.jsonl", "--where", "mesh=pp9"], 4, "no row to draw"),
    (["gantt", "rows.jsonl"], 4, "no trace to draw"),
    (["pie", "rows.jsonl"], 2, "invalid choice"),
    (["breakdown"], 2, "required"),
    (["gantt", "rows.jsonl", "--where", "mesh=pp4"], 2, "cannot choose"),
])
def test_errors_are_one_line_with_an_exit_code(row_file, tmp_path, monkeypatch, capsys, arguments, code, word):
    row_file([make_row()])
    monkeypatch.chdir(tmp_path)
    try:
        returned = main(["plot", *arguments])
    except SystemExit as usage:
        returned = usage.code
    error = capsys.readouterr().err
    assert returned == code and word in error
    if code == 4:
        assert error.startswith("mb plot: ") and error.count("\n") == 1


def test_help_has_examples():
    shown = subprocess.run([sys.executable, "-m", "mb", "plot", "--help"], cwd=ROOT / "scripts", capture_output=True, text=True,
                           check=True).stdout
    assert shown.count("mb plot ") >= 3 and "Exit codes" in shown


def test_placement_draws_orders_from_the_fastest_on_with_their_bytes_and_times():
    figure = placement.placement([make_place_row(("dp,tp",), 64, 3.0, (6.0, 5.0, 7.0)),
                                  make_place_row(("tp,dp", "tp,dp"), 0, 1.5, (2.0, 2.0))])
    left, right = figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["tp,dp\n= tp,dp", "dp,tp"]
    assert bars(left) == [(0, 64)]
    assert [width for _, width in bars(right)] == [1.5, 3.0, 2.0, 6.0]
    assert [t.get_text() for t in right.texts] == ["1.00", "2.00", "1.00", "3.00"]


def test_placement_without_a_run_has_virtual_time_alone():
    _, right = placement.placement([make_place_row(), make_place_row(("dp,tp",), 64, 3.0)]).axes
    assert [width for _, width in bars(right)] == [1.0, 3.0]


def test_placement_wants_rows_of_orders():
    with pytest.raises(look.NoData, match="meshbench place"):
        placement.placement([make_row()])


def test_placement_is_drawn_for_every_case_that_is_there(row_file, tmp_path):
    rows = [make_place_row(), make_place_row(("dp,tp",), 3, 2.0)]
    rows[1]["params"]["mesh"] = "dp4.tp2"
    assert len(placement.placement(rows).axes) == 4
    assert plot.main(["placement", str(row_file(rows)), "--out", str(tmp_path)]) == 0
