"""Equal cases have one identity, others another."""

import pytest

from mb.sweep.identity import canonical, hash_of, run_key


def test_order_of_keys_and_sets_and_the_sign_of_zero_do_not_matter():
    assert hash_of({"a": 1, "b": -0.0, "c": {"y", "x"}}) == hash_of({"c": {"x", "y"}, "b": 0, "a": 1})


def test_the_hash_stays_what_it_was():
    assert canonical({"b": [1, 0.1], "a": "\u00e9"}) == '{"a":"\u00e9","b":[1,0.1]}'
    assert len(hash_of({})) == 16 and hash_of({}) == hash_of({})


def test_numbers_that_differ_and_texts_of_numbers_differ():
    assert len({hash_of({"a": value}) for value in (1, 2, "1", 0.1, 0.1 + 2e-17, True)}) == 6


def test_t22_what_json_cannot_say_is_refused():
    with pytest.raises(ValueError):
        hash_of({"a": float("nan")})


def test_another_build_or_machine_is_another_run():
    assert len({run_key({"a": 1}, build, machine) for build in "xy" for machine in "pq"}) == 4
