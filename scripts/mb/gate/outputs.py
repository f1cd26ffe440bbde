"""A gate's document for people and for other programs: text, markdown, JUnit. None judges anything by itself."""

import re
import xml.etree.ElementTree as xml

from mb import color
from mb.exit_codes import ExitCode
from mb.gate import verdict

# A step summary of GitHub holds 1 MiB and loses everything if there is more; a comment holds 64 KiB.
SUMMARY_BYTES, COMMENT_BYTES = 900 * 1024, 60_000
MOST_ANNOTATIONS = 10  # of a kind in a step; GitHub drops the others
ERRORS = {"ERRORED", "MISSING", "INCOMPARABLE", "NONDETERMINISTIC", "INCONSISTENT"}
SKIPPED = {"INCONCLUSIVE", "NEW", "WAIVED"}
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))


def quantity(value, unit):
    """"1.234 ms", "19.2 GB"; counts and bytes below a million in full, so that a change of one shows."""
    if value is None:
        return "-"
    if unit in ("B", "token", "1") and float(value).is_integer() and abs(value) < 1e6:
        return f"{value:.0f} {unit}" if unit != "1" else f"{value:.0f}"
    if unit == "1":
        return f"{value:.6g}"
    factor, prefix = next((p for p in _PREFIXES if abs(value) >= p[0]), (1, ""))
    return f"{value / factor:.6g} {prefix}{unit}"


def _share(value, sign="+"):
    return f"{100 * value:{sign}.3g} %"


def _worse(finding, value):
    if value is None:
        return "-"
    if finding["scale"] == "ratio":
        return _share(value)
    return ("+" if value >= 0 else "-") + quantity(abs(value), finding["unit"])


def cells(finding):
    """What every output shows of a finding, as text: base, candidate, worse, interval, n, noise, detectable."""
    interval = "-" if finding["low"] is None else " to ".join(_worse(finding, finding[end]) for end in ("low", "high"))
    return [quantity(finding["base"], finding["unit"]), quantity(finding["candidate"], finding["unit"]),
            _worse(finding, finding["worse"]), interval, "-" if finding["n"] is None else str(finding["n"]),
            *("-" if finding[name] is None else _share(finding[name], "") for name in ("noise", "detectable"))]


COLUMNS = ["base", "candidate", "worse by", "95 % interval", "n", "noise", "detectable"]


def _shown(document):
    """Findings that people want to see: not what passed for sure, nor times of rows that were not launched in turns."""
    strict = document["exit"] == ExitCode.INCONCLUSIVE
    return [f for f in document["findings"]
            if not (f["verdict"] == "PASS" and f["class"] in ("exact", "counted"))
            and (strict or not verdict.is_unpaired(f))]


def _verdict(finding):
    return finding["verdict"] if finding["gates"] else f"{finding['verdict']}, advice"


def summary(document):
    """One line with the verdict, what it counts, and the exit code, which pipes and make may lose."""
    said = ", ".join(f"{n} {name}" for name, n in document["counts"].items()) or "no metric in common"
    return (f"gate: {document['verdict']}: {said}; {document['base']['rows']} rows of the base, "
            f"{document['candidate']['rows']} of the candidate; exit {document['exit']}")


def terminal(document):
    """Lines of text: a table, worst first, and what stands beside it; in colours on a terminal that wants them."""
    shown = _shown(document)
    lines = []
    if shown:
        table = [["verdict", "metric", *COLUMNS]]
        table += [[_verdict(f), f["metric"], *cells(f)] for f in shown]
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        texts = ["  ".join([line[1].ljust(widths[1])] + [cell.rjust(width) for cell, width in zip(line[2:], widths[2:])])
                 for line in table]
        head = f"{'verdict'.ljust(widths[0])}  {texts[0]}"
        lines += [head, "-" * len(head)]
        for text, finding in zip(texts[1:], shown):
            said = color.paint(_verdict(finding).ljust(widths[0]), color.of_verdict(finding["verdict"]))
            lines += [f"{said}  {text}", *(f"    {part}" for part in (finding["detail"], finding["reason"]) if part),
                      f"    {finding['reproduce']}"]
    lines += [f"trade-off: {t['better']} became better, {t['worse']} worse: {t['case']} {t['detail']}".rstrip()
              for t in document["trade_offs"]]
    lines += [f"warning: {text}" for text in document["warnings"]]
    if document["unused_rules"]:
        lines.append(f"rules that met no metric: {', '.join(document['unused_rules'])}")
    if document["self_test"]:
        lines.append(f"self-test: {document['self_test']}")
    if document["campaign"]:
        lines.append(f"launches are kept in {document['campaign']}, order by seed {document['seed']}")
    kind = {ExitCode.OK: "good", ExitCode.REGRESSION: "bad", ExitCode.NO_VERDICT: "bad"}.get(document["exit"], "fair")
    return "\n".join([*lines, color.paint(summary(document), kind)])


def _cell(text):
    for old, new in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("`", "'"), ("\n", " ")):
        text = text.replace(old, new)
    return text


