"""What rows.py reads, refuses and prints."""

import copy
import csv
import json
import lzma

import pytest

from mb import rows
from mb.main import main
from conftest import ROOT, absent, failed_row, make_place_row, make_row, many_rows


def test_rows_survive_being_written_and_read(row_file):
    written = [make_row("dp2.pp2.tp2"), make_row(mode="sim"), failed_row()]
    assert rows.load([row_file(written)]) == written


def test_a_folder_stands_for_its_rows_in_order(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(json.dumps({**make_row(), "run_id": name}))
    (tmp_path / "notes.txt").write_text("no row")
    assert [row["run_id"] for row in rows.load([tmp_path])] == ["a", "b"]


def test_rows_in_xz_are_read_and_cut_ones_refused(row_file, tmp_path):
    written = [make_row(), failed_row()]
    packed = lzma.compress(row_file(written).read_bytes())
    folder = tmp_path / "packed"
    folder.mkdir()
    (folder / "rows.jsonl.xz").write_bytes(packed)
    assert rows.load([folder]) == written
    (folder / "rows.jsonl.xz").write_bytes(packed[:-20])
    with pytest.raises(rows.RowError, match=r"rows\.jsonl\.xz: cannot be read"):
        rows.load([folder])


@pytest.mark.parametrize("file", ["collectives/late.jsonl.xz", "collectives/matrix.jsonl.xz", "placement/h100.jsonl"])
def test_rows_of_studies_stay_readable(file):
    assert rows.load([ROOT / "results" / file])


def test_unknown_top_fields_are_kept(row_file):
    assert rows.load([row_file([{**make_row(), "x_note": [1]}])])[0]["x_note"] == [1]


@pytest.mark.parametrize("text, word", [
    ("", "not a row"),
    ("{", "not a row"),
    ('{"schema": NaN}', "NaN is not JSON"),
    ("[]", "is not of type 'object'"),
    ('{"schema": "meshbench-row/1"}', "required property"),
])
def test_what_is_no_row_is_refused_with_its_place(tmp_path, text, word):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(rows.RowError) as error:
        rows.load([path])
    assert str(path) in str(error.value) and word in str(error.value)
    assert "\n" not in str(error.value)


def test_a_line_that_is_no_row_is_named_by_its_number(row_file):
    path = row_file([make_row()])
    path.write_text(path.read_text() + "\n{}\n")
    with pytest.raises(rows.RowError, match=r"rows\.jsonl:3: "):
        rows.load([path])


def test_a_null_without_reason_is_refused_by_its_path(row_file):
    row = copy.deepcopy(make_row())
    row["metrics"]["mfu"] = {"value": None, "unit": "1", "n": 0}
    with pytest.raises(rows.RowError, match=r"\$\.metrics\.mfu: 'reason' is a required property"):
        rows.load([row_file([row])])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(rows.RowError, match="no such file; make it with meshbench run"):
        rows.load([tmp_path / "none.json"])


def test_select_compares_as_text_and_takes_all_conditions():
    found = rows.select(many_rows(200), ["mesh=pp4", "schedule=gpipe", "global_batch=8"])
    assert len(found) == 2
    assert {row["params"]["mode"] for row in found} == {"threads", "sim"}
    assert rows.select(many_rows(3), ["virtual_time=false"]) == many_rows(3)


def test_select_refuses_what_no_row_has():
    with pytest.raises(rows.RowError, match="no row has a key mseh; did you mean mesh\\? keys are "):
        rows.select(many_rows(2), ["mseh=pp4"])
    with pytest.raises(rows.RowError, match="write key=value"):
        rows.select(many_rows(2), ["mesh"])


@pytest.mark.parametrize("params, count", [
    ({"micro_batches": 8, "micro_batch": "2", "global_batch": "64"}, 8),
    ({"micro_batch": "2", "global_batch": "64"}, 16),
])
def test_micro_batches_are_of_one_pipeline(params, count):
    assert rows.micro_batches({**make_row("dp2.pp2"), "params": params}) == count


def test_table_has_a_dash_where_there_is_no_number():
    row = make_row(mode="sim")
    row["metrics"]["mfu"] = absent("1", "peak not known")
    header, first, failed = rows.table([row, failed_row()]).splitlines()
    assert header.split()[:3] == ["mesh", "step", "ms"]
    cells = first.split()
    assert cells[0] == "pp4" and cells[3] == "-" and cells[4] == cells[6] == "27.3" and cells[-1] == "no"
    assert failed.split()[:2] == ["pp4", "oom"]


def test_table_gives_a_bubble_to_pipelines_alone():
    cells = [line.split() for line in rows.table([make_row("dp4"), make_row("pp4")]).splitlines()]
    assert cells[1][4:7] == ["-", "-", "-"] and cells[2][4] == "29.3" and cells[2][6] == "27.3"


def test_table_shows_the_loss_of_the_first_step_that_was_trained():
    row = {**make_row(), "training": {"losses": [5.9, 5.8, 5.5, 5.1]}}
    assert "5.900 -> 5.100" in rows.table([row])


def test_table_names_rows_of_other_suites():
    assert rows.table([make_place_row()]).splitlines()[1].split()[:3] == ["dp2.tp2", "place", "-"]


def test_main_prints_rows_and_says_what_is_missing(row_file, tmp_path, capsys):
    path = str(row_file(many_rows(2)))
    assert main(["rows", path, "--where", "mesh=pp2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == many_rows(2)[1]
    assert main(["rows", str(tmp_path / "empty.jsonl")]) == 4
    assert capsys.readouterr().err.startswith("mb rows: ")
    assert main(["rows", path, "--where", "mesh=pp99"]) == 4
    assert "no row" in capsys.readouterr().err
    with pytest.raises(SystemExit) as usage:
        main(["rows"])
    assert usage.value.code == 2


def test_tables_are_there_for_spreadsheets_and_for_markdown(row_file, capsys):
    path = row_file([make_row("pp2"), make_row("dp2"), failed_row("crash", "a|b")])
    assert rows.main([str(path), "--csv"]) == 0
    columns, *lines = csv.reader(capsys.readouterr().out.splitlines())
    assert columns == list(rows.COLUMNS) and [line[0] for line in lines][:2] == ["pp2", "dp2"]
    assert float(lines[0][2]) > 1000 and lines[1][4] == ""  # tokens a second; a bubble of no pipeline
    assert rows.main([str(path), "--markdown"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 5 and shown[1] == "|" + " --- |" * len(rows.COLUMNS)
    with pytest.raises(SystemExit):
        rows.main([str(path), "--csv", "--json"])


def test_a_table_is_not_taken_for_rows(tmp_path):
    (tmp_path / "index.csv").write_text("key,status\n1,ok\n")
    with pytest.raises(rows.RowError, match='column "key" is no place in a row'):
        rows.load([tmp_path])


def test_sweeps_below_a_folder_stand_for_their_results(row_file, tmp_path):
    row_file([make_row("pp2")])
    for name in ("monday", "tuesday"):
        (tmp_path / name / "results" / "ab").mkdir(parents=True)
        (tmp_path / name / "plan.json").write_text("{}")
        (tmp_path / name / "index.csv").write_text("key,status\n")
        (tmp_path / name / "results" / "ab" / "abcd.json").write_text(json.dumps(make_row("dp2")))
    assert [row["params"]["mesh"] for row in rows.load([tmp_path])] == ["pp2", "dp2", "dp2"]


def test_names_in_cells_that_read_as_numbers_stay_names():
    row = rows._from_cells(["/run_id", "/build/git", "/build/dirty", "/mpi/version", "/fingerprint/soft/cores"],
                           ["12e345678", "1234567", "true", "", "2"])
    assert row["run_id"] == "12e345678"
    assert row["build"] == {"git": "1234567", "dirty": True}
    assert row["fingerprint"] == {"soft": {"cores": 2}}


def test_the_fast_validator_and_the_telling_one_agree():
    """On a row as it is, and without or with another value for each of its fields."""
    pytest.importorskip("jsonschema_rs", reason="jsonschema-rs is not here; requirements.txt names it")
    fast, telling = rows._fast_validator(), rows._validator()
    row = make_row("pp2", mode="sim")
    changed = [row, *({key: value for key, value in row.items() if key != gone} for gone in row)]
    changed += [{**row, key: value} for key in row for value in (None, 3, "x", -1.5, [], {})]
    assert {fast.is_valid(one) for one in changed} == {True, False}
    assert [fast.is_valid(one) for one in changed] == [telling.is_valid(one) for one in changed]
    assert rows.fault({**row, "large": 2**80}) is None and rows.fault({**row, "status": 2**80}) is not None
