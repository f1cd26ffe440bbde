"""Verdicts on stored rows, and that each way in which a gate passes silently does not."""

import copy
import json

import pytest

from conftest import make_row
from mb import main as entry
from mb.gate import registry, verdict
from mb.gate.command import main


def changed(row, **metrics):
    row = copy.deepcopy(row)
    for name, value in metrics.items():
        row["metrics"][name]["value"] = value
    return row


def code(base, candidate):
    return verdict.exit_code(verdict.compare(base, candidate))


SIM = make_row(mode="sim")
STEP = SIM["metrics"]["step_s"]["value"]
PEAK = SIM["metrics"]["peak_bytes"]["value"]


def test_g10_equal_rows_pass():
    assert code([SIM, SIM], [SIM]) == 0


def test_t1_a_slower_step_in_virtual_time_fails():
    assert code([SIM], [changed(SIM, step_s=STEP * 1.000001)]) == 1


def test_a_faster_step_in_virtual_time_is_changed():
    finding = verdict.compare([SIM], [changed(SIM, step_s=STEP / 2)])[0]
    assert (finding["metric"], finding["verdict"]) == ("step_s", "CHANGED")


def test_a_byte_more_of_planned_memory_fails_whatever_else_improves():
    assert code([SIM], [changed(SIM, peak_bytes=PEAK + 1, step_s=STEP / 2)]) == 1


def test_traffic_that_doubles_without_any_change_in_time_fails():
    part = {"rank": 0, "axis": "dp", "site": "gradients", "kind": "all_reduce"}
    base, candidate = ({**SIM, "traffic": [{**part, "plan": {"calls": 2, "bytes": size}}]} for size in (8, 16))
    findings = verdict.compare([base], [candidate])
    assert [f["metric"] for f in findings if f["verdict"] == "REGRESSED"] == ["traffic_0_dp_gradients_all_reduce_bytes"]


def test_t3_what_vanished_is_missing_and_named():
    other = make_row(mesh="pp2", mode="sim")
    assert code([SIM, other], [SIM]) == 3
    candidate = copy.deepcopy(SIM)
    del candidate["metrics"]["peak_bytes"]
    assert verdict.compare([SIM], [candidate])[0]["metric"] == "peak_bytes"
    assert code([SIM], [candidate]) == 3


def test_t4_nothing_in_common_is_no_pass():
    assert code([SIM], [make_row(mesh="pp2", mode="sim")]) == 4
    assert code([], []) == 4


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_t6_what_is_not_finite_equals_nothing(value):
    row = changed(SIM, step_s=value)
    assert code([row], [row]) == 3


def test_t8_another_unit_is_incomparable():
    candidate = copy.deepcopy(SIM)
    candidate["metrics"]["step_s"]["unit"] = "us"
    assert verdict.compare([SIM], [candidate])[0]["verdict"] == "INCOMPARABLE"


@pytest.mark.parametrize("entry", registry._entries(), ids=lambda entry: entry["name"])
def test_t9_worse_is_worse_in_the_direction_of_each_metric(entry):
    worse, better = (1.2, 0.8) if entry["direction"] == "lower" else (0.8, 1.2)
    judged = {**entry, "class": "exact"}
    assert verdict._judge_values(judged, [100.0], [100.0 * worse])[0] == "REGRESSED"
    assert verdict._judge_values(judged, [100.0], [100.0 * better])[0] == "CHANGED"


def test_t9_a_metric_without_direction_is_refused():
    import jsonschema

    entry = {"name": "x", "unit": "s", "class": "exact", "scale": "ratio", "floor": 0}
    with pytest.raises(jsonschema.ValidationError, match="direction"):
        registry.checked(json.dumps({"metrics": [entry]}))


def test_t13_another_version_of_a_case_is_new():
    findings = verdict.compare([SIM], [SIM, {**changed(SIM, step_s=2 * STEP), "case_version": 2}])
    assert "NEW" in [f["verdict"] for f in findings] and verdict.exit_code(findings) == 0


def test_launches_that_differ_in_virtual_time_are_nondeterministic():
    assert verdict.compare([SIM], [SIM, changed(SIM, step_s=2 * STEP)])[0]["verdict"] == "NONDETERMINISTIC"


def test_times_of_stored_rows_are_not_judged():
    row = make_row()
    assert code([row], [changed(row, step_s=10.0)]) == 0


def test_out_of_memory_blocks_only_if_it_is_new():
    failed = {**SIM, "status": "oom"}
    assert [code([a], [b]) for a, b in ((SIM, failed), (failed, SIM), (failed, failed))] == [3, 0, 0]


def test_t29_the_same_input_gives_the_same_bytes_and_text_agrees(row_file, capsys):
    files = [str(row_file([SIM], "a.jsonl")), str(row_file([changed(SIM, peak_bytes=PEAK + 1)], "b.jsonl"))]
    assert main(["--json", *files]) == 1
    first = capsys.readouterr().out
    assert main(["--json", *files]) == 1
    assert capsys.readouterr().out == first and json.loads(first)["counts"]["REGRESSED"] == 1
    assert main(files) == 1
    assert "REGRESSED         peak_bytes" in capsys.readouterr().out


def test_a_file_that_is_not_there_exits_with_4(tmp_path):
    assert entry.main(["gate", str(tmp_path / "none.json"), str(tmp_path / "none.json")]) == 4
