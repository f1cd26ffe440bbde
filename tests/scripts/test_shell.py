"""The shell scripts parse, and setup.sh says what is missing without asking."""

import os
import re
import subprocess

import pytest

from conftest import ROOT

SCRIPTS = sorted([*ROOT.glob("scripts/*.sh"), *ROOT.glob("scripts/launch/*"), *ROOT.glob("scripts/ci/*.sh"), ROOT / ".ci" / "run"])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_parse_and_can_be_run(script):
    assert subprocess.run(["bash", "-n", script], capture_output=True, text=True).stderr == ""
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    assert os.access(script, os.X_OK)


def test_requirements_are_pinned():
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    assert [line for line in lines if not re.match(r"[a-z0-9_-]+==[0-9][^ ]*(; python_version .*)?$", line)] == []
    assert len(lines) > 5


@pytest.fixture
def functions():
    """Runs a command after the functions of setup.sh, without what the script itself does."""
    text = (ROOT / "scripts" / "setup.sh").read_text()
    definitions = text[:text.index("\ninstall_packages\n")].replace('"${BASH_SOURCE[0]}"', f'"{ROOT}/scripts/x"')

    def run(command):
        return subprocess.run(["bash", "-c", f"{definitions}\n{command}"], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
    return run


def test_only_what_is_missing_is_named(functions):
    shown = functions('have() { case $1 in cmake|g++-12) false ;; esac; }; g++() { echo 11; }; python3() { false; }\n'
                      'dpkg-query() { [ "$4" != libfmt-dev ] && echo -n installed; }; missing_packages')
    assert shown.stdout.split() == ["cmake", "g++-12", "python3-venv", "libfmt-dev"]


def test_without_root_the_packages_and_the_command_are_told(functions):
    shown = functions('missing_packages() { echo ninja-build; echo libfmt-dev; }\n'
                      'id() { echo 1000; }; sudo() { false; }; have() { true; }; install_packages')
    assert shown.returncode == 1
    assert shown.stderr == ("setup: missing: ninja-build libfmt-dev; "
                            "install with: sudo apt-get install -y ninja-build libfmt-dev\n")


def test_root_installs_without_questions(functions):
    shown = functions('missing_packages() { echo libfmt-dev; }; id() { echo 0; }; have() { true; }\n'
                      'apt-get() { echo "$DEBIAN_FRONTEND apt-get $*" >&2; }; install_packages')
    assert shown.returncode == 0
    assert "noninteractive apt-get install -y -qq --no-install-recommends libfmt-dev" in shown.stderr


@pytest.mark.parametrize("least, version, holds", [("3.25", "3.22.1", 1), ("3.25", "3.25.1", 0), ("3.25", "4.0.0", 0),
                                                   ("12", "11", 1), ("12", "12", 0)])
def test_versions_compare_by_number(functions, least, version, holds):
    assert functions(f"at_least {least} {version}").returncode == holds


def test_test_sh_refuses_unknown_options():
    shown = subprocess.run(["bash", ROOT / "scripts" / "test.sh", "--fast"], capture_output=True, text=True)
    assert shown.returncode == 2
    assert "--fast: no such option; usage: scripts/test.sh [--sanitize]" in shown.stderr
