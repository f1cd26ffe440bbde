"""Figures of collectives on small rows whose numbers are easy to check."""

import pytest

from mb import plot
from mb import rows as rows_of
from conftest import MIB, failed_row, make_coll_row, make_row
from mb.figures import coll_rows, collectives, heat_maps, look

pytestmark = pytest.mark.filterwarnings("error")
FIGURES = {"busbw": collectives.busbw, "latency": collectives.latency, "ceiling": collectives.ceiling, "completion": collectives.completion,
           "skew": heat_maps.skew, "interference": heat_maps.interference}


def any_row(**fields):
    """A row that every figure of collectives can draw."""
    return make_coll_row(ceiling=2e9, raw=True, beside="dp", **fields)


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def curves(ax):
    """{first point: points} of the solid and dotted lines that have points."""
    return [list(zip(line.get_xdata(), line.get_ydata())) for line in ax.lines
            if len(line.get_xdata()) and line.get_linestyle() == "-"]


def texts(ax):
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_from_a_file(name, row_file, tmp_path):
    path = row_file([any_row(size=MIB << k, operation=op) for k in range(3) for op in ("all_reduce", "all_gather")])
    assert plot.main([name, str(path), "--out", str(tmp_path)]) == 0
    assert (tmp_path / f"{name}.png").stat().st_size > 1000 and (tmp_path / f"{name}.svg").stat().st_size > 1000


@pytest.mark.parametrize("name, rows, message", [
    *((name, [make_row()], "no row of a collective; make some with meshbench coll") for name in FIGURES),
    *((name, [failed_row()], r"no row of status ok among 1 \(oom\)") for name in FIGURES),
    *((name, [], "no row to draw") for name in FIGURES),
    ("busbw", [make_coll_row("barrier", None)], "no row has busbw"),
    ("ceiling", [make_coll_row()], "no row has a ceiling"),
    ("completion", [make_coll_row()], "--raw"),
    ("skew", [make_coll_row(ranks=(0,))], "mesh=dp2 or more"),
    ("interference", [make_coll_row()], "--matrix"),
    ("skew", [make_coll_row(), make_coll_row()], "all_reduce, group 0 at 1M was measured more than once"),
    ("interference", [any_row(), any_row()], "beside that over dp, group 0 was measured more than once"),
])
def test_rows_that_cannot_be_drawn_are_refused_with_what_would_do(name, rows, message):
    with pytest.raises(look.NoData, match=message):
        FIGURES[name](rows)


@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
def test_what_is_left_out_is_told(draw):
    figure = draw([any_row(), make_row(), failed_row()])
    assert "Left out, of other suites: 1." in figure.get_supxlabel()
    assert "Left out, without numbers: 1 (oom)." in figure.get_supxlabel()
    assert "1 row" in figure.get_supxlabel() and "machine fedcba9876543210" in figure.get_supxlabel()


def test_rows_of_one_kind_are_a_line_an_operation():
    figure = collectives.busbw([make_coll_row(op, MIB << k, (k + 1) * rate) for k in range(3)
                                for op, rate in (("all_reduce", 1e9), ("all_gather", 5e8))])
    ax, = figure.axes
    assert legend(figure) == ["all_reduce", "all_gather"]
    assert curves(ax) == [[(MIB, 1), (2 * MIB, 2), (4 * MIB, 3)], [(MIB, 0.5), (2 * MIB, 1), (4 * MIB, 1.5)]]
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_ylabel()) == ("log", "log", "busbw (GB/s)")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1M", "2M", "4M"]
    assert figure.get_suptitle().replace("\n", " ") == "Bus bandwidth of collectives: threads, mesh dp2.tp2, over dp"


def test_rows_that_differ_else_are_a_panel_an_operation_and_a_line_a_difference():
    figure = collectives.busbw([make_coll_row(op, library=library, group=group, ranks=(group, group + 2))
                                for op in ("all_reduce", "all_gather") for library in (None, "MPICH")
                                for group in (0, 1)])
    assert [ax.get_title() for ax in figure.axes] == ["all_reduce", "all_gather"]
    assert legend(figure) == ["threads, group 0 (ranks 0 2)", "threads, group 1 (ranks 1 3)",
                              "MPICH, group 0 (ranks 0 2)", "MPICH, group 1 (ranks 1 3)"]


