"""The README's table of strategies is what the commands print."""
import os
from pathlib import Path

import pytest

import strategy_table

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench"))


@pytest.mark.skipif(not (BIN / "meshbench").exists(), reason=f"meshbench is not built in {BIN}")
def test_readme_has_the_table_that_the_commands_print():
    assert strategy_table.table() in (ROOT / "README.md").read_text()
