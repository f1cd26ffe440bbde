"""The entry command: its verbs, its exit codes, and what becomes of errors."""

import io
import subprocess
import sys
import types

import pytest

from conftest import ROOT
from mb import color
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


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("when, variables, stream, wanted", [
    ("auto", {}, io.StringIO(), False), ("auto", {}, Terminal(), True), ("auto", {"TERM": "dumb"}, Terminal(), False),
    ("auto", {"NO_COLOR": "1"}, Terminal(), False), ("auto", {"NO_COLOR": ""}, Terminal(), True),
    ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, Terminal(), False), ("auto", {"FORCE_COLOR": "1"}, io.StringIO(), True),
    ("auto", {"CLICOLOR_FORCE": "0"}, io.StringIO(), False), ("always", {"NO_COLOR": "1"}, io.StringIO(), True),
    ("never", {"FORCE_COLOR": "1"}, Terminal(), False)])
def test_colours_are_wanted_by_flag_then_environment_then_terminal(monkeypatch, when, variables, stream, wanted):
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(color, "_when", when)
    assert color.wanted(stream) is wanted
    assert color.paint("REGRESSED", "bad", stream) == ("\033[1;31mREGRESSED\033[0m" if wanted else "REGRESSED")


def test_the_flag_stands_before_the_verb_and_takes_three_words(verb, capsys, monkeypatch):
    monkeypatch.setattr(color, "_when", "auto")
    verb(lambda argv: print(color.paint("ok", "good")))
    assert entry.main(["--color=always", "fake"]) is None and capsys.readouterr().out == "\033[32mok\033[0m\n"
    assert entry.main(["--color", "never", "--debug", "fake"]) is None and capsys.readouterr().out == "ok\n"
    assert entry.main(["--color", "blue", "fake"]) == 2 and "auto, always, never" in capsys.readouterr().err
    assert entry.main(["--color"]) == 2


def test_both_ways_to_start_the_package_do_the_same():
    for module in ("mb", "mb.main"):
        done = subprocess.run([sys.executable, "-m", module, "pie"], cwd=ROOT / "scripts", capture_output=True, text=True)
        assert done.returncode == 2 and "verbs are rows" in done.stderr


@pytest.mark.parametrize("name", entry.VERBS)
def test_every_verb_has_help_with_examples(name, capsys):
    with pytest.raises(SystemExit) as done:
        entry.main([name, "--help"])
    shown = capsys.readouterr().out
    assert done.value.code == 0 and shown.count(f"  mb {name} ") >= 2 and "Exit codes" in shown