@pytest.mark.parametrize("latency, rate", [(5.0, 1e-3), (0.0, 2.0)])
def test_a_fit_finds_the_latency_and_the_rate_of_a_line(latency, rate):
    points = [(size, latency + rate * size) for size in (1, 64, 4096, 1 << 20)]
    assert collectives.fit(points) == pytest.approx((latency, rate), abs=1e-9)
    assert collectives.fit(points[:2]) is None and collectives.fit([(k, 1.0) for k in (1, 2, 3)]) is None
    start, slope = collectives.fit([(1, 1e-6), (2, 2.0), (4, 5.0)])
    assert start == 0 and slope > 0  # a latency is never below 0


def test_times_are_drawn_in_full_with_what_fits_them():
    rows = [make_coll_row(size=1024 << k) for k in range(4)]
    for row in rows:
        time = 1e-5 + row["coll"]["bytes"] / 2e9
        row["coll"]["completion"] |= {"p50_s": time, "low_s": 0.9 * time, "high_s": 1.1 * time}
    ax, = collectives.latency(rows).axes
    times = [1e6 * row["coll"]["completion"]["p50_s"] for row in rows]
    assert list(ax.lines[0].get_ydata()) == pytest.approx(times) and ax.get_yscale() == "log"
    assert texts(ax) == ["10 us + size / 2 GB/s"] and ax.get_ylabel() == "time (us)"


def test_every_line_of_a_panel_has_a_look_of_its_own():
    figure = collectives.busbw([make_coll_row(size=size, group=g, ranks=(2 * g, 2 * g + 1)) for g in range(12)
                                for size in (MIB, 2 * MIB)])
    drawn = [(line.get_color(), line.get_marker(), line.get_linestyle()) for line in figure.axes[0].lines]
    assert len(set(drawn)) == 12 and len({marker for _, marker, _ in drawn}) == 12


def test_the_band_is_the_interval_of_the_median_and_the_ceiling_is_drawn():
    figure = collectives.busbw([make_coll_row(size=MIB << k, ceiling=4e9) for k in range(2)])
    ax, = figure.axes
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (min(heights), max(heights)) == pytest.approx((1 / 1.1, 1.1))
    assert [list(line.get_ydata()) for line in ax.lines if line.get_linestyle() == "--"] == [[4, 4], []]
    assert legend(figure) == ["all_reduce", "its ceiling"]


def test_bands_of_many_lines_are_left_out():
    rows = [make_coll_row(group=g, ranks=(2 * g, 2 * g + 1)) for g in range(5)]
    assert len(collectives.busbw(rows[:4]).axes[0].collections) == 4
    assert len(collectives.busbw(rows).axes[0].collections) == 0


def test_runs_in_turn_are_one_line_through_the_middle():
    ax, = collectives.busbw([make_coll_row(busbw=rate) for rate in (1e9, 5e9, 2e9)]).axes
    assert curves(ax) == [[(MIB, 2)]]
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (min(heights), max(heights)) == pytest.approx((1 / 1.1, 5.5))


def test_shares_of_the_ceiling_are_in_percent():
    ax, = collectives.ceiling([make_coll_row(ceiling=4e9), make_coll_row(size=2 * MIB, ceiling=2e9)]).axes
    assert curves(ax) == [[(MIB, 25), (2 * MIB, 50)]] and ax.get_ylim()[1] >= 100


def test_too_many_lines_are_cut_and_told():
    figure = collectives.busbw([make_coll_row(group=g, ranks=(2 * g, 2 * g + 1)) for g in range(40)])
    assert len(legend(figure)) == 12 and "The first 12 of 40 lines of all_reduce" in figure.get_supxlabel()


