"""Regressions that are allowed for a while."""

import datetime
import json

import pytest

from conftest import make_row
from mb.errors import UserError
from mb.gate import verdict, waivers
from mb.gate.command import main
from test_verdict import PEAK, SIM, changed

TODAY = datetime.date(2026, 1, 10)
WAIVER = {"case": "model=gpt-1m*", "metric": "peak_*", "allowed": "5 %", "reason": "a second bucket", "issue": "12",
          "expires": "2026-01-10"}
WORSE = verdict.compare([SIM], [changed(SIM, peak_bytes=PEAK * 1.04)])


def applied(today=TODAY, findings=WORSE, **fields):
    """(verdict of peak_bytes, its reason, state of the waiver)."""
    found, told = waivers.apply(findings, [{**WAIVER, **fields}], today)
    finding = next(f for f in found if f["metric"] == "peak_bytes")
    return finding["verdict"], finding["reason"], told[0]["state"]


def test_an_allowed_regression_passes_until_the_last_day():
    assert applied() == ("WAIVED", "until 2026-01-10, 12: a second bucket", "used")
    assert verdict.exit_code(waivers.apply(WORSE, [WAIVER], TODAY)[0]) == 0


def test_the_day_after_it_fails():
    said = applied(TODAY + datetime.timedelta(1))
    assert said == ("REGRESSED", "its waiver ended on 2026-01-10: a second bucket", "expired")


@pytest.mark.parametrize("allowed, verdict_", [("3 %", "REGRESSED"), ("4.5%", "WAIVED"), (0.05 * PEAK, "WAIVED"), (1, "REGRESSED")])
def test_what_is_worse_than_allowed_fails(allowed, verdict_):
    assert applied(allowed=allowed)[0] == verdict_


def test_a_number_is_in_the_unit_of_the_metric():
    step = SIM["metrics"]["step_s"]["value"]
    slower = verdict.compare([SIM], [changed(SIM, step_s=step + 0.010)])
    for allowed, expected in ((0.011, "WAIVED"), (0.009, "REGRESSED")):
        found, _ = waivers.apply(slower, [{**WAIVER, "metric": "step_s", "allowed": allowed}], TODAY)
        assert found[0]["verdict"] == expected


@pytest.mark.parametrize("fields", [{"case": "model=gpt-2*"}, {"metric": "step_s"}])
def test_t28_a_waiver_that_meets_nothing_is_told(fields):
    assert applied(**fields)[::2] == ("REGRESSED", "unused")


def test_files_are_read_with_dates_as_yaml_has_them(tmp_path, row_file, capsys):
    file = tmp_path / "waivers.yaml"
    file.write_text("waivers:\n- {case: '*', metric: peak_bytes, allowed: 5 %, reason: r, issue: '1', expires: 2999-01-01}\n"
                    "- {case: none, metric: x, allowed: 1, reason: r, issue: '2', expires: 2999-01-01}\n")
    rows = [str(row_file([SIM], "a.jsonl")), str(row_file([changed(SIM, peak_bytes=PEAK + 1)], "b.jsonl"))]
    assert main([*rows, "--json", "--waivers", str(file)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [w["state"] for w in told["waivers"]] == ["used", "unused"]
    assert "the waiver for x of none meets no regression" in told["warnings"]
    assert main(rows) == 1


@pytest.mark.parametrize("text, said", [
    ("waivers: [{case: a}]", "is a required property"), ("waver: []", "'waivers' is a required"), ("waivers: [", "no waivers"), ("", "not of type"),
    ("waivers: [{case: a, metric: b, allowed: lots, reason: r, issue: i, expires: 2026-01-01}]", "lots"),
    ("waivers: [{case: a, metric: b, allowed: 1, reason: r, issue: i, expires: 2026-02-31}]", "day is out of range")])
def test_a_file_that_is_none_is_refused(tmp_path, text, said):
    (tmp_path / "w.yaml").write_text(text)
    with pytest.raises(UserError, match=said):
        waivers.load(tmp_path / "w.yaml")


def test_nothing_else_is_waived():
    lost = verdict.compare([SIM, make_row("pp2", mode="sim")], [SIM])
    assert verdict.exit_code(waivers.apply(lost, [{**WAIVER, "metric": "*", "case": "*"}], TODAY)[0]) == 3
