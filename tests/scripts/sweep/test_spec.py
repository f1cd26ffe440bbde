"""Files of sweeps: every fault is told with its line and what would do; words and identities follow from them."""

import json

import pytest
from hypothesis import given, settings, strategies

from fake_meshbench import fake, mb, rows_in  # noqa: F401
from mb.errors import UserError
from mb.sweep import points, spec
from mb.sweep.identity import canonical, hash_of, run_key
from mb.sweep.words import line_of, scope_of, words_of


def load(tmp_path, text):
    file = tmp_path / "s.yaml"
    file.write_text(text)
    return spec.load(file)


@pytest.mark.parametrize("text, message", [
    ("axes: {n: [1]}\naxis: {}", ":2: unknown key axis; did you mean axes? known: name, about"),
    ("axes:\n  n: [1]\nconstraints:\n  - name: a\n    rul: n > 1\n    reason: b", ":5: constraints.0: unknown key rul; did you mean rule?"),
    ("slurm:\n  partitoin: x", ":2: slurm: unknown key partitoin; did you mean partition?"),
    ("axes:\n  n: [1]\n  m: 3", ":3: axes.m: "),
    ("time_limit_s: -1", ":1: time_limit_s: -1 "),
    ("axes: {n: [1]}\nbase: {a: 1}\naxes: {n: [2]}", ":3: axes is there twice"),
    ("axes: [1", ": no YAML: "), ("- 1", "no sweep: write keys"), ("", "no sweep: write keys"),
    ("mpi: lam", ":1: mpi: 'lam' is not one of")])
def test_every_fault_has_its_line_and_what_would_do(tmp_path, text, message):
    with pytest.raises(UserError) as told:
        load(tmp_path, text)
    assert message in str(told.value) and told.value.code == 2


def test_a_file_that_is_not_there_is_told(mb, tmp_path):
    code, _, err = mb("sweep", tmp_path / "no.yaml")
    assert code == 4 and "no.yaml: cannot be read" in err


def test_a_key_that_no_case_has_ends_the_sweep_before_anything_runs(fake, mb, tmp_path):
    code, _, err = mb("sweep", fake.sweep_file(axes={"n": [1], "mesg": ["dp2"]}), "-o", tmp_path / "out")
    assert code == 2 and "key 'mesg' is not known" in err and not (tmp_path / "out").exists()


def test_t4_a_sweep_without_cases_is_no_success(fake, mb, tmp_path):
    code, _, err = mb("sweep", fake.sweep_file(exclude=[{"do": "ok"}], base={"do": "ok"}), "-o", tmp_path / "out")
    assert code == 4 and "no case" in err


def test_t28_a_rule_that_matches_nothing_is_reported(fake, mb, tmp_path):
    file = fake.sweep_file(exclude=[{"n": 2}, {"n": 7}])
    _, out, err = mb("sweep", file, "-o", tmp_path / "out", "--dry-run")
    assert "exclude {'n': 7} matches no case" in err and "{'n': 2}" not in err and "1 excluded" in out


def test_words_make_the_mesh_and_spell_as_the_command_line():
    assert words_of({"tp": 2, "dp": 4, "pp": 1, "model": "m", "clip": 0.5, "reshard": False, "steps": 3}) == [
        "mesh=dp4.tp2", "model=m", "clip=0.5", "reshard=off", "steps=3"]
    assert words_of({"dp": 1}) == ["mesh=1"]
    assert line_of(["link=intra:4GB/s,2us;inter:1GB/s,9us", "a=b"]) == "link='intra:4GB/s,2us;inter:1GB/s,9us' a=b"


def test_constraints_see_every_axis_of_the_mesh():
    scope = scope_of({"mesh": "dp2.tp4", "zero": 1})
    assert (scope["dp"], scope["tp"], scope["pp"], scope["world"], scope["zero"]) == (2, 4, 1, 8, 1)
    assert scope_of({"pp": 3, "cp": 2})["world"] == 6


def test_a_broken_constraint_is_a_record_with_its_name_and_reason(fake, mb, tmp_path):
    rule = {"name": "few", "rule": "n < 3", "reason": "three are too many"}
    code, out, _ = mb("sweep", fake.sweep_file(constraints=[rule]), "-o", tmp_path / "out")
    row = rows_in(tmp_path / "out")[3]
    assert code == 0 and "1 invalid       few: three are too many" in out and fake.ran() == [1, 2]
    assert (row["status"], row["sweep"]["rule"], row["status_detail"]["phase"]) == ("invalid", "few", "constraint")


