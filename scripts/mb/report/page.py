"""The page itself, from rows, traces and a gate's document: what stands on it, and its template filled in."""

import base64
import hashlib
import pathlib

from mb import color
from mb import rows as rows_of
from mb.figures import look, rounds
from mb.report import pictures, tables, timelines

FOLDER = pathlib.Path(__file__).parent
# Exit code of the gate -> its word, and the kind of its colour.
VERDICTS = {0: ("Passed", "good"), 1: ("Regressed", "bad"), 3: ("Could not judge", "bad"),
            4: ("Nothing in common to judge", "bad"), 5: ("Inconclusive", "fair")}
MOST_CHANGES = 8


def render(title, rows, traces, document, notes, command):
    """The text of the page; the same for the same inputs."""
    import jinja2

    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    steps = [row for row in rows if row["suite"] == "step"]
    colls = [row for row in rows if row["suite"] == "coll" and "coll" in row]
    shown, more = timelines.lanes_of(traces)
    scripts = [_script("tables.js"), *([_script("timeline.js")] if shown["traces"] else [])]
    every = [tables.outcomes(rows), tables.cases(steps), tables.colls(colls), *([tables.findings(document)] if document else [])]
    return environment.get_template("page.html").render(
        title=title, command=command, verdict=verdict(rows, document), counts=tables.counts(rows),
        changes=changes(document), best=best(steps), origin=origin(rows),
        tables=dict.fromkeys(tables.NAMES) | {table.name: table for table in every if table.lines},
        pictures=pictures.draw(rows, document), timelines=shown, timeline_notes=more, notes=[*said(document), *notes],
        sides=sides(document),
        commands=list(dict.fromkeys(tables.command(row) for row in rows))[:20], rows=len(rows),
        style=jinja2.utils.markupsafe.Markup((FOLDER / "page.css").read_text(encoding="utf-8")),
        scripts=[jinja2.utils.markupsafe.Markup(script) for script in scripts], policy=_policy(scripts))


def _script(name):
    return (FOLDER / name).read_text(encoding="utf-8")


def _policy(scripts):
    """Nothing is loaded from anywhere, and no script runs but these."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {hashes}"


def verdict(rows, document):
    """{word, kind, text} of the first screen: of the gate where there is one, else of whether all ran."""
    if document:
        word, kind = VERDICTS.get(document["exit"], ("Could not judge", "bad"))
        counts = ", ".join(f"{count} {name}" for name, count in document.get("counts", {}).items())
        return {"word": word, "kind": kind, "text": counts or "no findings"}
    bad = sum(1 for row in rows if color.of_status(row["status"]) == "bad")
    wrong = sum(1 for row in rows if row["status"] == "ok" and not row.get("virtual_time")
                and row.get("verified", {}).get("error") is not None and not row["verified"]["ok"])
    elements = sum(1 for row in rows if row["suite"] == "coll" and (row.get("coll", {}).get("check", {}).get("wrong") or 0))
    faults = [text for count, text in ((bad, f"{bad} failed"), (wrong, f"{wrong} not as one rank"),
                                       (elements, f"{elements} with wrong elements")) if count]
    if faults:
        return {"word": "Failures", "kind": "bad", "text": ", ".join(faults)}
    return {"word": "No failures", "kind": "good", "text": "no base to compare with: nothing here says faster or slower"}


def changes(document):
    """The worst findings that are no passes: {verdict, kind, metric, change, case}."""
    if not document:
        return None
    told = [finding for finding in document["findings"] if finding["verdict"] not in color.PASSES]
    return {"more": max(0, len(told) - MOST_CHANGES), "first": [
        {"verdict": finding["verdict"], "kind": color.of_verdict(finding["verdict"]), "metric": finding["metric"],
         "change": tables.change(finding), "reason": finding.get("reason") or "", "case": finding["case"]}
        for finding in told[:MOST_CHANGES]]}


def said(document):
    """Lines of the gate on itself: its self-test, warnings, waivers, what became better beside what became worse."""
    if not document:
        return []
    lines = [f"Self-test of the gate: {document['self_test']}"] if document.get("self_test") else []
    lines += [f"Traded in {t['case']}: {t['better']} is better, {t['worse']} worse." for t in document.get("trade_offs", [])]
    lines += [f"Waived until {w['expires']} ({w['state']}): {w['metric']} of {w['case']}, {w['reason']}, {w['issue']}"
              for w in document.get("waivers", [])]
    return lines + [f"Warning of the gate: {warning}" for warning in document.get("warnings", [])]


def sides(document):
    """[(base or candidate, where it is from, its commit, its machine)] that the gate compared."""
    found = [(name, document[name]) for name in ("base", "candidate") if name in (document or {})]
    return [(name, side["source"], look.commit(side["build"]) if side["build"] else "unknown",
             side["fingerprint"] or "unknown") for name, side in found]


def best(steps):
    """The five cases with the best MFU: (mesh, MFU in %, step in ms, command)."""
    ran = rounds.as_one([row for row in steps if row["status"] == "ok"])
    found = [(row, rows_of.value(row, "mfu"), rows_of.value(row, "step_s")) for row in ran]
    found = sorted((line for line in found if line[1] and line[2]), key=lambda line: -line[1])
    return [(row["params"].get("mesh", ""), f"{100 * mfu:.1f}", f"{1e3 * step:,.2f}", tables.command(row))
            for row, mfu, step in found[:5]]


def _fact(value):
    return ("no", "yes")[value] if isinstance(value, bool) else value


def origin(rows):
    """Where the numbers come from: machines, with what each has for itself and what all share, commits, builds, times."""
    machines = {}
    for row in rows:
        machines.setdefault(row["fingerprint"]["id"], row["fingerprint"]["hard"])
    shared = {key for facts in machines.values() for key in facts
              if len({str(other.get(key)) for other in machines.values()}) == 1}

    def text(facts, keys):
        return ", ".join(f"{key.replace('_', ' ')} {_fact(facts[key])}" for key in sorted(keys)
                         if facts.get(key) not in (None, "") and key != "flags_hash")

    told = [(name, text(facts, set(facts) - shared)) for name, facts in sorted(machines.items())]
    times = sorted(row["time_utc"] for row in rows)
    return {"shared": text(next(iter(machines.values()), {}), shared), "machines": told[:6], "more_machines": max(0, len(told) - 6),
            "commits": sorted({look.commit(row["build"]) for row in rows})[:6],
            "builds": sorted({f"{row['build']['compiler']}, {row['build']['type']}" for row in rows}),
            "times": times[:1] + times[-1:] if times else []}
