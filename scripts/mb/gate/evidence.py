"""What rows say: the values of their metrics, which rows are launches of one case, and where machines differ."""

import dataclasses
import math

RAN = ["ok", "oom_predicted"]
# Soft facts that differ from launch to launch.
RESTLESS = {"load_average", "clock_mhz", "celsius"}


@dataclasses.dataclass(frozen=True)
class Value:
    """One launch's value of a metric; None has a reason."""

    value: float | None
    unit: str
    reason: str = ""
    samples: tuple = ()


def values_of(row):
    """{metric: Value} of a row, with calls and bytes of its planned traffic by rank, axis and site."""
    values = {name: Value(metric["value"], metric["unit"], metric.get("reason", ""), tuple(metric.get("samples", ())))
              for name, metric in row["metrics"].items()}
    for part in row.get("traffic", []):
        name = f"traffic_{part['rank']}_{part['axis']}_{part['site']}_{part['kind']}"
        for key, unit in (("bytes", "B"), ("calls", "1")):
            value = part["plan"][key] if part["plan"] else None
            values[f"{name}_{key}"] = Value(value, unit, "" if part["plan"] else "the plan does not tell")
    return values


def inputs_of(row):
    """What derived metrics are computed from beside metrics; a quantity that the row lacks is not there."""
    peak, coll = row.get("peak") or {}, row.get("coll") or {}
    inputs = {"operation_bytes": coll.get("bytes"), "bus_factor": coll.get("factor"),
              "devices_flops_per_s": peak["flops_per_s"] * peak["devices"] if peak.get("flops_per_s") else None}
    return {name: value for name, value in inputs.items() if value is not None}


def detail_of(row):
    """Which of the rows that one case leaves: the operation and size of a collective, the order of a placement."""
    if row["suite"] == "coll":
        told = row["params"]
        words = [str(told.get("op")), f"size={told.get('size')}", f"axis={told.get('axis')}",
                 f"group={told.get('group_index')}", f"in_place={told.get('in_place')}",
                 f"algorithm={told.get('algorithm')}", f"beside={told.get('beside')}"]
        return " ".join(words)
    if row["suite"] == "place" and row.get("placement"):
        return "order=" + " = ".join(row["placement"]["orders"])
    return ""


def key_of(row):
    """Rows with the same key are launches of the same thing."""
    return row["suite"], row["case"], row["case_version"], detail_of(row)


def by_key(rows):
    found = {}
    for row in rows:
        found.setdefault(key_of(row), []).append(row)
    return found


def finite(value):
    return isinstance(value, (int, float)) and math.isfinite(value)


def differences(base, candidate, kind):
    """Facts of the machine, "hard" or "soft", that are not the same in all rows of both sides."""
    facts = [row["fingerprint"][kind] for row in (*base, *candidate) if row["status"] in RAN]
    split = sum(row["status"] in RAN for row in base)
    found = []
    for name in sorted({name for of_row in facts for name in of_row} - RESTLESS):
        if kind == "soft" and not all(any(name in of_row for of_row in side) for side in (facts[:split], facts[split:])):
            continue  # a build that did not look
        sides = [sorted({_text(of_row.get(name)) for of_row in side}) for side in (facts[:split], facts[split:])]
        if len({*sides[0], *sides[1]}) > 1 and all(sides):
            found.append({"fact": name, "base": " or ".join(sides[0]), "candidate": " or ".join(sides[1])})
    return found


def _text(fact):
    return "unknown" if fact is None else str(fact).lower() if isinstance(fact, bool) else str(fact)
