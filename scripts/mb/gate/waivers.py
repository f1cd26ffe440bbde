"""Waivers: regressions that are allowed for a while, each with a reason and a date on which it ends.

waivers:
  - case: "model=gpt-1m mesh=dp2*"   # patterns as of file names
    metric: peak_bytes
    allowed: 5 %                     # of the base's value; or a number in the metric's unit
    reason: a second bucket is live while the first is reduced
    issue: "12"
    expires: 2026-03-01              # the last day on which it holds
"""

import datetime
import fnmatch
import json
import pathlib
import re

from mb.errors import UserError

SCHEMA = {
    "type": "object", "required": ["waivers"], "additionalProperties": False,
    "properties": {"waivers": {"type": "array", "items": {
        "type": "object", "additionalProperties": False,
        "required": ["case", "metric", "allowed", "reason", "issue", "expires"],
        "properties": {
            "case": {"type": "string", "minLength": 1}, "metric": {"type": "string", "minLength": 1},
            "allowed": {"anyOf": [{"type": "number", "minimum": 0},
                                  {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?%$"}]},
            "reason": {"type": "string", "minLength": 1}, "issue": {"type": "string", "minLength": 1},
            "expires": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}}}}},
}


def load(path):
    """The waivers of a file."""
    import jsonschema
    import yaml

    try:
        # Dates become text again: JSON, which the schema is about, has none.
        content = json.loads(json.dumps(yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8")), default=str))
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: no waivers: {error}") from None
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(SCHEMA).iter_errors(content))
    if error is not None:
        raise UserError(f"{path}: {error.json_path}: {error.message}; mb gate --help shows one")
    for waiver in content["waivers"]:
        try:
            datetime.date.fromisoformat(waiver["expires"])
        except ValueError as error:
            raise UserError(f"{path}: expires: {waiver['expires']}: {error}; write it as 2026-03-01") from None
    return content["waivers"]


def _allowed(waiver, finding):
    """How much worse a finding may be, as its "worse" is told."""
    allowed = waiver["allowed"]
    if not isinstance(allowed, str):
        return allowed / (1 if finding["scale"] == "difference" else abs(finding["base"]) or 1)
    share = float(re.sub(r" ?%$", "", allowed)) / 100
    return share * (abs(finding["base"]) if finding["scale"] == "difference" else 1)


def apply(findings, waivers, today):
    """(findings, waivers) with what is waived marked, and each waiver with its state: used, unused or expired."""
    states, findings = ["unused"] * len(waivers), [dict(finding) for finding in findings]
    for finding in findings:
        if finding["verdict"] != "REGRESSED":
            continue
        for i, waiver in enumerate(waivers):
            if not (fnmatch.fnmatchcase(finding["case"], waiver["case"])
                    and fnmatch.fnmatchcase(finding["metric"], waiver["metric"])):
                continue
            if today > datetime.date.fromisoformat(waiver["expires"]):
                states[i] = "expired"
                finding["reason"] = f"its waiver ended on {waiver['expires']}: {waiver['reason']}"
            elif finding["worse"] <= _allowed(waiver, finding):
                states[i] = "used"
                finding |= {"verdict": "WAIVED",
                            "reason": f"until {waiver['expires']}, {waiver['issue']}: {waiver['reason']}"}
                break
            else:
                states[i] = "used"
                finding["reason"] = f"worse than the {waiver['allowed']} that its waiver allows"
    return findings, [{**waiver, "state": state} for waiver, state in zip(waivers, states)]
