"""The identity of a case: a hash over all that decides its numbers, equal on every machine."""

import hashlib
import json

SCHEMA_MAJOR = 1


def canonical(value):
    """Text of a value: keys sorted, no spaces, floats by their shortest form, -0 as 0, sets sorted."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(_plain, value), key=canonical)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return 0 if isinstance(value, float) and value == 0 else value


def hash_of(value):
    """The first 16 hex digits of SHA-256 over the schema's major version and the canonical text."""
    return hashlib.sha256(f"{SCHEMA_MAJOR}\n{canonical(value)}".encode()).hexdigest()[:16]


def run_key(config, build, fingerprint):
    """Of a config measured by a build on a machine."""
    return hash_of([hash_of(config), build, fingerprint])
