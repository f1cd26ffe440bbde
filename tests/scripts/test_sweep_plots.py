"""Figures of what a sweep varies: meshes, devices, bandwidths, time against memory."""

import pytest

from conftest import absent, failed_row, make_row, many_rows, metric_of
from mb.figures import exposure, look, meshes, pareto, scaling, series
from test_plot import texts

pytestmark = pytest.mark.filterwarnings("error")
OOM = [failed_row(), failed_row("oom_predicted")]


def of_mesh(mesh, status="ok", mfu=0.25, **params):
    row = make_row(mesh, mfu=mfu) if status == "ok" else failed_row(status)
    return {**row, "params": {**row["params"], "mesh": mesh, **params}}


def kinds(figure):
    """{gid of a hatched cell: its hatch}."""
    return {patch.get_gid(): patch.get_hatch() for ax in figure.axes for patch in ax.patches}


@pytest.mark.parametrize("draw, count", [(draw, count) for draw in (meshes.meshes, pareto.pareto)
                                         for count in (1, 2, 500)] + [(scaling.scaling, 500)])
def test_any_number_of_rows_is_drawn_and_written(draw, count, tmp_path):
    png, svg = look.save(draw(many_rows(count)), tmp_path, "figure")
    assert png.stat().st_size > 1000 and 1000 < svg.stat().st_size < 800_000


@pytest.mark.parametrize("draw", [meshes.meshes, pareto.pareto, scaling.scaling, exposure.exposure])
def test_no_row_is_said(draw):
    with pytest.raises(look.NoData, match="no row to draw"):
        draw([])


@pytest.mark.parametrize("draw", [pareto.pareto, scaling.scaling, exposure.exposure])
def test_rows_that_all_ran_out_of_memory_are_said(draw):
    with pytest.raises(look.NoData, match=r"among 2 \(oom, oom_predicted\)"):
        draw(OOM)


@pytest.mark.parametrize("draw", [meshes.meshes, pareto.pareto, scaling.scaling])
def test_a_number_that_is_none_is_not_drawn(draw):
    rows = [make_row("dp2"), make_row("dp4"), make_row("dp8")]
    for name in ("step_s", "mfu", "tokens_per_s"):
        rows[1]["metrics"][name] = absent(rows[1]["metrics"][name]["unit"], "clock went back")
        rows[2]["metrics"][name]["value"] = float("nan")
    try:
        assert "nan" not in texts(draw(rows)).lower()
    except look.NoData:
        assert draw is scaling.scaling  # one world is left


def test_meshes_tell_oom_invalid_and_not_run_apart():
    figure = meshes.meshes([of_mesh("tp2.pp2"), of_mesh("tp1.pp2", "oom"), of_mesh("tp2.pp1", "invalid"),
                            of_mesh("tp4.pp4", "crash")])
    found = kinds(figure)
    assert {gid.rsplit(" ", 2)[0] for gid in found if not gid.endswith("x")} >= {"oom", "invalid", "not run", "failed"}
    assert "oom 1 2" in found and "invalid 2 1" in found and "not run 1 1" in found
    hatches = {name: found[gid] for name, gid in (("oom", "oom 1 2"), ("invalid", "invalid 2 1"), ("not", "not run 1 1"))}
    assert len(set(hatches.values())) == 3
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["oom", "failed", "invalid", "not run"]


def test_meshes_take_the_best_of_a_cell_and_never_count_a_missing_one_as_zero():
    rows = [of_mesh("tp2", mfu=0.2), of_mesh("dp2.tp2", mfu=0.4), of_mesh("tp4", mfu=0.3), of_mesh("tp2", "oom"),
            of_mesh("tp8", "cancelled")]
    line, column, *_ = meshes.MAPS["tensor by pipeline"]
    assert meshes.cells(rows, line, column) == {(2, 1): 0.4, (4, 1): 0.3, (8, 1): "not run"}
    figure = meshes.meshes(rows)
    assert "40.0" in texts(figure) and figure.axes[0].collections[0].get_clim() == pytest.approx((30, 40))


def test_rows_are_parted_by_model_and_machine_and_refused_ones_stay_with_their_kind():
    rows = [of_mesh("tp2", mode="sim", machine="h100x8"), of_mesh("tp16", "invalid", mode="sim"), of_mesh("tp2", model="gpt-10m"),
            of_mesh("tp2", mode="sim", machine="a100x8")]
    assert {name: len(of) for name, of in series.kinds(rows).items()} == {
        "gpt-1m, virtual time, h100x8": 2, "gpt-10m, threads": 1, "gpt-1m, virtual time, a100x8": 1}
    titles = [ax.get_title("left") for ax in meshes.meshes(rows).axes]
    assert "gpt-10m, threads\ntensor by pipeline" in titles


