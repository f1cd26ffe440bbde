"""Findings of the gate: effect and interval of each, and its verdict by colour and shape."""

import json
import math

from mb.errors import UserError
from mb.figures import look, series

# Verdict -> colour, marker; others are grey circles.
LOOKS = {"REGRESSED": (look.VERMILION, "X"), "IMPROVED": (look.GREEN, "D"), "CHANGED": (look.PURPLE, "P"),
         "PASS(certified)": (look.BLUE, "s"), "PASS": (look.SKY, "o"), "INCONCLUSIVE": (look.ORANGE, "^"),
         "WAIVED": (look.YELLOW, "v"), "ERRORED": (look.BLACK, "x"), "MISSING": (look.BLACK, "+")}
OTHER = (look.GREY, "o")
MOST = 60
FLOOR = 2.0  # % below which a timed change is never a regression


def document(path):
    """What `mb gate --json` printed."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; make it with mb gate --json ... > {path}") from None
    except ValueError:
        content = None
    if not isinstance(content, dict) or not isinstance(content.get("findings"), list) or "exit" not in content:
        raise UserError(f"{path}: not what mb gate --json prints; make it with mb gate --json ... > {path}")
    return content


def load(paths):
    """Findings of what `mb gate --json` printed, in order."""
    return [finding for path in paths for finding in document(path)["findings"]]


def percent(finding, key="worse"):
    """A finding's effect, or an end of its interval, in %; None if it has none on the scale of ratios."""
    value = finding.get(key)
    if value is None or finding.get("scale") != "ratio" or not math.isfinite(value):
        return None
    return 100 * value


def forest(findings):
    """A line a finding, worst first; passes last, and left out where there is no room."""
    if not findings:
        raise look.NoData("no finding to draw; make some with mb gate --json BASE CANDIDATE > FILE")
    shown = [finding for finding in findings if percent(finding) is not None]
    if not shown:
        raise look.NoData(f"none of {len(findings)} findings has an effect; mb gate says what became of them")
    notes = [f"Without an effect in %, not drawn: {len(findings) - len(shown)}."] if len(shown) < len(findings) else []
    if len(shown) > MOST:
        notes.append(f"The worst {MOST} of {len(shown)}.")
        shown = sorted(shown, key=percent, reverse=True)[:MOST]
    figure = look.new_figure(13, 2.2 + 0.3 * len(shown), "What the gate found")
    ax = figure.subplots()
    ax.axvspan(-FLOOR, FLOOR, color=look.PALE, zorder=0)
    ax.axvline(0, color=look.BLACK, linewidth=0.8, zorder=1)
    handles, reach = {}, FLOOR
    for at, finding in enumerate(shown):
        effect = percent(finding)
        low, high = (percent(finding, key) for key in ("low", "high"))
        ends = [[max(0, effect - low)], [max(0, high - effect)]] if None not in (low, high) else None
        colour, marker = LOOKS.get(finding["verdict"], OTHER)
        bar = ax.errorbar(effect, at, xerr=ends, color=colour, marker=marker, markersize=7, capsize=3, linewidth=1.4,
                          markeredgecolor="black", markeredgewidth=0.6, linestyle="none", zorder=3)
        handles.setdefault(finding["verdict"], bar)
        reach = max(reach, abs(effect), *(abs(end) for end in (low, high) if end is not None))
    ax.set_yticks(range(len(shown)), [_name(finding) for finding in shown], fontsize=8)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.set_xscale("symlog", linthresh=10)
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 1000, 1e4) if tick <= 1.2 * reach]
    ticks = [tick for tick in ticks if tick in (2, 5) or tick >= 10]
    ax.set_xticks([*(-t for t in reversed(ticks)), 0, *ticks], [*(f"-{t:g}" for t in reversed(ticks)), "0", *(f"+{t:g}" for t in ticks)])
    ax.set_xticks([], minor=True)
    ax.set_xlim(-1.25 * reach, 1.25 * reach)
    ax.set_xlabel("candidate over base, + is worse (%)")
    series.grid_lines(ax, "x")
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False)
    pairs = sorted({finding["n"] for finding in shown if finding.get("n")})
    counted = f" n = {pairs[0]}" + (f" to {pairs[-1]}" if len(pairs) > 1 else "") + " pairs of launches." if pairs else ""
    look.annotate(figure, [f"Whiskers: 95 % interval, of timed metrics.{counted} Band: +-2 %, within which no time is a regression.",
                           *notes])
    return figure


def _name(finding):
    case = finding["case"]
    return f"{finding['metric']}   {case if len(case) <= 60 else case[:57] + '...'}"
