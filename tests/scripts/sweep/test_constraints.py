"""Rules of a sweep hold where their arithmetic does, and say nothing else."""

import pytest

from mb.errors import UserError
from mb.sweep.constraints import holds

CASE = {"heads": 12, "tp": 4, "pp": 2, "micro_batches": 8, "schedule": "1f1b"}


@pytest.mark.parametrize("text, wanted", [
    ("heads % tp == 0", True), ("heads % (tp + 1) == 0", False), ("1 < pp <= micro_batches", True),
    ("schedule in ['gpipe', '1f1b'] and not tp > 4", True), ("pp == 1 or schedule == 'gpipe'", False),
    ("-pp < 0", True), ("heads / tp == 3", True), ("tp // 3 * 3 == tp", False)])
def test_rules_hold_where_their_arithmetic_does(text, wanted):
    assert holds("rule", text, CASE) is wanted


@pytest.mark.parametrize("text, word", [
    ("__import__('os').system('true')", "Call is not allowed"), ("tp.real", "Attribute is not allowed"),
    ("cp == 1", "no key cp"), ("tp ** 99999999", "BinOp is not allowed"), ("'x' * 10", "is no number"),
    ("tp ==", "is no expression"), ("tp / 0", "division by zero"), ("[k for k in 'x']", "not allowed")])
def test_rules_that_say_more_are_refused_by_name(text, word):
    with pytest.raises(UserError, match="constraint rule: ") as refused:
        holds("rule", text, CASE)
    assert word in str(refused.value) and refused.value.code == 2