def _fitting(lines, limit):
    """As many lines as so many bytes hold, and one that counts the others."""
    size = 0
    for number, line in enumerate(lines):
        size += len(line.encode()) + 1
        if size > limit:
            return [*lines[:number], f"- {len(lines) - number} more lines do not fit here; mb gate --json has them"]
    return lines


def markdown(document, limit=SUMMARY_BYTES):
    """The same for a step summary or a comment: at most so many bytes, the worst first, and never less than a line."""
    head = [f"### {summary(document)}", ""]
    tail = [f"- warning: {_cell(text)}" for text in document["warnings"]]
    tail += [f"- {_cell(t['better'])} became better, {_cell(t['worse'])} worse: {_cell(t['case'])}"
             for t in document["trade_offs"]]
    tail = _fitting(tail, limit // 4)
    rows = [[_verdict(f), f["metric"], *cells(f), " ".join(p for p in (f["case"], f["detail"], f["reason"]) if p)]
            for f in _shown(document)]
    columns = ["verdict", "metric", *COLUMNS, "case"]
    table = [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)] if rows else []
    size = sum(len(line.encode()) + 1 for line in [*head, *table, *tail]) + 100
    for number, row in enumerate(rows):
        line = f"| {' | '.join(_cell(cell) for cell in row)} |"
        size += len(line.encode()) + 1
        if size > limit:
            tail.insert(0, f"- {len(rows) - number} more findings do not fit here; mb gate --json has them")
            break
        table.append(line)
    text = "\n".join([*head, *table, "", *tail]) + "\n"
    return text if len(text.encode()) <= limit else f"{head[0]}\n"


def _of_workflow(text, more=""):
    """Text in a workflow command of GitHub, where a line end would end it."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def annotations(document):
    """Lines that GitHub shows beside a change: the worst of each kind, and at last what the gate says in all."""
    kinds = {"error": [], "warning": [], "notice": []}
    for finding in document["findings"]:
        kind = {"failure": "error", "error": "error", "skipped": "warning"}.get(
            _kind(finding, strict=document["exit"] == ExitCode.INCONCLUSIVE))
        if verdict.is_unpaired(finding) and kind == "warning":
            continue
        if finding["verdict"] in ("IMPROVED", "CHANGED", "FIXED"):
            kind = "notice"
        if kind:
            kinds[kind].append(finding)
    lines = []
    for kind, findings in kinds.items():
        room = MOST_ANNOTATIONS - (kind == "notice")
        for finding in findings[:room]:
            said = ", ".join(f"{column} {cell}" for column, cell in zip(COLUMNS, cells(finding)) if cell != "-")
            text = "; ".join(part for part in (f"{finding['case']} {finding['detail']}".rstrip(), said, finding["reason"],
                                               finding["reproduce"]) if part)
            title = _of_workflow(f"{_verdict(finding)}: {finding['metric']}", more=":,")
            lines.append(f"::{kind} title={title}::{_of_workflow(text)}")
    return [*lines, f"::notice title=Gate::{_of_workflow(summary(document))}"]


def junit(document):
    """One testcase for each case and metric: a failure if it regressed, an error if it could not be judged."""
    suite = xml.Element("testsuite", name="meshbench gate")
    kinds = {"failure": 0, "error": 0, "skipped": 0}
    for finding in document["findings"]:
        name = " ".join(part for part in (finding["metric"], finding["detail"]) if part)
        case = xml.SubElement(suite, "testcase", classname=_plain(finding["case"]), name=_plain(name))
        kind = _kind(finding, strict=document["exit"] == ExitCode.INCONCLUSIVE)
        if kind:
            kinds[kind] += 1
            message = _plain(f"{_verdict(finding)}: " + ", ".join(
                f"{column} {cell}" for column, cell in zip(COLUMNS, cells(finding)) if cell != "-"))
            told = xml.SubElement(case, kind, message=message)
            told.text = _plain("\n".join(part for part in (finding["reason"], finding["reproduce"]) if part))
    if document["exit"] == ExitCode.NO_DATA:
        _nothing_judged(suite, document, kinds)
    suite.set("tests", str(len(suite)))
    for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(kinds[kind]))
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(suite, encoding="unicode") + "\n"


def _kind(finding, strict):
    if strict and finding["gates"] and finding["verdict"] == "INCONCLUSIVE":
        return "error"
    if not finding["gates"]:
        return "skipped" if finding["verdict"] in {"REGRESSED", *ERRORS, *SKIPPED} else None
    return {"REGRESSED": "failure"}.get(finding["verdict"]) or (
        "error" if finding["verdict"] in ERRORS else "skipped" if finding["verdict"] in SKIPPED else None)


def _nothing_judged(suite, document, kinds):
    """A report that compared nothing must not pass."""
    case = xml.SubElement(suite, "testcase", classname="gate", name="something to judge")
    xml.SubElement(case, "error", message=summary(document))
    kinds["error"] += 1


def _plain(text):
    """Text without the characters that XML cannot hold."""
    return re.sub("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
