"""The entry command: its verbs, its exit codes, and what becomes of errors."""

import sys
import types

import pytest

from mb import main as entry
from mb.errors import UserError
from mb.exit_codes import ExitCode


@pytest.fixture
def verb(monkeypatch):
    """Makes a verb "fake" that does what the given function does."""
    def make(action):
        module = types.ModuleType("fake_verb")
        module.main = action
        monkeypatch.setitem(sys.modules, "fake_verb", module)
        monkeypatch.setitem(entry.VERBS, "fake", ("fake_verb", "nothing"))
    return make


def raising(error):
    def action(argv):
        raise error
    return action


@pytest.mark.parametrize("error, code, text", [
    (UserError("x.yaml: no such file; name one that is there"), 4, "mb fake: x.yaml: no such file"),
    (UserError("nothing to judge", ExitCode.NO_VERDICT), 3, "mb fake: nothing to judge"),
    (ZeroDivisionError("by zero"), 70, "internal error: ZeroDivisionError"),
    (KeyboardInterrupt(), 130, "interrupted"),
])
def test_errors_become_one_line_and_a_code(verb, capsys, error, code, text):
    verb(raising(error))
    assert entry.main(["fake"]) == code
    shown = capsys.readouterr()
    assert text in shown.err and shown.err.count("\n") == 1 and not shown.out


def test_debug_lets_errors_through(verb):
    verb(raising(UserError("x")))
    with pytest.raises(UserError):
        entry.main(["--debug", "fake"])


@pytest.mark.parametrize("argv", [[], ["pie"], ["--pie"]])
def test_wrong_use_names_the_verbs(argv, capsys):
    assert entry.main(argv) == 2
    assert "verbs are rows, plot, published, report, gate, sweep, status, index, explain" in capsys.readouterr().err


def test_versions_are_told_with_or_without_a_program(capsys, monkeypatch, tmp_path):
    program = tmp_path / "meshbench"
    program.write_text("#!/bin/sh\necho meshbench of some commit $1\n")
    program.chmod(0o755)
    monkeypatch.setenv("MESHBENCH", str(program))
    assert entry.main(["--version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "meshbench of some commit --version" and second.startswith("Python 3.") and "numpy " in second
    monkeypatch.setenv("MESHBENCH", "/no/such")
    assert entry.main(["--version"]) == 0 and "/no/such: no such program" in capsys.readouterr().out


@pytest.mark.parametrize("name", entry.VERBS)
def test_every_verb_has_help_with_examples(name, capsys):
    with pytest.raises(SystemExit) as done:
        entry.main([name, "--help"])
    shown = capsys.readouterr().out
    assert done.value.code == 0 and shown.count(f"  mb {name} ") >= 2 and "Exit codes" in shown
