"""Time that is left, and how it is told."""

import io
import random

import pytest

from fake_meshbench import fake, mb  # noqa: F401
from mb.sweep.estimate import Estimate, duration_text
from mb.sweep.order import ordered
from mb.sweep.points import Point
from mb.sweep.progress import Progress


@pytest.mark.parametrize("seed", range(20))
def test_after_a_fifth_of_the_work_the_estimate_is_within_a_quarter(seed):
    """Durations spread tenfold; predictions are 3 times too short and 20 % off by chance."""
    chance = random.Random(seed)
    cases = [(kind, chance.uniform(1, 10)) for kind in ("threads", "sim") for _ in range(100)]
    chance.shuffle(cases)
    factor = {"threads": 3.0, "sim": 0.5}
    took = [predicted * factor[kind] * chance.lognormvariate(0, 0.2) for kind, predicted in cases]
    estimate, done = Estimate(), 0
    while sum(took[:done]) < 0.2 * sum(took):
        estimate.observe(*cases[done], took[done])
        done += 1
    low, middle, high = estimate.left(cases[done:])
    assert middle == pytest.approx(sum(took[done:]), rel=0.25) and low < sum(took[done:]) < high


def test_before_anything_ran_the_range_is_half_to_double():
    assert Estimate().left([("a", 10), ("a", 10)]) == (10, 20, 40)
    assert Estimate().left([("a", 10), ("a", 10)], slots=2) == (5, 10, 20)
    assert Estimate().left([]) == (0, 0, 0)


def test_a_class_without_runs_takes_the_others_word():
    estimate = Estimate()
    for _ in range(3):
        estimate.observe("a", 1, 4)
    assert estimate.left([("b", 10)]) == (40, 40, 40)


def test_the_limit_is_a_minute_at_least_and_five_times_what_is_expected():
    estimate = Estimate()
    assert estimate.limit_s("a", 1) == 60 and estimate.limit_s("a", 100) == 1000
    for _ in range(3):
        estimate.observe("a", 1, 3)
    assert estimate.limit_s("a", 100) == 1500


@pytest.mark.parametrize("seconds, text", [(0, "0 s"), (0.04, "0.04 s"), (45.4, "45 s"), (600, "10 min"), (9000, "2.5 h")])
def test_durations_read_well(seconds, text):
    assert duration_text(seconds) == text


def test_without_a_terminal_a_line_comes_at_5_percent_or_30_s():
    now = [0.0]
    stream = io.StringIO()
    progress = Progress(100, stream=stream, clock=lambda: now[0])
    for done in range(1, 101):
        now[0] += 0.1
        progress.show({"ok": done}, (1, 2, 3), "case")
    assert stream.getvalue().count("\n") == 20 and "\r" not in stream.getvalue()
    assert stream.getvalue().startswith("5/100 (5 ok), 2 s left (1 s to 3 s), case\n")
    now[0] += 31
    progress.show({"ok": 100}, (0, 0, 0), "")
    assert stream.getvalue().endswith("100/100 (100 ok), done\n")


def point(n, predicted_s, mode="threads", **config):
    return Point({"n": n, **config}, (), str(n), str(n), {"params": {"mode": mode}}, predicted_s, 1, None, None, {})


def test_orders_are_as_named():
    points = [point(0, 3.0, a=1), point(1, 1.0, a=1), point(2, 2.0, a=1), point(3, 9.0, a=2), point(4, 1.0, "sim", a=1)]
    for p in points:
        p.config.pop("n")
    names = lambda order: [int(p.key) for p in ordered(points, order)]  # noqa: E731
    assert names("given") == [0, 1, 2, 3, 4] and names("cheap") == [1, 2, 0, 3, 4]
    assert names("expensive") == [3, 0, 2, 1, 4]
    assert names("spread") == [1, 3, 4, 2, 0]  # every value of a before any twice
    assert names("random") == names("random") and sorted(names("random")) == [0, 1, 2, 3, 4]


def test_a_dry_run_counts_and_tells_time_and_first_commands(fake, mb, tmp_path):
    rule = {"name": "few", "rule": "n != 9", "reason": "nine is bad luck"}
    file = fake.sweep_file(axes={"n": {"from": 1, "to": 9, "step": 1}}, base={"s": 3600, "mesh": "dp2"}, constraints=[rule],
                           include=[{"n": 20, "needed": 9}, {"n": 21, "mode": "cuda"}, {"n": 1}])
    code, out, _ = mb("sweep", file, "-o", tmp_path / "out", "--dry-run")
    assert code == 0 and fake.ran() == [] and not (tmp_path / "out").exists()
    counts = {line.split(maxsplit=1)[1]: int(line.split()[0]) for line in out.splitlines()[1:7]}
    assert counts == {"equal to another, left out": 1, "excluded, left out": 0, "invalid": 1, "unsupported": 1,
                      "oom_predicted": 1, "done before": 0}
    assert "8 to run, about 8.0 h (4.0 h to 16.0 h) one after the other, 16 rank hours" in out
    commands = out.splitlines()[-5:]
    assert commands[0] == "  meshbench run mesh=dp2 n=1 s=3600 -q --no-progress -o ROW.json"
