"""Colours of words on a terminal. They say nothing that the words do not."""

import os
import sys

WHEN = ("auto", "always", "never")
CODES = {"good": "32", "fair": "33", "bad": "1;31"}
# Ends of cases and verdicts of the gate -> their kind; of verdicts all others are fair.
STATUSES = {"ok": "good", "timeout": "bad", "crash": "bad",
            **dict.fromkeys(("oom", "oom_predicted", "invalid", "unsupported", "cancelled"), "fair")}
PASSES = ("PASS", "PASS(certified)")
BAD = ("REGRESSED", "MISSING", "ERRORED", "NONDETERMINISTIC", "INCOMPARABLE", "INCONSISTENT")

_when = "auto"


def of_verdict(verdict):
    return "bad" if verdict in BAD else "good" if verdict in (*PASSES, "IMPROVED", "FIXED", "WAIVED") else "fair"


def of_status(status):
    return STATUSES.get(status, "bad")


def choose(when):
    """What --color says, for all that follows."""
    global _when
    _when = when


def wanted(stream):
    """The flag, then NO_COLOR, then FORCE_COLOR and CLICOLOR_FORCE, then whether it is a terminal that knows colours."""
    if _when != "auto":
        return _when == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text, kind, stream=None):
    """The text in the colour of its kind, good, fair or bad, where colours are wanted; as it is for any other."""
    if kind not in CODES or not wanted(stream or sys.stdout):
        return text
    return f"\033[{CODES[kind]}m{text}\033[0m"
