"""What holds for every file of the repository."""

import re
import shutil
import subprocess

import pytest

import check_layers
from conftest import ROOT

# Put together here, so that this file does not hold them.
FORBIDDEN = ["/wo" "rk/", "/ro" "ot/", "py" "pi.org", "deb." "debian.org"]


def tracked():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("no git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_place_on_one_machine():
    found = [f"{file.relative_to(ROOT)}: {word}" for file in tracked()
             for word in FORBIDDEN if word in file.read_text(encoding="utf-8", errors="ignore")]
    assert found == []


def test_every_quoted_include_meets_a_file():
    tops = (*check_layers.TOPS, "tests")
    missing = [f"{file.relative_to(ROOT)}:{number}: {included}"
               for file in check_layers.sources(ROOT, tops)
               for number, included in check_layers.includes(file)
               if not (ROOT / included).is_file() and not included.startswith("nvtx3/")]
    assert missing == []


def test_sources_are_formatted():
    tool = shutil.which("clang-format")
    version = tool and re.search(r"version (\d+)", subprocess.run([tool, "--version"], capture_output=True,
                                                                  text=True, check=True).stdout)
    if not version or version.group(1) != "14":
        pytest.skip("clang-format 14 is not here; other versions lay out otherwise")
    files = [file for file in tracked() if file.suffix in check_layers.SUFFIXES]
    checked = subprocess.run([tool, "--dry-run", "-Werror", "--ferror-limit=1", *files], capture_output=True,
                             text=True)
    assert checked.returncode == 0, checked.stderr[:2000] + "\nrun clang-format -i on these"


def test_python_files_compile():
    for file in tracked():
        if file.suffix == ".py":
            compile(file.read_text(encoding="utf-8"), str(file), "exec")