def keys_of(fake, **changes):
    file = fake.sweep_file(axes={"n": [1]}, **changes)
    (point,) = points.make(file, spec.load(file)).points
    return point.config_hash, point.key


def test_identity_is_of_what_decides_the_numbers(fake):
    first = keys_of(fake)
    assert keys_of(fake, name="other", about="words", time_limit_s=3) == first
    assert keys_of(fake, base={"model": "same-by-another-name"}) == first
    assert keys_of(fake, base={"do": "ok"})[0] != first[0]
    head = json.loads((fake.folder / "head.json").read_text())
    for block, field, value in (("build", "git", "e" * 40), ("fingerprint", "id", "0" * 16)):
        changed = {**head, block: {**head[block], field: value}}
        (fake.folder / "head.json").write_text(json.dumps(changed))
        assert keys_of(fake)[0] == first[0] and keys_of(fake)[1] != first[1]


def test_whose_mpirun_it_is_counts_where_one_starts_the_ranks(fake):
    hashes = {(mode, mpi): points.make(file, spec.load(file)).points[0].config_hash for mode in ("mpi", "threads")
              for mpi in ("openmpi", "mpich") for file in [fake.sweep_file(axes={"n": [1]}, base={"mode": mode}, mpi=mpi)]}
    assert hashes["mpi", "openmpi"] != hashes["mpi", "mpich"] and hashes["threads", "openmpi"] == hashes["threads", "mpich"]


def test_a_file_that_a_case_names_counts_by_its_contents(fake, tmp_path):
    named = tmp_path / "flag"
    named.write_text("1")
    base = {"flag": f"@{named}"}
    first = keys_of(fake, base=base)
    named.write_text("2")
    assert keys_of(fake, base=base) != first
    named.write_text("1")
    assert keys_of(fake, base=base) == first


def test_a_changed_build_is_told_by_its_bytes(fake):
    head = json.loads((fake.folder / "head.json").read_text())
    head["build"]["dirty"] = True
    (fake.folder / "head.json").write_text(json.dumps(head))
    first = keys_of(fake)
    fake.program.write_text(fake.program.read_text() + "# changed\n")
    assert keys_of(fake)[0] == first[0] and keys_of(fake)[1] != first[1]


def test_equal_cases_by_their_defaults_are_merged(fake, mb, tmp_path):
    file = fake.sweep_file(axes={"n": [1]}, include=[{"n": 1, "mode": "threads"}, {"n": 1, "mesh": "dp2"}])
    _, out, _ = mb("sweep", file, "-o", tmp_path / "out", "--dry-run")
    assert "sweep s: 1 cases" in out and "2 equal to another" in out


SCALARS = strategies.one_of(strategies.booleans(), strategies.integers(), strategies.text(),
                            strategies.floats(allow_nan=False, allow_infinity=False))
CONFIGS = strategies.recursive(SCALARS, lambda inner: strategies.lists(inner, max_size=3) |
                               strategies.dictionaries(strategies.text(), inner, max_size=4), max_leaves=8)


@settings(max_examples=40, deadline=None)
@given(CONFIGS, strategies.randoms())
def test_a_hash_does_not_depend_on_the_order_of_keys(config, chance):
    def shuffled(value):
        if isinstance(value, dict):
            items = [(key, shuffled(item)) for key, item in value.items()]
            chance.shuffle(items)
            return dict(items)
        return [shuffled(item) for item in value] if isinstance(value, list) else value
    assert hash_of(shuffled(config)) == hash_of(config)
    assert hash_of(json.loads(canonical(config))) == hash_of(config)


@settings(max_examples=40, deadline=None)
@given(strategies.dictionaries(strategies.text(), SCALARS, min_size=1), strategies.data())
def test_a_hash_depends_on_every_value(config, data):
    key = data.draw(strategies.sampled_from(sorted(config)))
    value = data.draw(SCALARS)
    changed = {**config, key: value}
    assert (hash_of(changed) == hash_of(config)) == (canonical(value) == canonical(config[key]))
    assert len(hash_of(config)) == 16 and run_key(config, "a", "b") != run_key(config, "b", "a")


def test_text_and_number_are_not_one_value():
    assert len({hash_of({"a": value}) for value in (1, "1", 1.5, "1.5", True, None)}) == 6
