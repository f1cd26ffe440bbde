"""Includes point down only; and what the check says of a tree in which they do not."""

import pytest

import check_layers
from conftest import ROOT


@pytest.fixture
def tree(tmp_path):
    """Writes {path: text} below a folder and returns it."""
    def write(files):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return tmp_path
    return write


def test_this_repository_holds():
    assert check_layers.faults(ROOT) == []


def test_every_folder_of_the_order_is_below_a_top():
    assert all(name.startswith(tuple(f"{top}/" for top in check_layers.TOPS)) for name in check_layers.ORDER)
    assert len(set(check_layers.ORDER)) == len(check_layers.ORDER)


def test_down_and_beside_are_fine(tree):
    root = tree({
        "workloads/base/error.h": "#pragma once\n#include <string>\n",
        "parallel/plan/plan.h": '#include "workloads/base/error.h"\n',
        "parallel/plan/plan.cc": '#include "parallel/plan/plan.h"\n#include "parallel/timeline/timeline.h"\n',
        "parallel/timeline/timeline.h": "",
        "parallel/timeline/timeline.cc": '#include "parallel/plan/plan.h"\n',
    })
    assert check_layers.faults(root) == []


def test_up_is_a_fault_with_its_line(tree):
    root = tree({"workloads/base/error.h": '#pragma once\n\n#include "workloads/ops/op.h"\n',
                 "workloads/ops/op.h": "  #  include \"parallel/plan/plan.h\"\n", "parallel/plan/plan.h": ""})
    assert check_layers.faults(root) == [
        "workloads/base/error.h:3: workloads/base may not include workloads/ops/op.h, which stands above it",
        "workloads/ops/op.h:1: workloads/ops may not include parallel/plan/plan.h, which stands above it"]


def test_an_include_has_to_meet_a_file(tree):
    root = tree({"workloads/base/error.h": '#include "error.h"\n// #include "gone.h"\n'})
    assert check_layers.faults(root) == [
        "workloads/base/error.h:1: no file error.h; give the path from the root"]


def test_a_new_folder_needs_a_place(tree):
    fault, = check_layers.faults(tree({"parallel/magic/magic.cu": ""}))
    assert fault.startswith("parallel/magic/magic.cu: its folder has no place in ORDER")


def test_exit_codes(tree, capsys):
    root = tree({"workloads/base/error.h": ""})
    assert check_layers.main([str(root)]) == 0
    (root / "workloads/base/error.h").write_text('#include "gone.h"\n')
    assert check_layers.main([str(root)]) == 1
    assert "gone.h" in capsys.readouterr().out
    assert check_layers.main([str(root / "workloads" / "base")]) == 2
    assert "give the root of a checkout" in capsys.readouterr().err
