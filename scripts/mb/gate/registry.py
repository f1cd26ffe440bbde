"""What the gate knows of each metric: unit, direction that is better, and the rule by which it is judged."""

import fnmatch
import functools
import json
import pathlib

FILE = pathlib.Path(__file__).with_name("metrics.json")
CLASSES = ["exact", "counted", "timed", "derived", "info"]
DIRECTIONS = {"lower": 1, "higher": -1}  # sign of a change for the worse
# What other programs write, in the units of the registry. 1 GB is 1e9 bytes, 1 GiB is 2^30.
UNITS = {
    **{name: ("s", factor) for name, factor in (("s", 1), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))},
    **{f"{prefix}B{per}": (f"B{per}", factor) for per in ("", "/s") for prefix, factor in (
        ("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12),
        ("Ki", 2**10), ("Mi", 2**20), ("Gi", 2**30), ("Ti", 2**40))},
    **{f"{prefix}FLOP{per}": (f"FLOP{per}", factor) for per in ("", "/s")
       for prefix, factor in (("", 1), ("G", 1e9), ("T", 1e12), ("P", 1e15))},
    "token": ("token", 1), "token/s": ("token/s", 1), "1": ("1", 1), "%": ("1", 0.01),
}
SCHEMA = {
    "type": "object", "required": ["metrics"], "additionalProperties": False,
    "properties": {"metrics": {"type": "array", "items": {
        "type": "object", "additionalProperties": False,
        "required": ["name", "unit", "direction", "class", "scale", "floor"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "unit": {"enum": sorted({unit for unit, _ in UNITS.values()})},
            "direction": {"enum": [*DIRECTIONS, "none"]},
            "class": {"enum": CLASSES}, "virtual": {"enum": CLASSES},
            "scale": {"enum": ["ratio", "difference"]}, "floor": {"type": "number", "minimum": 0},
            "derived_from": {"type": "array", "prefixItems": [
                {"type": "string"}, {"enum": ["/", "*"]}, {"type": "string"}], "minItems": 3, "maxItems": 3}},
        # Only what never gates may have no direction.
        "if": {"properties": {"direction": {"const": "none"}}},
        "then": {"properties": {"class": {"const": "info"}, "virtual": False}},
        "allOf": [{"if": {"properties": {"class": {"const": "derived"}}}, "then": {"required": ["derived_from"]},
                   "else": {"properties": {"derived_from": False}}}]}}},
}


def checked(text):
    """The entries of a registry; jsonschema's error says which is wrong."""
    import jsonschema

    registry = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(registry)
    return registry["metrics"]


@functools.cache
def entries():
    return checked(FILE.read_text(encoding="utf-8"))


@functools.cache
def find(name, virtual):
    """The entry of a metric with the class that holds in virtual time or out of it; None if unknown.

    Callers share it, and leave it as it is.
    """
    for entry in entries():
        if fnmatch.fnmatchcase(name, entry["name"]):
            timed = entry["class"] == "timed"
            kind = entry.get("virtual", "exact" if timed else entry["class"]) if virtual else entry["class"]
            return {**entry, "class": kind}
    return None


def in_unit(value, unit, wanted):
    """A value in the unit of the registry; None where nothing is known of its unit, or it is of another quantity."""
    quantity, factor = UNITS.get(unit, (None, None))
    if quantity != wanted:
        return None
    return value if factor == 1 else value * factor


def worse(entry, base, candidate):
    """How much worse the candidate is, positive is worse: relative, or absolute on the difference scale."""
    sign = DIRECTIONS[entry["direction"]]
    change = candidate - base
    return sign * (change if entry["scale"] == "difference" else change / abs(base) if base else
                   0.0 if not change else float("inf") * change)
