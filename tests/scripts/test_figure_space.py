"""Figures keep their parts apart: rows of two worlds, many launches, many lines, long names; nothing warns, is cut, or overlaps.

Some 20 s: whether a figure has room shows only when it is drawn.
"""

import itertools
import warnings

import pytest

from conftest import failed_row, make_coll_row, make_place_row, make_row, make_trace, metric_of
from mb import plot
from mb.figures import look

LONG = "a_value_that_is_much_longer_than_any_legend_or_label_has_room_for"


def step(mesh, mode="threads", rate=50, **params):
    """A step over links of a rate; of virtual time on a machine, of a larger model."""
    row = make_row(mesh, params.pop("micro_batches", 8), params.pop("schedule", "1f1b"), mode)
    virtual = mode == "sim"
    row["params"] |= {"model": "gpt3-13b" if virtual else "gpt-1m", **params}
    row["metrics"]["overlap_ratio"] = metric_of([0.1, 0.2, 0.3], "1")
    row["metrics"]["hardware_flops"] = metric_of([1e15], "FLOP")
    row["ranks"] = {name: {"min": 0.1, "median": 0.2, "max": 0.3, "min_rank": 0, "max_rank": 1}
                    for name in ("compute_s", "exposed_comm_s", "idle_s")}
    if virtual:
        row["params"]["machine"] = "h100x8"
        row["machine"] = {"name": "h100x8", "nic_gb_per_s": rate, "link_gb_per_s": 450, "memory_gb": 80}
        row["params"]["machine.nic_gb_per_s"] = rate
        row["collectives"] = [{"kind": "all_reduce", "link": "inter", "link_bytes": 1e9, "count": 4, "group_size": 4}]
    else:
        row["params"]["link"] = f"intra:8GB/s,2us;inter:{rate}GB/s,9us"
    row["case"] = " ".join(f"{key}={value}" for key, value in row["params"].items())
    return row


def two_worlds():
    """Three launches of each case on threads, one in virtual time."""
    for schedule, mesh, rate in itertools.product(("1f1b", "gpipe"), ("pp2.tp2", "dp2.pp2", "dp4"), (1, 8)):
        for launch in range(3):
            row = step(mesh, rate=rate, schedule=schedule, ranks_per_node=2)
            row["metrics"]["step_s"] = metric_of([1.0 + launch / 10], "s")
            yield row
    for mesh, rate in itertools.product(("pp4.tp8", "dp8.tp8", "dp2.pp4.tp2"), (25, 400)):
        yield step(mesh, "sim", rate)
    yield {**failed_row(), "params": {**step("dp8", "sim")["params"]}}


def many_lines():
    """More lines than can be told apart, in both worlds."""
    for at, mode, rate, micro_batches in itertools.product(range(13), ("threads", "sim"), (1, 8), (2, 4)):
        row = step(("dp2.pp2", "dp4.pp2")[micro_batches == 4], mode, rate, micro_batches=micro_batches)
        row["params"] |= {"global_batch": 16, "bucket": f"{at}MiB"}
        row["metrics"]["peak_bytes"] = metric_of([(40 - at) * 2**20], "B")
        row["metrics"]["tokens_per_s"] = metric_of([2000 - 10 * at], "token/s")
        yield row


def long_names():
    for row in many_lines():
        row["params"] |= {f"key_{k}": f"{row['params']['bucket']}_{LONG}" for k in range(4)}
        row["params"]["model"] = f"@{LONG}/{LONG}.json"
        row["case"] += f" key={LONG} " * 4
        yield row


STEPS = {"one row": lambda: [step("dp2.pp2")], "two worlds": two_worlds, "long names": long_names}
OF_STEPS = ("bubble", "breakdown", "memory", "meshes", "scaling", "exposure", "pareto", "predicted", "straggler", "history",
            "waterfall", "roofline")
OF_COLLS = ("busbw", "latency", "ceiling", "completion", "skew", "interference")


def colls(count):
    """Rows of two operations, of several carriers and groups, with long names."""
    rows = []
    for operation, at, size in itertools.product(("all_reduce", "all_to_all_v"), range(count), (2**10, 2**20, 2**30)):
        rows.append(make_coll_row(operation, size, group=at, ranks=range(4 * at, 4 * at + 4), library=f"An MPI {LONG} {at % 3}",
                                  ceiling=2e9, raw=True, beside="dp.cp", samples=[1e-3 * (1 + at + k / 99) for k in range(200)]))
    return rows