def test_kinds_of_one_mesh_are_told_from_others():
    rows = [make_row("pp4"), make_row("pp2"), make_row("pp4", mode="sim")]
    assert meshes.rows_with_cells(rows) == rows[:2] and meshes.rows_with_cells(rows[1:]) == []


def test_meshes_of_rows_that_all_failed_have_no_colour_bar():
    assert len(meshes.meshes([of_mesh("tp2", "oom"), of_mesh("tp4", "invalid")]).axes) == 2


def test_strong_scaling_keeps_the_batch_and_weak_scaling_the_batch_of_a_device():
    rows = [of_mesh(f"dp{n}", global_batch=batch) for n in (1, 2, 4) for batch in (8, 8 * n)]
    found = scaling.curves(rows)
    assert {name: list(worlds) for name, worlds in found["strong"].items()} == {"batch 8": [1, 2, 4]}
    assert {name: list(worlds) for name, worlds in found["weak"].items()} == {"batch 8 a device": [1, 2, 4]}


def test_scaling_draws_medians_the_ideal_line_and_who_ran_out_of_memory():
    rows = [of_mesh(f"dp{n}", mfu=share, global_batch=8) for n, share in ((2, 0.5), (4, 0.4))]
    for row, rate in zip(rows, (100, 160)):
        row["metrics"]["tokens_per_s"] = metric_of([rate], "token/s")
    rows.append(of_mesh("dp1", "oom", global_batch=8))
    upper, lower = scaling.scaling(rows).axes
    drawn = {tuple(line.get_xdata()): list(line.get_ydata()) for line in upper.lines}
    assert drawn[1, 2, 4] == [50, 100, 200] and drawn[2, 4] == [100, 160]
    low = {tuple(line.get_xdata()): list(line.get_ydata()) for line in lower.lines}
    assert low[2, 4] == [50, 40] and (1,) in low


def predicted_at(devices, shares):
    row = of_mesh(f"dp{devices}", mfu=0.4, mode="sim", global_batch=8 * devices)
    row["suite"] = "scaling"
    row["metrics"]["tokens_per_s"] = metric_of([100 * devices], "token/s")
    row["metrics"]["step_s"] = metric_of([1.0], "s")
    row["prediction"] = {"step_low_s": 0.8, "step_high_s": 1.25}
    row["explained"] = {"parts": [{"kind": kind, "name": name, "seconds": share, "share": share}
                                  for (kind, name), share in shares.items()]}
    return row


def test_scaling_of_predictions_draws_their_intervals_and_what_steps_are_made_of():
    few = {("compute", "matmul"): 0.7, ("compute", "other"): 0.2, ("exposed", "dp"): 0.1}
    many = {("compute", "matmul"): 0.5, ("exposed", "dp"): 0.3, ("wait", None): 0.2}
    upper, _, shares = scaling.scaling([predicted_at(2, few), predicted_at(4, many)]).axes
    bar = upper.containers[0].lines[2][0].get_segments()
    assert [list(ends[:, 1]) for ends in bar] == [[160, 250], [320, 500]]
    tops = [max(stack.get_paths()[0].vertices[:, 1]) for stack in shares.collections]
    assert tops == pytest.approx([90, 100 if len(tops) == 2 else 90, 100][:len(tops)], abs=15) and len(tops) == 3


def test_scaling_wants_rows_that_differ_in_devices_alone():
    with pytest.raises(look.NoData, match="global_batch="):
        scaling.scaling([make_row("dp2")])


def test_a_pareto_front_holds_what_nothing_beats_and_all_that_tie():
    points = [(1, 5), (2, 3), (2, 3), (2, 4), (3, 3), (4, 1), (5, 1)]
    assert pareto.front(points) == [0, 1, 2, 5]
    assert pareto.front([(1, 1)]) == [0]


def test_pareto_draws_the_front_by_memory():
    rows = [make_row("dp2", m) for m in (1, 2, 4)]
    for row, rate in zip(rows, (1e3, 2e3, 1.5e3)):
        row["metrics"]["tokens_per_s"] = metric_of([rate], "token/s")
    ax, = pareto.pareto(rows).axes
    front = next(line for line in ax.lines if line.get_label() == "front")
    assert list(front.get_xdata()) == [34, 36] and list(front.get_ydata()) == [1000, 500]
    assert ax.get_ylabel() == "time for a million tokens (s)"


