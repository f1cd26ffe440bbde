"""Cases of a sweep from its axes, in an order that the sweep's text alone decides.

The product of the axes as they stand, the last one fastest; lines of `zip` groups stand for one axis each, behind
the others; then the cases of `include`; without any of these, the base alone. Values that `presets` name stand for
the keys that the preset gives. Cases that match an `exclude` are left out. Of equal cases the first stays.
"""

import dataclasses
import itertools

from mb.errors import UserError
from mb.exit_codes import ExitCode
from mb.sweep.constraints import holds
from mb.sweep.identity import hash_of
from mb.sweep.words import scope_of


@dataclasses.dataclass(frozen=True)
class Case:
    config: dict  # as base, axes and include have it
    settings: dict  # the same with the keys of presets in the place of their names
    identity: str
    broken_rule: str | None  # the name of the first constraint that it breaks


@dataclasses.dataclass(frozen=True)
class Expansion:
    cases: list
    duplicates: int
    excluded: int
    idle_excludes: list  # rules of exclude that match no case


def values_of(axis, spec):
    """A list as it is; {from, to, step} and {from, to, times}, both ends included."""
    if isinstance(spec, list) and spec:
        return spec
    if isinstance(spec, dict) and set(spec) in ({"from", "to", "step"}, {"from", "to", "times"}):
        if values := _range(**{"start" if key == "from" else key: value for key, value in spec.items()}):
            return values
    raise UserError(f"axis {axis}: {spec!r}: write a list, {{from: 1, to: 9, step: 2}} or {{from: 1, to: 8, times: 2}}",
                    ExitCode.USAGE)


def _range(start, to, step=None, times=None):
    if not all(type(number) is int for number in (start, to, step or 1, times or 2)):
        return []
    if times is None:
        return list(range(start, to + 1, step)) if step > 0 else []
    if start < 1 or times < 2:
        return []
    return list(itertools.takewhile(lambda value: value <= to, (start * times**k for k in itertools.count())))


def _zipped(group):
    """The lines of axes that go together."""
    columns = {axis: values_of(axis, spec) for axis, spec in group.items()}
    lengths = {axis: len(values) for axis, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"zip: axes of a group want equally many values, not {lengths}", ExitCode.USAGE)
    return [dict(zip(columns, line)) for line in zip(*columns.values())]


def expand(sweep):
    """All cases of {base, axes, zip, include, exclude, constraints: [{name, rule, reason}]}."""
    factors = [[{axis: value} for value in values_of(axis, spec)] for axis, spec in sweep.get("axes", {}).items()]
    factors += [_zipped(group) for group in sweep.get("zip", [])]
    lines = itertools.product(*factors) if factors or not sweep.get("include") else []
    parts = [{key: value for part in line for key, value in part.items()} for line in lines]
    configs = [{**sweep.get("base", {}), **part} for part in [*parts, *sweep.get("include", [])]]
    presets = _presets(sweep)
    settings = [_settings(config, presets) for config in configs]
    seen = [{**config, **all_keys} for all_keys, config in zip(settings, configs)]  # by rules: names and keys
    excluded = [any(_matches(keys, rule) for rule in sweep.get("exclude", [])) for keys in seen]
    unique = {}
    for config, all_keys, keys, out in zip(configs, settings, seen, excluded):
        if not out:
            unique.setdefault(hash_of(all_keys), (config, all_keys, keys))
    cases = [Case(config, all_keys, identity, _broken(keys, sweep.get("constraints", [])))
             for identity, (config, all_keys, keys) in unique.items()]
    idle = [rule for rule in sweep.get("exclude", []) if not any(_matches(keys, rule) for keys in seen)]
    return Expansion(cases, excluded.count(False) - len(unique), excluded.count(True), idle)


def _presets(sweep):
    """Those of a sweep; none may give what an axis gives."""
    presets = sweep.get("presets", {})
    axes = {*sweep.get("axes", {}), *(axis for group in sweep.get("zip", []) for axis in group)}
    for axis, named in presets.items():
        for name, keys in named.items():
            if both := sorted(axes & set(keys)):
                raise UserError(f"presets.{axis}.{name}: {both[0]} is an axis too; leave it out of one of them", ExitCode.USAGE)
    return presets


def _settings(config, presets):
    """The keys of a case, those of its presets before those of the base."""
    settings = {key: value for key, value in config.items() if key not in presets}
    for axis in presets.keys() & config.keys():
        if config[axis] not in presets[axis]:
            raise UserError(f"{axis}: {config[axis]}: no preset of this name; there are {', '.join(map(str, presets[axis]))}",
                            ExitCode.USAGE)
        settings |= presets[axis][config[axis]]
    return settings


def _matches(config, rule):
    return all(key in config and config[key] == value for key, value in rule.items())


def _broken(config, constraints):
    scope = scope_of(config)
    return next((c["name"] for c in constraints if not holds(c["name"], c["rule"], scope)), None)
