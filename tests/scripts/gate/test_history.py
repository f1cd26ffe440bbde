"""The newest of nightly campaigns beside earlier ones."""

import json

import numpy as np
import pytest

import fakes
from conftest import make_row
from mb import main as entry
from mb.gate import history, statistics


def nightly(folder, values, fingerprint=None, row=None):
    """A file for each campaign of two launches."""
    for day, value in enumerate(values):
        rows = []
        for launch in (0.999, 1.001):
            made = fakes.scaled(row or make_row(), step_s=value * launch)
            made["time_utc"] = f"2026-01-{day + 1:02}T00:00:00Z"
            if fingerprint:
                made["fingerprint"] = {**made["fingerprint"], "id": fingerprint[day] * 16}
            rows.append(json.dumps(made) + "\n")
        (folder / f"night-{(day * 7) % 31:02}.jsonl").write_text("".join(rows))  # names do not tell the order
    return str(folder)


def told(capsys, *words):
    capsys.readouterr()
    code = entry.main(["gate", "history", "--json", *words])
    return code, json.loads(capsys.readouterr().out)["findings"]


STEADY = list(1 + 0.005 * np.random.default_rng(1).standard_normal(20))


def test_a_slow_night_alerts_and_blocks_only_if_told_to(tmp_path, capsys):
    folder = nightly(tmp_path, [*STEADY, 1.1])
    code, findings = told(capsys, folder)
    assert code == 0 and findings[0]["verdict"] == "ALERT" and 0.08 < findings[0]["worse"] < 0.12
    assert findings[0]["reason"].startswith("compare the builds in one job: mb gate --builds")
    assert told(capsys, folder, "--history-blocking")[0] == 1


def test_a_steady_night_passes_and_a_fast_one_does_too(tmp_path, capsys):
    for name, last in (("steady", 1.0), ("fast", 0.5)):
        (tmp_path / name).mkdir()
        code, findings = told(capsys, nightly(tmp_path / name, [*STEADY, last]), "--history-blocking")
        assert (code, findings[0]["verdict"]) == (0, "PASS")


def test_nine_earlier_nights_are_no_history(tmp_path, capsys):
    folder = nightly(tmp_path, [*STEADY[:9], 2.0])
    code, findings = told(capsys, folder, "--history-blocking")
    assert code == 0 and findings[0]["reason"] == "no history: 9 earlier campaigns, 10 are the least"
    assert told(capsys, folder, "--strict")[0] == 5


def test_t10_another_machine_is_another_series(tmp_path, capsys):
    folder = nightly(tmp_path, [*STEADY, *[1.5] * 3], fingerprint="a" * 20 + "b" * 3)
    _, findings = told(capsys, folder)
    assert sorted(f["verdict"] for f in findings) == ["INCONCLUSIVE", "MISSING"]
    assert [len(f["points"]) for f in findings] == [20, 3]


def test_a_change_of_level_is_told_and_gates_nothing(tmp_path, capsys):
    folder = nightly(tmp_path, [*STEADY[:15], *(1.2 * x for x in STEADY[:15])])
    code, findings = told(capsys, folder, "--history-blocking")
    assert code == 0 and findings[0]["verdict"] == "PASS" and abs(findings[0]["change_points"][0] - 15) <= 1
    assert entry.main(["gate", "history", folder]) == 0
    assert "its level changed at" in capsys.readouterr().out


def test_t16_campaigns_that_vary_keep_to_the_level():
    """Launches of a campaign agree, campaigns differ by 2 %: nominal is one alarm in a thousand."""
    random = np.random.default_rng(1)
    values = 0.02 * random.standard_normal((4000, 21)) + 0.002 * random.standard_normal((4000, 21))
    alarms = sum(statistics.history_p(row[:-1], row[-1]) <= history.LEVEL for row in values)
    assert alarms <= 12  # of 4,000; a true rate of 1 in 1000 exceeds it in 0.03 % of seeds


def test_paths_are_campaigns_of_their_own(tmp_path, capsys):
    nightly(tmp_path, STEADY[:12])
    _, findings = told(capsys, *map(str, tmp_path.iterdir()))
    assert len(findings[0]["points"]) == 12
    times = [point["time_utc"] for point in findings[0]["points"]]
    assert times == sorted(times)


@pytest.mark.parametrize("rows, code", [("", 4), (json.dumps(make_row(mode="sim")) + "\n", 4)])
def test_nothing_timed_is_no_pass(tmp_path, rows, code):
    (tmp_path / "x.jsonl").write_text(rows)
    assert entry.main(["gate", "history", str(tmp_path)]) == code


def test_the_folder_of_one_sweep_is_one_campaign(capsys, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "results" / "a.json").write_text(json.dumps(make_row()))
    code, found = told(capsys, str(tmp_path))
    assert code == 0 and "0 earlier campaigns" in found[0]["reason"]
