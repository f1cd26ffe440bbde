"""The gate that tests itself, and that a gate gone blind is noticed."""

import math
import tempfile

import numpy as np
import pytest

import fakes
from conftest import make_row
from mb import main as entry
from mb.errors import UserError
from mb.gate import campaign, self_test, statistics, verdict


def test_t30_equal_builds_pass_and_planted_regressions_fail(capsys):
    assert entry.main(["gate", "self-test"]) == 0
    assert "12 verdicts" in capsys.readouterr().out


@pytest.mark.parametrize("name, value", [("FLOOR", math.log(1.5)), ("SECOND_LEVEL", 1e-30), ("FIRST_LEVEL", 1e-12)])
def test_t30_a_tolerance_that_was_widened_is_noticed(monkeypatch, name, value):
    monkeypatch.setattr(statistics, name, value)
    with pytest.raises(UserError, match="10 % more was planted, and the verdict is") as raised:
        self_test.require()
    assert raised.value.code == 3


def test_t30_another_test_of_times_is_not_believed_unseen(monkeypatch):
    assert self_test.require("signflip").startswith("12 verdicts")
    monkeypatch.setitem(statistics.TESTS, "signflip", (lambda effects: np.ones(len(effects)), 40, lambda level: 5))
    with pytest.raises(UserError, match="10 % more was planted"):
        self_test.require("signflip")


def test_t30_so_is_one_for_exact_metrics(monkeypatch):
    monkeypatch.setattr(verdict, "EXACT", 0.01)
    with pytest.raises(UserError, match="simulated_step_s of made-up-0: a millionth more was planted"):
        self_test.require()


def test_t30_so_is_a_gate_that_fails_equal_builds(monkeypatch):
    monkeypatch.setattr(statistics, "FLOOR", -1.0)
    monkeypatch.setitem(statistics.TESTS, "t", (lambda effects: np.zeros(len(effects)), 60, lambda level: 5))
    with pytest.raises(UserError, match="though both builds are one"):
        self_test.require()


@pytest.mark.parametrize("size", [0, 181_694_000_001])
def test_a_byte_more_is_planted_onto_nothing_and_onto_much(size):
    row = {**make_row(mode="sim"), "metrics": {"peak_bytes": {"value": size, "unit": "B", "n": 1}}}
    held, broken, _ = self_test.run(1, lambda case, number: campaign.Pair(case, number, ([row], [row])))
    assert broken == [] and f"peak_bytes of {row['case']}: failed as planted" in held


@pytest.mark.parametrize("cv, code, said", [(0.01, 0, "0 did not"), (0.4, 3, "INCONCLUSIVE")])
def test_a_build_held_to_itself_says_whether_this_machine_is_quiet_enough(tmp_path, monkeypatch, capsys, cv, code, said):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    program = fakes.timed_build(tmp_path, "a", 1, cv=cv, count=200)
    assert entry.main(["gate", "self-test", program, make_row()["case"]]) == code
    assert said in capsys.readouterr().out