def overlaps(a, b):
    """By more than a point, which rounding is."""
    return min(a.x1, b.x1) - max(a.x0, b.x0) > 1.5 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1.5


def lines(text, renderer):
    """Boxes of the lines of a title."""
    from matplotlib.transforms import Bbox

    if not text.get_text():
        return []
    box, parts = text.get_window_extent(renderer), text.get_text().split("\n")
    height, middle = box.height / len(parts), (box.x0 + box.x1) / 2
    found = []
    for at, part in enumerate(parts):
        width = renderer.get_text_width_height_descent(part, text.get_fontproperties(), False)[0]
        left = box.x0 if text.get_ha() == "left" else middle - width / 2
        found.append(Bbox([[left, box.y1 - (at + 1) * height], [left + width, box.y1 - at * height]]))
    return found


def faults(figure):
    """What is cut, overlaps, or has no room."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        canvas.draw()
    renderer = canvas.get_renderer()
    legends = [*figure.legends, *(legend for ax in figure.axes if (legend := ax.get_legend()))]
    texts = [figure._suptitle, figure._supxlabel]
    for ax in figure.axes:
        texts += [ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            texts += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = {text.get_text(): text.get_window_extent(renderer) for text in texts if text.get_text() and text.get_visible()}
    boxes |= {f"legend {at}": legend.get_window_extent(renderer) for at, legend in enumerate(legends)}
    found = [f"cut: {name}" for name, box in boxes.items()
             if box.x0 < -1.5 or box.y0 < -1.5 or box.x1 > figure.bbox.x1 + 1.5 or box.y1 > figure.bbox.y1 + 1.5]
    panels = [ax.get_window_extent(renderer) for ax in figure.axes]
    places = [legend.get_window_extent(renderer) for legend in legends if legend.get_frame_on() is False]
    titles = [box for ax in figure.axes for text in (ax.title, ax._left_title) for box in lines(text, renderer)]
    head, caption = (text.get_window_extent(renderer) for text in (figure._suptitle, figure._supxlabel))
    for kind, ones, others in (("a legend and a panel", places, panels), ("legends", places, places), ("panels", panels, panels),
                               ("a title and a panel", titles, panels), ("titles", titles, titles),
                               ("the caption", [caption], [*panels, *places]), ("the head", [head], [*panels, *places, *titles])):
        pairs = itertools.combinations(ones, 2) if ones is others else itertools.product(ones, others)
        if any(overlaps(a, b) for a, b in pairs):
            found.append(f"overlap: {kind}")
    found += [f"a panel of {box.width:.0f} x {box.height:.0f}" for box in panels if box.height < 30 or box.width < 8]
    return found


def drawn(name, data):
    import matplotlib

    with matplotlib.rc_context(look.STYLE):
        try:
            figure = plot.FIGURES[name][0](data)
        except look.NoData:
            return []
        return faults(figure)


@pytest.mark.parametrize("rows", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("name", OF_STEPS)
def test_figures_of_steps_have_room_for_all_they_show(name, rows):
    data = list(rows())
    assert drawn(name, ([], data) if name == "roofline" else data[:2] if name == "waterfall" else data) == []


@pytest.mark.parametrize("name", OF_COLLS)
def test_figures_of_collectives_have_room_for_all_they_show(name):
    assert drawn(name, colls(13)) == []


def test_the_other_figures_have_room_for_all_they_show():
    finding = {"verdict": "REGRESSED", "metric": "exposed_fraction", "case": f"model={LONG} mesh=dp2", "scale": "ratio",
               "worse": 0.1, "low": 0.05, "high": 0.15, "n": 20}
    place = [make_place_row(), make_place_row(("dp,tp",) * 3, 3, 2.0, (2.0, 3.0))]
    place[1]["params"] |= {"link": "intra:8GB/s,2us;inter:0.125GB/s,50us", "model": LONG}
    traces = [({"name": LONG * 3, **make_trace()}, None)] * 3
    for name, data in (("forest", [finding] * 70), ("placement", place), ("gantt", traces)):
        assert drawn(name, data) == [], name
