"""What the gate knows of each metric: unit, direction that is better, and the rule by which it is judged."""

import fnmatch
import functools
import json
import pathlib

FILE = pathlib.Path(__file__).with_name("metrics.json")
CLASSES = ["exact", "counted", "timed", "derived", "info"]
SCHEMA = {
    "type": "object", "required": ["metrics"], "additionalProperties": False,
    "properties": {"metrics": {"type": "array", "items": {
        "type": "object", "additionalProperties": False,
        "required": ["name", "unit", "direction", "class", "scale", "floor"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "unit": {"enum": ["s", "B", "B/s", "FLOP", "FLOP/s", "token", "token/s", "1"]},
            "direction": {"enum": ["lower", "higher"]},
            "class": {"enum": CLASSES}, "virtual": {"enum": CLASSES},
            "scale": {"enum": ["ratio", "difference"]}, "floor": {"type": "number", "minimum": 0},
            "derived_from": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}}}}},
}


def checked(text):
    """The entries of a registry; jsonschema's error says which is wrong."""
    import jsonschema

    registry = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(registry)
    return registry["metrics"]


@functools.cache
def _entries():
    return checked(FILE.read_text(encoding="utf-8"))


def find(name, virtual):
    """The entry of a metric with the class that holds in virtual time or out of it; None if unknown."""
    for entry in _entries():
        if fnmatch.fnmatchcase(name, entry["name"]):
            timed = entry["class"] == "timed"
            kind = entry.get("virtual", "exact" if timed else entry["class"]) if virtual else entry["class"]
            return {**entry, "class": kind}
    return None


def worse(entry, base, candidate):
    """How much worse the candidate is, positive is worse: relative, or absolute on the difference scale."""
    sign = 1 if entry["direction"] == "lower" else -1
    change = candidate - base
    return sign * (change if entry["scale"] == "difference" else change / abs(base) if base else
                   0.0 if not change else float("inf") * change)
