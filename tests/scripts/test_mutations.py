"""The table of faults: that it is read, printed, and says what the sources and tests say."""

import re

import pytest

import check_layers
import mutations
from conftest import ROOT


def test_a_line_is_a_fault():
    assert mutations.parse("\na | b#1, c | d_test | E.F/0\n") == [mutations.Fault("a", "b#1, c", "d_test", "E.F/0")]


@pytest.mark.parametrize("text, wrong", [("a | b | c", "not four columns"), ("a | | c | d", "not four columns"),
                                         ("a|b|c|d\na|e|f|g", "named twice: a")])
def test_a_line_that_is_none_is_refused(text, wrong):
    with pytest.raises(ValueError, match=wrong):
        mutations.parse(text)


def test_columns_are_aligned():
    first, second = mutations.parse("long_name | x | p_test | A.B\nb | longer | q_test | C.Long")
    assert mutations.table([(first, "caught"), (second, "SURVIVED")]) == [
        "fault      happened in  test           verdict",
        "long_name  x            p_test A.B     caught",
        "b          longer       q_test C.Long  SURVIVED"]


def test_every_fault_stands_in_one_place_of_the_sources():
    text = [file.read_text(encoding="utf-8") for file in check_layers.sources(ROOT)]
    placed = re.findall(r'mutated\("(\w+)"\)', "".join(text))
    assert sorted(placed) == sorted([*mutations.COSTS, *(fault.name for fault in mutations.parse(mutations.FAULTS))])


def test_every_fault_names_a_test_that_is_there():
    tests = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*_test.cc"))
    for fault in mutations.parse(mutations.FAULTS):
        suite, name = re.match(r"(?:\w+/)?(\w+)\.(\w+)", fault.test).groups()
        assert re.search(rf"TEST(_[FP])?\({suite},\s+{name}\)", tests), fault.test


def test_a_fault_that_is_not_known_is_refused(capsys):
    assert mutations.main(["nonsense"]) == 2
    assert "no fault nonsense; there are last_layers_dropped" in capsys.readouterr().err
