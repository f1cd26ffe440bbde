"""A case of a sweep as the words of a command line, and as what its constraints may ask about."""

import math
import re
import shlex

AXES = ("dp", "rdp", "ep", "cp", "tp", "pp")


def text_of(value):
    """As the command line spells it; YAML reads on and off as true and false."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return repr(value) if isinstance(value, float) else str(value)


def words_of(config):
    """key=value words, sorted, the mesh made of its axes where these are given one by one."""
    sizes = {axis: config[axis] for axis in AXES if axis in config}
    rest = {key: text_of(value) for key, value in config.items() if key not in AXES}
    if sizes and "mesh" not in rest:
        rest["mesh"] = ".".join(f"{axis}{size}" for axis, size in sizes.items() if size != 1) or "1"
    return [f"{key}={rest[key]}" for key in sorted(rest, key=lambda key: (key not in ("model", "mesh"), key))]


def line_of(words):
    """Words as one line, which a shell and meshbench check --lines split the same way."""
    return " ".join(map(_quoted, words))


def _quoted(word):
    key, _, value = word.partition("=")
    return word if shlex.quote(value) == value or re.fullmatch(r"[^\s\"'\\$`&;|<>()*?#~!]+", value) else f"{key}='{value}'"


def scope_of(config):
    """What a constraint sees: the keys of the case, the size of every axis, and world, their product."""
    mesh = {axis: int(size) for axis, size in re.findall(r"([a-z]+)(\d+)", str(config.get("mesh", "")))}
    sizes = {axis: config.get(axis, mesh.get(axis, 1)) for axis in AXES}
    world = math.prod(sizes.values()) if all(isinstance(size, int) for size in sizes.values()) else 0
    return {**sizes, "world": world, **config}