def linked(rate, comm_s, exposed, **params):
    row = make_row("dp4", mode="sim")
    row["machine"] = {"name": "h100x8", "nic_gb_per_s": rate, "link_gb_per_s": 450}
    row["params"].update(params)
    row["metrics"].update(comm_s=metric_of([comm_s], "s"), compute_s=metric_of([1.0], "s"),
                          exposed_fraction=metric_of([exposed], "1"), overlap_ratio=metric_of([1 - exposed], "1"))
    return row


def test_exposure_is_drawn_over_the_bandwidth_that_differs_and_marks_the_crossover():
    figure = exposure.exposure([linked(400, 0.25, 0.1), linked(25, 4.0, 0.8), linked(100, 1.0, 0.4)])
    left, right = figure.axes
    assert [list(c.lines[0].get_ydata()) for c in left.containers] == [[80, 40, 10]]
    assert [list(c.lines[0].get_ydata()) for c in right.containers] == [pytest.approx([20, 60, 90])]
    assert "100" in [t.get_text() for t in left.texts]
    assert left.get_xlabel() == "bandwidth between nodes, one way (GB/s)"


def test_exposure_has_panels_for_each_kind_of_rows_named_by_what_differs_within():
    rows = [linked(rate, 1.0, 0.4, machine="h100x8", zero=1) for rate in (25, 400)]
    rows += [{**make_row(mesh), "machine": {}} for mesh in ("dp4", "dp2") for _ in range(4)]
    for at, row in enumerate(rows[2:]):
        row["params"] |= {"link": f"intra:8GB/s;inter:{(1, 8)[at % 2]}GB/s", "zero": 0, "global_batch": 32}
    for row in rows:
        row["case"] += f" zero={row['params']['zero']}"
    figure = exposure.exposure(rows)
    titles = [ax.get_title("left") for ax in figure.axes]
    assert titles == ["gpt-1m, virtual time, h100x8\nmesh=dp4 schedule=1f1b zero=1", "", "gpt-1m, threads\nschedule=1f1b zero=0", ""]
    names = [[text.get_text() for text in ax.get_legend().get_texts()] for ax in figure.axes[1::2]]
    assert names == [["dp4"], ["mesh=dp4", "mesh=dp2"]]
    assert "Cases launched 2 times are drawn once" in figure.get_supxlabel()


@pytest.mark.parametrize("points, where", [
    ([(1, 4.0, 1.0), (16, 0.25, 1.0)], 4.0), ([(1, 0.5, 1.0), (2, 0.2, 1.0)], None), ([(1, 0.0, 1.0)], None)])
def test_the_crossover_lies_where_communication_takes_as_long_as_computation(points, where):
    assert exposure.crossover(points) == (where and pytest.approx(where))


def test_exposure_reads_shaped_links_and_refuses_rows_of_one_bandwidth():
    rows = [linked(50, 1, 0.5, link=f"intra:4GB/s,2us;inter:{rate},1ms") for rate in ("0.02GB/s", "40MB/s")]
    name, rate = exposure.bandwidth_of(rows)
    assert name == "between nodes" and [rate(row) for row in rows] == pytest.approx([0.02, 0.04])
    with pytest.raises(look.NoData, match="do not differ in the bandwidth"):
        exposure.exposure([linked(50, 1, 0.5)] * 2)


def test_exposure_leaves_out_what_has_one_bandwidth():
    """Rows of two machines differ in bandwidth too, but not alone."""
    rows = [linked(25, 4.0, 0.8, machine="a"), linked(100, 1.0, 0.4, machine="b")]
    with pytest.raises(look.NoData, match="differ in the bandwidth of a link alone"):
        exposure.exposure(rows)
    figure = exposure.exposure([*rows, linked(400, 0.25, 0.1, machine="b")])
    assert [list(c.lines[0].get_ydata()) for c in figure.axes[0].containers] == [[40, 10]]
    assert "Left out, of one bandwidth: 1 line." in figure.get_supxlabel()


def test_lines_are_named_by_what_differs():
    rows = [make_row("dp4"), make_row("dp2"), make_row("dp4", schedule="gpipe")]
    assert {name: len(group) for name, group in series.split(rows, ("mesh", "global_batch")).items()} == {
        "schedule=1f1b": 2, "schedule=gpipe": 1}
    assert list(series.split(rows[:1], ())) == [""]
