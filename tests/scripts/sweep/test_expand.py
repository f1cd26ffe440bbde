"""Axes become cases in one order; equal ones are merged, and rules leave their name."""

import pytest

from mb.errors import UserError
from mb.sweep.expand import expand, values_of


def configs(sweep):
    return [case.config for case in expand(sweep).cases]


def test_the_last_axis_is_the_fastest_and_groups_stand_behind():
    made = configs({"axes": {"b": [1, 2], "a": ["x"]}, "zip": [{"c": [1, 2], "d": [3, 4]}], "base": {"e": 0}})
    assert [(c["b"], c["a"], c["c"], c["d"], c["e"]) for c in made] == [
        (1, "x", 1, 3, 0), (1, "x", 2, 4, 0), (2, "x", 1, 3, 0), (2, "x", 2, 4, 0)]


def test_ranges_have_both_ends():
    assert values_of("a", {"from": 1, "to": 9, "step": 4}) == [1, 5, 9]
    assert values_of("a", {"from": 2, "to": 16, "times": 2}) == [2, 4, 8, 16]


@pytest.mark.parametrize("spec", [[], 3, {"from": 1}, {"from": 0, "to": 8, "times": 2}, {"from": 1, "to": 8, "times": 1},
                                  {"from": 1, "to": 8, "step": 0}, {"from": 9, "to": 1, "step": 1}])
def test_axes_without_an_end_or_a_value_are_refused(spec):
    with pytest.raises(UserError, match="axis a: "):
        values_of("a", spec)


def test_equal_cases_are_merged_and_counted_and_excluded_ones_left_out():
    made = expand({"axes": {"a": [1, 2, 3]}, "include": [{"a": 1}, {"a": 4}], "exclude": [{"a": 2}]})
    assert [case.config["a"] for case in made.cases] == [1, 3, 4] and (made.duplicates, made.excluded) == (1, 1)


def test_t26_a_broken_rule_stays_with_its_case():
    rule = {"name": "heads_by_tp", "rule": "12 % tp == 0", "reason": "heads are divided"}
    made = expand({"axes": {"tp": [4, 5]}, "constraints": [rule]})
    assert [case.broken_rule for case in made.cases] == [None, "heads_by_tp"]


def test_groups_of_unequal_length_are_refused():
    with pytest.raises(UserError, match="equally many"):
        expand({"zip": [{"a": [1, 2], "b": [1]}]})


PRESETS = {"interconnect": {"fast": {"link": "a", "n": 2}, "slow": {"link": "b"}}}


def test_a_preset_stands_for_its_keys():
    sweep = {"base": {"n": 1}, "axes": {"interconnect": ["fast", "slow"]}, "presets": PRESETS,
             "include": [{"link": "b"}], "exclude": [{"interconnect": "gone"}], "constraints": [
                 {"name": "one", "rule": "n == 1 or interconnect == 'slow'", "reason": "r"}]}
    expansion = expand(sweep)
    assert [case.settings for case in expansion.cases] == [{"n": 2, "link": "a"}, {"n": 1, "link": "b"}]
    assert [case.config for case in expansion.cases] == [{"n": 1, "interconnect": "fast"}, {"n": 1, "interconnect": "slow"}]
    assert expansion.duplicates == 1 and expansion.idle_excludes == [{"interconnect": "gone"}]
    assert [case.broken_rule for case in expansion.cases] == ["one", None]


@pytest.mark.parametrize("more, message", [
    ({"axes": {"interconnect": ["fsat"]}}, "interconnect: fsat: no preset of this name; there are fast, slow"),
    ({"axes": {"interconnect": ["fast"], "n": [1]}}, "presets.interconnect.fast: n is an axis too")])
def test_presets_that_cannot_be_are_refused(more, message):
    with pytest.raises(UserError, match=message):
        expand({"presets": PRESETS, **more})
