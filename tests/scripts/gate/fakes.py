"""Builds to launch that cost a millisecond: shell scripts that hand out prepared rows, one after the other."""

import copy
import json
import pathlib

import numpy as np

from conftest import make_row


def scaled(row, **factors):
    """A row whose metrics are multiplied, with everything that follows from step_s."""
    row = copy.deepcopy(row)
    follows = {"step_s": {"tokens_per_s": -1}}
    for name, factor in factors.items():
        for other, power in {name: 1, **follows.get(name, {})}.items():
            metric = row["metrics"][other]
            for key in ("value", "min", "median", "mean"):
                metric[key] *= factor**power
            metric["samples"] = [sample * factor**power for sample in metric.get("samples", [])]
    return row


def times(seed, count=80, cv=0.01, worse=1.0):
    """Factors of the times of launches, noise included."""
    return worse * np.exp(cv * np.random.default_rng(seed).standard_normal(count))


def build(folder, name, rows=(), before="", check="exit 0"):
    """A program that writes rows[i] on its launch number i; `before` is shell that sees $n and $out, and may exit.

    `check` is what it does when it is asked whether it takes a case.

    An entry of rows is a row, a list of rows, or text that is written as it stands.
    """
    home = pathlib.Path(folder) / name
    home.mkdir()
    for number, entry in enumerate(rows):
        rowed = entry if isinstance(entry, list) else [entry]
        text = entry if isinstance(entry, str) else "".join(json.dumps(row) + "\n" for row in rowed)
        (home / f"{number}").write_text(text, encoding="utf-8")
    program = home / "meshbench"
    program.write_text(f"""#!/bin/sh
[ "$1" != check ] || {{ {check}; }}
for out; do :; done
n=$(cat {home}/count 2>/dev/null || echo 0)
echo $((n + 1)) > {home}/count
echo "{name} $*" >> {home}/../launches
{before}
cp {home}/$n "$out"
""", encoding="utf-8")
    program.chmod(0o755)
    return str(program)


def timed_build(folder, name, seed, row=None, **options):
    """A build whose step takes 100 ms or so, with noise."""
    row = row or make_row()
    return build(folder, name, [scaled(row, step_s=factor) for factor in times(seed, **options)])


def launched(folder):
    """Names of the builds launched in a folder, in order."""
    return [line.split()[0] for line in (pathlib.Path(folder) / "launches").read_text().splitlines()]


def finding(document, metric, **fields):
    """The one finding on a metric."""
    found = [f for f in document["findings"] if f["metric"] == metric and all(f[k] == v for k, v in fields.items())]
    assert len(found) == 1, found
    return found[0]