def test_completion_shows_the_tail_of_every_operation():
    samples = [1e-3] * 1980 + [2e-3] * 18 + [0.1, 0.2]
    figure = collectives.completion([make_coll_row(samples=samples, raw=True)])
    ax, = figure.axes
    curve = ax.lines[0]
    assert (curve.get_ydata()[0], curve.get_ydata()[-1]) == (1, 1 / 2000)
    assert (curve.get_xdata()[0], curve.get_xdata()[-1]) == pytest.approx((1, 200))
    marks = {line.get_marker(): (line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines[1:3]}
    assert marks == {"^": pytest.approx((2, 0.01)), "*": pytest.approx((100, 0.001))}
    shown = [t.get_text() for t in ax.get_yticklabels()]
    assert shown == ["fastest", "p50", "p90", "p99", "p99.9"] and ax.get_ylim()[0] > ax.get_ylim()[1]
    assert legend(figure) == ["1M"] and "2000 to 2000 operations" in figure.get_supxlabel()


def test_percentiles_that_no_operation_lies_beyond_are_not_marked():
    ax, = collectives.completion([make_coll_row(samples=[1e-3] * 99, raw=True)]).axes
    assert not {"^", "*"} & {line.get_marker() for line in ax.lines if len(line.get_xdata()) == 1}


def test_skew_names_who_arrives_last_who_waits_and_who_is_slow():
    figure = heat_maps.skew([make_coll_row(size=size, group=g, ranks=(2 * g, 2 * g + 1), late=late,
                                           waits={2: 2e-3})
                             for size in (MIB, 2 * MIB) for g, late in ((0, None), (1, 3))])
    last, waits, slow = figure.axes[:3]
    assert [t.get_text() for t in last.get_yticklabels()] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert [t.get_text() for t in last.get_xticklabels()] == ["1M", "2M"]
    assert last.images[0].get_array().tolist() == [[0, 0], [0, 0], [0, 0], [100, 100]]
    assert waits.images[0].get_array()[:, 0].tolist() == [0, 0, 2, 0] and "(ms)" in waits.get_title("left")
    assert slow.images[0].get_array()[:, 0].tolist() == pytest.approx([2 / 3, 4 / 3, 2 / 3, 4 / 3])
    assert texts(last) == ["0"] * 6 + ["100"] * 2
    assert [patch.get_xy() for patch in last.patches] == [(-0.46, 2.56), (0.54, 2.56)]


@pytest.mark.parametrize("size, text", [(None, "no size"), (8, "8"), (1020, "1020"), (1536, "1.5K"),
                                        (MIB - 8, "1M"), (64 * MIB, "64M"), (2**40, "1T")])
def test_sizes_are_told_as_a_case_takes_them(size, text):
    assert coll_rows.size_text(size) == text


def test_skew_of_a_barrier_has_no_size():
    assert [t.get_text() for t in heat_maps.skew([make_coll_row("barrier", None)]).axes[0].get_xticklabels()] == [
        "no size"]


def test_interference_is_a_matrix_of_axes_with_the_slowest_group():
    slow = {("tp", "tp"): (1.0, 2.0), ("tp", "dp"): (3.0, 2.5), ("dp", "tp"): (1.5, 1.5), ("dp", "dp"): (0.9, 0.8)}
    figure = heat_maps.interference([make_coll_row(axis=axis, beside=other, group=g, slow_down=times[g])
                                     for (axis, other), times in slow.items() for g in (0, 1)])
    ax = figure.axes[0]
    assert ax.images[0].get_array().tolist() == [[2, 3], [1.5, 0.9]]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["over tp", "over dp"]
    assert texts(ax)[1] == "3.00\n2.50 to 3.00" and ax.get_title() == "all_reduce of 1M"


def test_a_pair_that_is_missing_is_not_a_number():
    ax = heat_maps.interference([make_coll_row(axis="tp", beside="dp"), make_coll_row(axis="dp", beside="tp")]).axes[0]
    assert texts(ax) == ["2.00", "-", "-", "2.00"]


def test_made_up_rows_are_of_the_schema(row_file):
    assert len(rows_of.load([row_file([any_row(late=1), make_coll_row("barrier", None, library="Open MPI")])])) == 2
