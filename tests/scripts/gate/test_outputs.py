"""All outputs say the same, and the exit code survives what it goes through."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

import jsonschema
import pytest

import fakes
from conftest import ROOT, make_row
from mb.gate import document, outputs, verdict
from mb.gate.command import main

SIM = make_row(mode="sim")
SCHEMA = json.loads(document.SCHEMA.read_text(encoding="utf-8"))
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}


def changed(row, **metrics):
    row = copy.deepcopy(row)
    for name, value in metrics.items():
        row["metrics"][name]["value"] = value
    return row


def peak(bytes_, mesh="pp4", **fields):
    return {**changed(make_row(mesh, mode="sim"), peak_bytes=bytes_), **fields}


def made(base, candidate, **options):
    """The document of a comparison, which has to fit its schema."""
    told = document.make(("a", "b"), (base, candidate), verdict.compare(base, candidate), **options)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(document.to_json(told)))
    return told


PASSES, REGRESSES, MISSES = ([peak(1), peak(1, "pp2")], [peak(1), peak(1, "pp2")]), ([peak(1)], [peak(2)]), \
    ([peak(1), peak(1, "pp2")], [peak(1)])
NOTHING = [peak(1)], [peak(1, "pp2")]
NOISY = [make_row()], [make_row()]  # times of stored rows are inconclusive


@pytest.mark.parametrize("rows, strict, code", [(PASSES, False, 0), (REGRESSES, False, 1), (MISSES, False, 3),
                                                (NOTHING, False, 4), (NOISY, False, 0), (NOISY, True, 5)])
def test_t1_every_output_agrees_on_the_verdict(rows, strict, code):
    told = made(*rows, strict=strict)
    suite = xml.fromstring(outputs.junit(told))
    assert told["exit"] == code
    assert f"exit {code}" in outputs.terminal(told).splitlines()[-1] and f"exit {code}" in outputs.markdown(told).splitlines()[0]
    assert (int(suite.get("failures")) + int(suite.get("errors")) > 0) == (code != 0)
    assert int(suite.get("tests")) == len(suite.findall("testcase"))
    for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert len(suite.findall(f"testcase/{kind}")) == int(suite.get(attribute))


def test_t28_every_failing_line_is_in_every_output():
    base = [peak(10**9 + k, f"pp{k}") for k in range(1, 40)]
    told = made(base, [peak(row["metrics"]["peak_bytes"]["value"] + 1, row["mesh"]["text"]) for row in base])
    suite = xml.fromstring(outputs.junit(told))
    for k in range(1, 40):
        assert f"mesh=pp{k} " in outputs.terminal(told) and f"mesh=pp{k} " in outputs.markdown(told)
        assert suite.find(f"testcase[@classname='{base[k - 1]['case']}']/failure") is not None
    assert told["counts"]["REGRESSED"] == int(suite.get("failures")) == 39


def test_times_of_stored_rows_are_one_line_unless_strict():
    told = made(*NOISY)
    assert "1 times of stored rows are not judged" in told["warnings"][0] and "\nINCONCLUSIVE" not in outputs.terminal(told)
    assert "\nINCONCLUSIVE" in outputs.terminal(made(*NOISY, strict=True))


def test_t28_a_rule_that_meets_no_metric_is_told():
    told = made(*PASSES)
    assert "completion_s" in told["unused_rules"] and "rules that met no metric: completion_s" in outputs.terminal(told)
    unknown = copy.deepcopy(SIM)
    unknown["metrics"]["cache_misses"] = unknown["metrics"]["peak_bytes"]
    assert "not judged: cache_misses" in made([SIM], [unknown])["warnings"][0]


def test_markdown_keeps_to_its_size_with_the_worst_first():
    base = [peak(10**9, f"pp{k}") for k in range(1, 150)]
    told = made(base, [peak(10**9 + k, f"pp{k}") for k in range(1, 150)])
    text = outputs.markdown(told, limit=8_000)
    assert len(text.encode()) <= 8_000 and "more findings do not fit here" in text and "mesh=pp149 " in text


def test_hostile_names_break_no_output():
    row = peak(1, case='model=<b>|`"&\x07 mesh=pp4')
    told = made([row], [{**peak(2), "case": row["case"]}])
    failure = xml.fromstring(outputs.junit(told)).find("testcase/failure")
    assert failure is not None and "<b>" not in outputs.markdown(told)
    line = next(line for line in outputs.markdown(told).splitlines() if "REGRESSED" in line and line.startswith("|"))
    assert line.replace("\\|", "").count("|") == 11


def test_a_trade_of_time_for_memory_is_told():
    faster = changed(SIM, step_s=SIM["metrics"]["step_s"]["value"] / 2, peak_bytes=SIM["metrics"]["peak_bytes"]["value"] * 2)
    told = made([SIM], [faster])
    assert told["exit"] == 1 and [(t["better"], t["worse"]) for t in told["trade_offs"]] == [("step_s", "peak_bytes")]
    assert "trade-off: step_s became better, peak_bytes worse" in outputs.terminal(told)


def test_quantities_have_a_prefix_and_a_byte_shows():
    assert outputs.quantity(0.0012345, "s") == "1.2345 ms" and outputs.quantity(19.2e9, "B/s") == "19.2 GB/s"
    assert outputs.quantity(999_999, "B") == "999999 B" and outputs.quantity(None, "s") == "-"
    assert outputs.quantity(0, "s") == "0 s" and outputs.quantity(0.125, "1") == "0.125"


def test_files_are_written_and_markdown_is_appended(tmp_path, row_file, capsys):
    base, new = row_file([SIM], "a.jsonl"), row_file([changed(SIM, peak_bytes=1)], "b.jsonl")
    summary, report = tmp_path / "summary.md", tmp_path / "gate.xml"
    summary.write_text("before\n")
    assert main([str(base), str(new), "--markdown", str(summary), "--junit", str(report)]) == 0
    assert summary.read_text().startswith("before\n### gate: PASSED") and xml.parse(report).getroot().get("failures") == "0"


def test_a_summary_that_holds_something_already_is_not_overrun(tmp_path, row_file):
    """GitHub keeps 1 MiB of all that a step appends, or nothing."""
    files = [row_file([peak(10**9 + k * more, f"pp{k}") for k in range(1, 7)], f"{more}.jsonl") for more in (0, 1)]
    summary, comment = tmp_path / "summary.md", tmp_path / "comment.md"
    before = "x" * (outputs.SUMMARY_BYTES - 900) + "\n"
    summary.write_text(before)
    assert main([*map(str, files), "--markdown", str(summary), "--comment", str(comment)]) == 1
    text = summary.read_text()
    assert text.startswith(before) and len(text) <= outputs.SUMMARY_BYTES and "### gate: FAILED" in text
    assert "more findings do not fit here" in text and len(comment.read_text()) <= outputs.COMMENT_BYTES
    summary.write_text("x" * outputs.SUMMARY_BYTES)
    assert main([*map(str, files), "--markdown", str(summary)]) == 1  # a line is not held back
    assert summary.read_text()[outputs.SUMMARY_BYTES:].startswith("### gate: FAILED")


def test_many_warnings_leave_room_for_findings():
    told = {**made(*REGRESSES), "warnings": ["w" * 1000] * 100}
    text = outputs.markdown(told, limit=20_000)
    assert len(text.encode()) <= 20_000 and "| REGRESSED |" in text and "more lines do not fit here" in text


def test_annotations_are_the_worst_of_each_kind_on_a_line_each(capsys, row_file):
    base = [peak(10**9, f"pp{k}") for k in range(1, 15)]
    told = made([*base, peak(5, "dp2", case="a:b,c%\n::error::x")], [peak(10**9 + k, f"pp{k}") for k in range(1, 15)])
    lines = outputs.annotations(told)
    assert all(re.fullmatch(r"::(error|warning|notice) title=[^:,\n]*::[^\n]*", line.replace("%3A", "").replace("%2C", ""))
               for line in lines)
    errors = [line for line in lines if line.startswith("::error ")]
    assert len(errors) == outputs.MOST_ANNOTATIONS and "mesh=pp14 " in errors[0] and "REGRESSED" in errors[0]
    assert lines[-1].startswith("::notice title=Gate::gate: FAILED") and "exit 1" in lines[-1]
    gone = outputs.annotations(made([*base, peak(5, "dp2", case="a:b,c%\n::error::x")], base))
    assert "a:b,c%25%0A::error::x" in gone[0] and gone[0].startswith("::error title=MISSING%3A status::")
    assert outputs.annotations(made(*PASSES))[:-1] == [] == outputs.annotations(made(*NOISY))[:-1]
    assert outputs.annotations(made(*NOISY, strict=True))[0].startswith("::error title=INCONCLUSIVE")
    files = [row_file([peak(n)], f"{n}.jsonl") for n in (2, 1)]
    assert main([*map(str, files), "--annotations", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["exit"] == 0 and "::notice title=CHANGED%3A peak_bytes::" in shown.err


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """{exit code: words of mb gate}."""
    folder = tmp_path_factory.mktemp("rows")
    words = {}
    for code, (base, new), more in ((0, PASSES, ""), (1, REGRESSES, ""), (3, MISSES, ""), (4, NOTHING, ""), (5, NOISY, "--strict")):
        names = [folder / f"{code}-{side}.jsonl" for side in "ab"]
        for name, rows in zip(names, (base, new)):
            name.write_text("".join(json.dumps(row) + "\n" for row in rows))
        words[code] = f"{sys.executable} -m mb gate {names[0]} {names[1]} {more}"
    return words


def test_t2_a_pipe_with_pipefail_keeps_each_code_and_the_last_line_tells_it_anyway(files):
    for code, words in files.items():
        done = subprocess.run(["bash", "-c", f"set -o pipefail; {words} | tee /dev/null"], capture_output=True, text=True, env=ENV)
        assert done.returncode == code and done.stdout.splitlines()[-1].endswith(f"exit {code}")


def test_t2_make_turns_each_into_its_own_two_which_no_verdict_is(files, tmp_path):
    if not shutil.which("make"):
        pytest.skip("make is not here")
    for code, words in files.items():
        (tmp_path / "Makefile").write_text(f"gate:\n\t@{words}\n")
        done = subprocess.run(["make", "-C", tmp_path, "gate"], capture_output=True, text=True, env=ENV)
        assert done.returncode == (2 if code else 0)
        assert code == 0 or f"Error {code}" in done.stderr


def test_t2_ctest_fails_on_each_but_a_pass(files, tmp_path):
    if not shutil.which("ctest"):
        pytest.skip("ctest is not here")
    (tmp_path / "CTestTestfile.cmake").write_text("".join(
        f"add_test(exits-{code} {words})\n" for code, words in files.items()))
    done = subprocess.run(["ctest", "-j2"], cwd=tmp_path, capture_output=True, text=True, env=ENV)
    for code in files:
        passed = f"exits-{code} " in "".join(line for line in done.stdout.splitlines() if "Passed" in line)
        assert passed == (code == 0), done.stdout


def test_a_document_of_two_builds_fits_the_schema_too(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    builds = [fakes.timed_build(tmp_path, "a", 1), fakes.timed_build(tmp_path, "b", 2, worse=1.3)]
    assert main(["--builds", "--json", "--any-load", *builds, "model=gpt-1m mesh=pp4"]) == 1
    told = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMA).validate(told)
    assert told["campaign"].startswith("gate/") and told["self_test"]
