"""Constants of a software stack from a fifth of its rows, and the cases of rows through the binary."""

import json
import math
import os
import subprocess
import zlib
from pathlib import Path

from mb.errors import UserError

FITTED = Path(__file__).with_name("fitted_rows.json")  # stack -> ids of the rows that its constants were fitted on
CONSTANTS = {"compute_share": (0.3, 1.0), "memory_share": (0.1, 1.0), "comm_share": (0.2, 1.0), "host_us": (0.0, 150.0)}
MOST_ROWS = 40


def binary():
    folder = os.environ.get("MESHBENCH_BIN")
    path = Path(folder) / "meshbench" if folder else Path(__file__).parents[3] / "build/cpu/bench/meshbench"
    if not path.is_file():
        raise UserError(f"{path} is not there; build it, or name its folder in MESHBENCH_BIN")
    return path


def predict(cases):
    """Rows of `meshbench predict`, one for each case."""
    done = subprocess.run([binary(), "predict", "-"], input="".join(case + "\n" for case in cases), capture_output=True,
                          text=True, check=False)
    if done.returncode:
        raise UserError(f"meshbench predict: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def stacks():
    """Software stacks as the binary knows them."""
    return json.loads(subprocess.run([binary(), "stacks", "--json"], capture_output=True, text=True, check=True).stdout)


def chosen_rows(rows, share=5):
    """Those to fit on: a share by a hash of the id, which no measured value has a part in."""
    ordered = sorted(rows, key=lambda p: zlib.crc32(p.id.encode()))
    return ordered[:max(1, min(MOST_ROWS, len(rows) // share))]


def with_constants(case, stack, constants):
    return f"{case} stack={stack} " + " ".join(f"stack.{name}={value:.6g}" for name, value in constants.items())


def error(rows, stack, constants):
    """Mean |log(predicted / measured)|; a row that is refused counts as one."""
    predicted = predict([with_constants(p.words, stack, constants) for p in rows])
    return sum(abs(math.log(q["step_s"] / p.measured_s)) if "step_s" in q else 1.0
               for p, q in zip(rows, predicted, strict=True)) / len(rows)


# What the spread of a stack is before any row is seen: a few rows with the errors of stacks at large.
PRIOR_ROWS, PRIOR_SIGMA = 4, 0.06


def log_errors(rows, stack, constants):
    """log(predicted / measured) of rows that are predicted."""
    predicted = predict([with_constants(p.words, stack, constants) for p in rows])
    return [math.log(q["step_s"] / p.measured_s) for p, q in zip(rows, predicted, strict=True) if "step_s" in q]


def spread(errors, constants):
    """log_sigma of a stack from the log errors of the rows that so many constants were fitted on. From ten rows on, the
    conformal one, under which 80 % of further rows lie within 1.28 of it; else their mean square with the prior's."""
    n = len(errors)
    if n >= 10:
        sizes = sorted(abs(e) for e in errors)
        widened = sizes[min(n, math.ceil(0.8 * (n + 1))) - 1] * math.sqrt((n + constants) / n)
        return max(0.02, widened / 1.2816)
    return math.sqrt((PRIOR_ROWS * PRIOR_SIGMA**2 + sum(e * e for e in errors)) / (PRIOR_ROWS + max(0, n - constants)))


def fit(rows, stack, names):
    """Least mean |log error| over the named constants."""
    from scipy.optimize import minimize

    low, high = zip(*(CONSTANTS[name] for name in names), strict=True)

    def constants(x):
        return {name: min(max(lo + (hi - lo) * v, lo), hi) for name, v, lo, hi in zip(names, x, low, high, strict=True)}

    def loss(x):
        outside = sum(max(0.0, -v) + max(0.0, v - 1) for v in x)
        return error(rows, stack, constants(x)) + outside

    starts = ([0.7] * len(names),)
    best = min((minimize(loss, start, method="Nelder-Mead", options={"xatol": 2e-3, "fatol": 1e-4, "maxfev": 40})
                for start in starts), key=lambda found: found.fun)
    return {name: float(f"{value:.3g}") for name, value in constants(best.x).items()}, best.fun
