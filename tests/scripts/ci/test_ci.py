"""The jobs that gate a change: they parse, call what is there with options that are there, and refuse early."""

import re
import subprocess

import pytest
import yaml

from conftest import ROOT
from mb.gate import command

CI = ROOT / "scripts" / "ci"
GITHUB, GITLAB = (yaml.safe_load((CI / name).read_text()) for name in ("github.yml", "gitlab.yml"))


def commands():
    steps = GITHUB["jobs"]["gate"]["steps"]
    return [step["run"] for step in steps if "run" in step] + GITLAB["gate"]["script"]


def test_both_are_a_few_lines_with_one_command():
    assert len(commands()) == 2
    assert all(len((CI / name).read_text().splitlines()) <= 16 for name in ("github.yml", "gitlab.yml"))


@pytest.mark.parametrize("line", commands())
def test_the_command_and_its_options_are_there(line):
    words = line.split()
    assert (ROOT / words[0]).stat().st_mode & 0o111
    known = {option for action in command._gate_parser()._actions for option in action.option_strings}
    assert {word for word in words if word.startswith("--")} <= known


def test_github_has_history_enough_for_the_base():
    checkout = GITHUB["jobs"]["gate"]["steps"][0]
    assert checkout["with"]["fetch-depth"] >= 2 and "HEAD^1" in commands()[0]
    assert GITHUB[True] == "pull_request"  # YAML 1.1 reads "on" as true


def test_cases_can_be_launched():
    lines = (CI / "cases.txt").read_text().splitlines()
    cases = [line for line in lines if not re.match(r" *(#|$)", line)]
    command._require_cases(cases)
    assert len(cases) >= 3


@pytest.mark.parametrize("words", [[], ["no-such-commit"]])
def test_a_base_that_is_no_commit_is_refused_before_anything_is_built(words):
    done = subprocess.run([CI / "gate.sh", *words], capture_output=True, text=True)
    assert done.returncode == 2 and "no commit here" in done.stderr and not done.stdout
