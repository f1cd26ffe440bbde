"""Verdicts on stored rows, and that each way in which a gate passes silently does not."""

import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from conftest import make_coll_row, make_row
from mb import main as entry
from mb.gate import registry, statistics, verdict
from mb.gate.command import main


def changed(row, **metrics):
    row = copy.deepcopy(row)
    for name, value in metrics.items():
        row["metrics"][name]["value"] = value
    return row


def of(findings, metric):
    """The finding on a metric."""
    return next(finding for finding in findings if finding["metric"] == metric)


def with_facts(row, kind, **facts):
    print_ = row["fingerprint"]
    return {**row, "fingerprint": {**print_, kind: {**print_[kind], **facts}}}


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


def test_t3_a_metric_that_follows_from_others_may_not_vanish_either():
    candidate = copy.deepcopy(SIM)
    del candidate["metrics"]["tokens_per_s"]
    assert of(verdict.compare([SIM], [candidate]), "tokens_per_s")["verdict"] == "MISSING"
    candidate["metrics"]["tokens_per_s"] = {"value": None, "unit": "token/s", "n": 0, "reason": "no clock"}
    assert of(verdict.compare([SIM], [candidate]), "tokens_per_s")["reason"] == "no clock"


@pytest.mark.parametrize("name, text", [("empty.jsonl", ""), ("blank.jsonl", "\n\n"), ("empty.json", ""), ("torn.jsonl", '{"schema": ')])
def test_t3_a_file_without_rows_is_no_pass_and_is_named(tmp_path, row_file, capsys, name, text):
    (tmp_path / name).write_text(text)
    assert entry.main(["gate", str(row_file([SIM])), str(tmp_path / name)]) == 4
    assert name in capsys.readouterr().err


def test_t4_sets_without_a_case_in_common_are_counted(row_file, capsys):
    files = [str(row_file([SIM], "a.jsonl")), str(row_file([make_row("pp2", mode="sim"), make_row("pp8", mode="sim")], "b.jsonl"))]
    assert main(files) == 4
    assert "1 MISSING, 2 NEW; 1 rows of the base, 2 of the candidate; exit 4" in capsys.readouterr().out


def test_t22_bare_nan_of_other_programs_is_read_as_null_and_errs(tmp_path, row_file, capsys):
    wrong = copy.deepcopy(SIM)
    wrong["metrics"]["step_s"]["samples"] = [float("nan")]
    wrong["metrics"]["step_s"]["value"] = float("nan")
    file = tmp_path / "foreign.jsonl"
    file.write_text(json.dumps(wrong) + "\n")
    assert "NaN" in file.read_text()
    assert main(["--json", str(row_file([SIM])), str(file)]) == 3
    document = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert of(document["findings"], "step_s")["reason"] == "a value is not finite: not finite: nan in the file"
    assert entry.main(["rows", str(file)]) == 4  # our own are strict


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_t6_what_is_not_finite_equals_nothing(value):
    row = changed(SIM, step_s=value)
    assert code([row], [row]) == 3


@pytest.mark.parametrize("unit, factor", [("us", 1e6), ("ms", 1e3), ("ns", 1e9)])
def test_t8_the_same_value_in_another_unit_is_equal(unit, factor):
    candidate = changed(SIM, step_s=STEP * factor)
    candidate["metrics"]["step_s"]["unit"] = unit
    assert of(verdict.compare([SIM], [candidate]), "step_s")["verdict"] == "PASS"


@pytest.mark.parametrize("unit", ["fortnight", "B", "S"])
def test_t8_a_unit_of_something_else_is_incomparable(unit):
    candidate = copy.deepcopy(SIM)
    candidate["metrics"]["step_s"]["unit"] = unit
    assert verdict.compare([SIM], [candidate])[0]["verdict"] == "INCOMPARABLE"


def test_t8_thousands_and_powers_of_two_differ():
    assert [registry.in_unit(1, unit, "B") for unit in ("GB", "GiB")] == [1e9, 2**30]
    assert registry.in_unit(1, "GiB/s", "B/s") == 2**30 and registry.in_unit(1, "GB", "B/s") is None


@pytest.mark.parametrize("entry", [e for e in registry.entries() if e["direction"] != "none"], ids=lambda entry: entry["name"])
def test_t9_worse_is_worse_in_the_direction_of_each_metric(entry):
    worse, better = (1.2, 0.8) if entry["direction"] == "lower" else (0.8, 1.2)
    judged = {**entry, "class": "exact"}
    assert verdict.judge_values(judged, [100.0], [100.0 * worse])[0] == "REGRESSED"
    assert verdict.judge_values(judged, [100.0], [100.0 * better])[0] == "CHANGED"


@settings(deadline=None)
@given(st.sampled_from([e for e in registry.entries() if e["direction"] != "none"]),
       st.floats(1e-6, 1e12), st.floats(1.06, 10))
