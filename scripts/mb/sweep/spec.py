"""A sweep as its file says it: YAML, held to sweep.schema.json, every fault with its line."""

import difflib
import json
import pathlib

from mb.errors import UserError
from mb.exit_codes import ExitCode

SCHEMA = pathlib.Path(__file__).with_name("sweep.schema.json")


def _node_at(node, path):
    """The node of the YAML text that a path of keys and indices leads to, as far as it goes."""
    for step in path:
        if isinstance(step, int):
            node = node.value[step]
        else:
            node = next((value for key, value in node.value if key.value == str(step)), node)
    return node


def _nearest(schema_error):
    """" (did you mean axes?)" for a key that the schema does not know."""
    known = schema_error.schema.get("properties", {})
    unknown = sorted(key for key in schema_error.instance if key not in known)
    near = difflib.get_close_matches(str(unknown[0]), known, 1, 0.4)
    meant = f"did you mean {near[0]}? " if near else ""
    return unknown[0], f"unknown key {unknown[0]}; {meant}known: {', '.join(known)}"


def load(file):
    """The sweep in a file, with a name. Throws UserError naming file, line, key and what would do."""
    import jsonschema
    import yaml

    file = pathlib.Path(file)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read: {error}; sweeps that come along are in scripts/sweeps") from None
    try:
        sweep, nodes = yaml.safe_load(text), yaml.compose(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise UserError(f"{file}{f':{mark.line + 1}' if mark else ''}: no YAML: {getattr(error, 'problem', error)}",
                        ExitCode.USAGE) from None
    if not isinstance(sweep, dict):
        raise UserError(f"{file}: no sweep: write keys such as base: and axes:, see scripts/sweeps", ExitCode.USAGE)
    _refuse_repeated(file, nodes)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    errors = list(jsonschema.Draft202012Validator(schema).iter_errors(sweep))
    if errors:
        # A key that is spelled wrong comes first: what misses for it is told by the same fault.
        error = next((e for e in errors if e.validator == "additionalProperties"), jsonschema.exceptions.best_match(errors))
        path, message = list(error.absolute_path), error.message
        if error.validator == "additionalProperties" and error.validator_value is False:
            key, message = _nearest(error)
            path.append(key)
        place = ".".join(map(str, error.absolute_path))
        raise UserError(f"{file}:{_line(nodes, path)}: {place + ': ' if place else ''}{message}", ExitCode.USAGE)
    return {"name": file.stem, **sweep}


def _line(nodes, path):
    node = nodes
    for length in range(len(path), -1, -1):
        try:
            node = _node_at(nodes, path[:length])
            break
        except (AttributeError, IndexError, TypeError):
            continue
    return node.start_mark.line + 1


def _refuse_repeated(file, node):
    """YAML keeps the last of two equal keys and says nothing."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if key.value in seen and key.value != "<<":
                raise UserError(f"{file}:{key.start_mark.line + 1}: {key.value} is there twice; leave one",
                                ExitCode.USAGE)
            seen.add(key.value)
            _refuse_repeated(file, value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated(file, item)
