"""The notes on claims have the tables that their commands print; those that take a while are left to the script."""
import os
import re
from pathlib import Path

import pytest

import claims

BIN = Path(os.environ.get("MESHBENCH_BIN", claims.ROOT / "build" / "cpu" / "bench"))
needs_binary = pytest.mark.skipif(not (BIN / "meshbench").exists(), reason=f"meshbench is not built in {BIN}")
# A second or two each.
FAST = ("slow_networks", "gigabit", "zero_traffic", "tensor_parallel", "example")


def told(name):
    notes = claims.NOTES.read_text(encoding="utf-8")
    start, end = claims.marked(name, notes)
    return notes[start:end]


def near(cell, other):
    """The same words, and numbers within 2 %."""
    numbers = [re.findall(r"[\d.]+", text) for text in (cell, other)]
    words = [re.sub(r"[\d.]+", "", text) for text in (cell, other)]
    return words[0] == words[1] and len(numbers[0]) == len(numbers[1]) and all(
        float(a) == pytest.approx(float(b), rel=0.02, abs=0.002) for a, b in zip(*numbers))


@needs_binary
@pytest.mark.parametrize("name", FAST)
def test_notes_have_the_tables_that_the_commands_print(name):
    here, there = claims.table(claims.SIMULATED[name]()).splitlines(), told(name).splitlines()
    assert len(here) == len(there)
    for line, kept in zip(here, there):
        cells, others = line.split("|"), kept.split("|")
        assert len(cells) == len(others) and all(map(near, cells, others)), (
            f"scripts/claims.py --write {name} would write\n{line}\nand the notes have\n{kept}")


def test_every_table_has_its_place_in_the_notes_and_is_written():
    for name in [*claims.SIMULATED, *claims.MEASURED]:
        assert told(name).count("\n") > 2, name
    marks = re.findall(r"<!-- (\w+) -->", claims.NOTES.read_text(encoding="utf-8"))
    assert {mark for mark in marks if mark != "end"} == {*claims.SIMULATED, *claims.MEASURED}


def test_tables_have_numbers_to_the_right():
    assert claims.table([["a", "b"], ["x", "1.5 ms"], ["y", "20"]]).splitlines()[1] == "| --- | ---: |"
    assert [claims.number(x) for x in (0, 1234.5, 0.01234, 18.0)] == ["0", "1230", "0.0123", "18"]