def test_t9_whatever_the_value_worse_fails_and_better_does_not(entry, value, factor):
    judged = {**entry, "class": "counted", "floor": 0.05 * (value if entry["scale"] == "difference" else 1)}
    worse, better = (value * factor, value / factor)[::registry.DIRECTIONS[entry["direction"]]]
    assert verdict.judge_values(judged, [value], [worse])[0] == "REGRESSED"
    assert verdict.judge_values(judged, [value], [better])[0] in ("IMPROVED", "PASS")


@settings(deadline=None, max_examples=25)
@given(st.floats(0.03, 1.0), st.integers(0, 10**6), st.booleans())
def test_t9_times_that_grow_fail_and_times_that_fall_do_not(effect, seed, slower):
    noise = 0.002 * np.random.default_rng(seed).standard_normal((2, 1, 70))
    shifted = noise[0] - noise[1] + (effect if slower else -effect)
    decision = statistics.two_stage(shifted[:, :10], lambda rows, n: shifted[rows, 10:10 + n], 1)
    assert decision.verdict[0] == ("REGRESSED" if slower else "IMPROVED")


def test_t9_a_metric_without_direction_is_refused():
    import jsonschema

    entry = {"name": "x", "unit": "s", "class": "exact", "scale": "ratio", "floor": 0}
    with pytest.raises(jsonschema.ValidationError, match="direction"):
        registry.checked(json.dumps({"metrics": [entry]}))
    with pytest.raises(jsonschema.ValidationError):
        registry.checked(json.dumps({"metrics": [{**entry, "direction": "none"}]}))


def test_t10_a_metric_that_the_machine_sets_is_incomparable_on_another(row_file):
    rss = {"value": 10**8, "unit": "B", "n": 1, "min": 10**8, "median": 10**8, "mean": 10**8}
    base = {**make_row(), "metrics": {**make_row()["metrics"], "process_peak_rss_bytes": rss}}
    other = with_facts(base, "hard", cpu_model="another", usable_cpus=96)
    finding = of(verdict.compare([base], [other]), "process_peak_rss_bytes")
    assert finding["verdict"] == "INCOMPARABLE" and "cpu_model" in finding["reason"] and "-> 96" in finding["reason"]
    assert code([base], [other]) == 3
    advice = verdict.compare([base], [other], any_fingerprint=True)
    assert verdict.exit_code(advice) == 0 and of(advice, "process_peak_rss_bytes")["gates"] is False


def test_t10_virtual_time_gates_on_any_machine_but_not_against_another_simulated_one():
    assert code([SIM], [with_facts(SIM, "hard", cpu_model="another", compiler="Clang 19")]) == 0
    assert code([with_facts(SIM, "hard", simulated_machine="a" * 16)], [with_facts(SIM, "hard", simulated_machine="b" * 16)]) == 3


def test_t11_soft_facts_warn_and_no_more(row_file, capsys):
    other = with_facts(SIM, "soft", hostname="another", kernel="7.0", load_average=3.0)
    files = [str(row_file([with_facts(SIM, "soft", hostname="one")], "a.jsonl")), str(row_file([other], "b.jsonl"))]
    assert main(files) == 0
    said = capsys.readouterr().out
    assert "warning: hostname differs: one, candidate another" in said and "load_average" not in said


def test_t13_another_version_of_a_case_is_new():
    bumped = {**changed(SIM, step_s=2 * STEP), "case_version": 2}
    other = make_row(mesh="pp2", mode="sim")
    findings = verdict.compare([SIM, other], [bumped, other])
    assert of(findings, "status")["verdict"] == "NEW" and "version 1 of the case became 2" in of(findings, "status")["reason"]
    assert verdict.exit_code(findings) == 0
    assert code([SIM], [bumped]) == 4  # and nothing was compared


def test_launches_that_differ_in_virtual_time_are_nondeterministic():
    assert verdict.compare([SIM], [SIM, changed(SIM, step_s=2 * STEP)])[0]["verdict"] == "NONDETERMINISTIC"


def test_what_does_not_follow_from_its_time_is_inconsistent():
    findings = verdict.compare([SIM], [changed(SIM, mfu=0.9)])
    assert "INCONSISTENT" not in {f["verdict"] for f in findings}  # a row of tests has no model_flops_per_s
    wrong = copy.deepcopy(SIM)
    wrong["metrics"]["tokens"] = {"value": 2048.0, "unit": "token", "n": 1, "min": 2048.0, "median": 2048.0, "mean": 2048.0}
    right = copy.deepcopy(wrong)
    right["metrics"]["tokens"]["value"] = 1024.0
    finding = of(verdict.compare([right], [wrong]), "tokens_per_s")
    assert finding["verdict"] == "INCONSISTENT" and "candidate: is " in finding["reason"] and "tokens / step_s" in finding["reason"]
    assert verdict.compare([right], [right])[0]["verdict"] == "PASS" and code([wrong], [wrong]) == 3


def test_rates_of_collectives_follow_from_their_times():
    row = make_coll_row(size=1000, busbw=2e6, samples=(1e-3,) * 10)
    row["metrics"]["algbw_bytes_per_s"] = {**row["metrics"]["busbw_bytes_per_s"], "value": 1e6}
    row["coll"]["factor"] = 2.0
    assert "INCONSISTENT" not in {f["verdict"] for f in verdict.compare([row], [row])}
    row["coll"]["factor"] = 1.5
    assert of(verdict.compare([row], [row]), "busbw_bytes_per_s")["verdict"] == "INCONSISTENT"


def test_sizes_of_a_collective_are_cases_of_their_own():
    rows = [make_coll_row(size=size, samples=(size * 1e-9,) * 10) for size in (1000, 2000)]
    findings = [f for f in verdict.compare(rows, rows[:1]) if f["verdict"] == "MISSING"]
    assert len(findings) == 1 and "size=2000" in findings[0]["detail"]


def test_g10_exact_and_counted_metrics_never_alarm_and_always_see():
    random = np.random.default_rng(1)
    exact = {"class": "exact", "scale": "ratio", "floor": 0.0, "direction": "lower"}
    counted = {**exact, "class": "counted", "floor": 0.02}
    for value in 10 ** random.uniform(-9, 15, 10_000):
        assert verdict.judge_values(exact, [value, value], [value])[0] == "PASS"
        assert verdict.judge_values(exact, [value], [value * (1 + 2e-9)])[0] == "REGRESSED"
        noise = value * (1 + 0.0099 * random.uniform(-1, 1, (2, 3)))
        assert verdict.judge_values(counted, *noise)[0] == "PASS"
        assert verdict.judge_values(counted, noise[0], 1.05 * noise[1])[0] == "REGRESSED"


def test_less_room_before_memory_runs_out_fails():
    """Exact in virtual time; of a measured process, where 2 % of what is left are lost."""
    def rows(mode, left):
        row = make_row(mode=mode)
        return [{**row, "metrics": {**row["metrics"], "headroom_bytes": {"value": left, "unit": "B", "n": 1}}}]

    def verdict_of(mode, base, candidate):
        return next(f["verdict"] for f in verdict.compare(rows(mode, base), rows(mode, candidate)) if f["metric"] == "headroom_bytes")

    assert verdict_of("sim", 10**9, 10**9 - 1) == "REGRESSED" and verdict_of("sim", 10**9, 10**9 + 1) == "CHANGED"
    assert verdict_of("sim", -10, -20) == "REGRESSED"  # does not fit, and less so
    assert verdict_of("threads", 10**9, 985 * 10**6) == "PASS" and verdict_of("threads", 10**9, 975 * 10**6) == "REGRESSED"


def test_times_of_stored_rows_are_not_judged():
    row = make_row()
    assert code([row], [changed(row, step_s=10.0)]) == 0


def test_out_of_memory_blocks_only_if_it_is_new():
    failed = {**SIM, "status": "oom"}
    assert [code([a], [b]) for a, b in ((SIM, failed), (failed, SIM))] == [3, 0]
    other = make_row(mesh="pp2", mode="sim")
    both = verdict.compare([failed, other], [failed, other])
    assert verdict.exit_code(both) == 0 and of(both, "status")["verdict"] == "BOTH_ERRORED"
    assert code([failed], [failed]) == 4  # nothing else was there to judge


def test_out_of_memory_by_plan_blocks_too_if_it_is_new():
    larger = {**changed(SIM, peak_bytes=100 * PEAK), "status": "oom_predicted"}
    assert code([SIM], [larger]) == 1 and of(verdict.compare([SIM], [larger]), "status")["verdict"] == "ERRORED"
    assert of(verdict.compare([larger], [SIM]), "status")["verdict"] == "FIXED"
    assert code([larger], [larger]) == 0


def test_t29_the_same_input_gives_the_same_bytes_and_text_agrees(row_file, capsys):
    files = [str(row_file([SIM], "a.jsonl")), str(row_file([changed(SIM, peak_bytes=PEAK + 1)], "b.jsonl"))]
    assert main(["--json", *files]) == 1
    first = capsys.readouterr().out
    assert main(["--json", *files]) == 1
    assert capsys.readouterr().out == first and json.loads(first)["counts"]["REGRESSED"] == 1
    assert main(files) == 1
    assert "REGRESSED  peak_bytes" in capsys.readouterr().out


def test_a_file_that_is_not_there_exits_with_4(tmp_path):
    assert entry.main(["gate", str(tmp_path / "none.json"), str(tmp_path / "none.json")]) == 4
