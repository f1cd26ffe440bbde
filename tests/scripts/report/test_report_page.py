"""The page of mb report: what stands on it, that names cannot break it, that it is small and the same each time."""

import html.parser
import json
import re

import pytest

from conftest import failed_row, make_coll_row, make_row, make_trace, many_rows
from mb.errors import UserError
from mb.main import main
from mb.report import inputs, page, tables, timelines

pytestmark = pytest.mark.filterwarnings("error")
NASTY = """<img src=x onerror="document.title='hit'">'"</script><script>document.title='hit'</script>&amp;"""
FINDINGS = [{"case": "model=gpt-1m mesh=dp2", "metric": "step_s", "verdict": verdict, "scale": "ratio", "unit": "s", "base": 1.0,
             "candidate": 1 + worse, "worse": worse, "low": worse - 0.01, "high": worse + 0.01, "n": 24, "detectable": 0.03}
            for verdict, worse in (("REGRESSED", 0.08), ("IMPROVED", -0.1), ("PASS", 0.0))]
DOCUMENT = {"exit": 1, "counts": {"REGRESSED": 1, "IMPROVED": 1, "PASS": 1}, "findings": FINDINGS}


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """Draws no figure, but for tests that ask for figures: all of them take a second or two."""
    if "figures" not in request.fixturenames:
        monkeypatch.setattr(page.pictures, "draw", lambda rows, document: [])


@pytest.fixture
def figures():
    """Asks for figures."""


def trace(name="pipe", **sizes):
    return {"name": name, **make_trace(**sizes)}


def render(rows=(), traces=(), document=None, title="Report", notes=()):
    return page.render(title, list(rows), list(traces), document, list(notes), "mb report rows -o report.html")


class Tags(html.parser.HTMLParser):
    """Counts tags, and collects text and what attributes point to."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.text, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for key, value in attrs if key in ("src", "href", "action")]
        assert not [key for key, _ in attrs if key.startswith("on")]
        if tag not in ("meta", "img", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_holds_all_it_needs_and_closes_its_tags(figures):
    parsed = Tags(render([make_row("pp4"), make_row("dp2"), make_coll_row()], [(trace(), None)], DOCUMENT))
    assert parsed.open == [] and parsed.tags.count("table") == 3
    assert [link for link in parsed.links if not link.startswith(("#", "data:image/"))] == []


def test_the_first_screen_is_the_gates_verdict_and_what_changed():
    text = "".join(Tags(render([make_row()], document=DOCUMENT)).text)
    first = text[:text.index("Where it ran")]
    assert "Regressed" in first and "1 REGRESSED, 1 IMPROVED, 1 PASS" in first
    assert first.index("step_s +8 %") < first.index("step_s -10 %")
    assert "fedcba9876543210" in text and "0123456789" in text


def test_what_the_gate_says_of_itself_is_there():
    side = {"source": "base/", "rows": 1, "build": make_row()["build"], "fingerprint": "f" * 16}
    text = "".join(Tags(render(document={
        **DOCUMENT, "base": side, "candidate": {**side, "build": None}, "self_test": "both as they should be",
        "warnings": ["governor differs"], "trade_offs": [{"case": "c", "detail": "", "better": "step_s", "worse": "peak_bytes"}],
        "waivers": [{"case": "c", "metric": "m", "allowed": 0.1, "reason": "wanted", "issue": "7", "expires": "2027-01-01",
                     "state": "used"}]})).text)
    for word in ("base/, commit 0123456789, machine ffff", "commit unknown", "both as they should be", "governor differs",
                 "step_s is better, peak_bytes worse", "Waived until 2027-01-01 (used): m of c, wanted, 7"):
        assert word in text


@pytest.mark.parametrize("worse, scale, unit, text", [
    (0.08, "ratio", "s", "+8 %"), (0.0, "ratio", "s", "0"), (-0.0, "difference", "1", "0"), (0.25, "difference", "1", "+0.25"),
    (-4096, "difference", "B", "-4096 B"), (None, None, None, "")])
def test_changes_are_signed_so_that_plus_is_worse(worse, scale, unit, text):
    assert tables.change({"worse": worse, "scale": scale, "unit": unit}) == text


@pytest.mark.parametrize("code, word", [(0, "Passed"), (1, "Regressed"), (3, "Could not judge"), (5, "Inconclusive")])
def test_each_exit_code_of_the_gate_has_its_word(code, word):
    assert page.verdict([], {"exit": code, "findings": []})["word"] == word


def test_without_a_gate_the_verdict_is_whether_all_ran():
    oom = [make_row(), failed_row("oom"), failed_row("invalid")]
    assert page.verdict(oom, None)["word"] == "No failures"
    assert page.verdict([*oom, failed_row("crash"), failed_row("timeout")], None)["text"] == "2 failed"
    wrong = make_row()
    wrong["verified"] = {"ok": False, "by": "one rank in fp64", "error": 0.5}
    assert page.verdict([wrong], None)["text"] == "1 not as one rank"
    coll = make_coll_row()
    coll["coll"]["check"]["wrong"] = 3
    assert page.verdict([coll], None)["kind"] == "bad"


def test_what_machines_have_in_common_is_told_once():
    rows = [make_row("dp2"), make_row("dp4")]
    for row, name in zip(rows, "ab"):
        row["fingerprint"] = {"id": name, "hard": {"cores": 2, "virtualized": True, "gpus": None, "ram_gib": ord(name)}, "soft": {}}
    found = page.origin(rows)
    assert found["shared"] == "cores 2, virtualized yes"
    assert found["machines"] == [("a", "ram gib 97"), ("b", "ram gib 98")]


def test_outcomes_are_counted_and_told_with_reasons():
    rows = [make_row(), failed_row("oom_predicted", "needs 9 GiB"), failed_row("crash", "signal 11")]
    assert tables.counts(rows) == [("ran", "good", 1), ("would not fit", "fair", 1), ("crashed", "bad", 1)]
    assert [[cell.text for cell in line][2] for line in tables.outcomes(rows).lines] == ["needs 9 GiB", "signal 11"]
    assert "signal 11" in "".join(Tags(render(rows)).text)


def test_numbers_that_are_not_there_are_no_zeros():
    row = make_row(mode="sim")
    row["metrics"]["mfu"] = {"value": None, "unit": "1", "n": 0, "reason": "no peak"}
    line, = tables.cases([row]).lines
    mfu = line[[name for name, _ in tables.cases([row]).columns].index("MFU, %")]
    assert mfu.text == "–"
    assert all(cell.text != "0" for cell in tables.cases([failed_row()]).lines[0])


@pytest.mark.parametrize("value, factor, text", [
    (0.0123456789, 1e3, "12.346"), (1234567.8, 1, "1,234,568"), (7, 1, "7"), (0.0, 100, "0"), (3e-9, 1e3, "3.0000e-06"),
    (None, 1, "–")])
def test_numbers_have_five_digits_that_count(value, factor, text):
    assert tables.number(value, factor).text == text


def test_a_row_names_the_command_that_makes_it_anew():
    row = {**make_row(), "case": "model=gpt-1m mesh=dp2 link=intra:4GB/s,2us;inter:1GB/s,1ms"}
    assert tables.command(row) == "meshbench run model=gpt-1m mesh=dp2 'link=intra:4GB/s,2us;inter:1GB/s,1ms'"
    quoted = {**row, "case": "model=gpt-1m mesh=dp2 link='intra:4GB/s,2us;inter:1GB/s,1ms'"}
    assert tables.command(quoted) == tables.command(row)
    assert tables.command({**row, "case": "model='odd"}) == """meshbench run 'model='"'"'odd'"""
    assert tables.command(make_coll_row()).startswith("meshbench coll ")


def test_findings_that_fail_are_all_told_and_those_that_pass_as_far_as_there_is_room():
    many = {"exit": 1, "findings": FINDINGS[:1] * 50 + FINDINGS[2:] * 3000}
    found = tables.findings(many)
    assert len(found.lines) == tables.MOST_FINDINGS and "1050 more pass" in found.caption


def test_names_full_of_brackets_and_quotes_stay_text(figures):
    row = {**make_row("pp4"), "case": NASTY}
    row["params"] = {**row["params"], "mesh": NASTY, "schedule": NASTY}
    failed = failed_row("crash", NASTY)
    named = trace(NASTY)
    named["traceEvents"][1]["name"] = NASTY
    text = render([row, make_row("dp2"), failed], [(named, None)], {"exit": 1, "counts": {NASTY: 1}, "findings": [
        {**FINDINGS[0], "case": NASTY, "metric": NASTY, "reason": NASTY}]}, title=NASTY, notes=[NASTY])
    parsed = Tags(text)
    assert parsed.open == [] and parsed.tags.count("script") == 3  # two of the page, and the data of the timeline
    assert parsed.tags.count("img") == text.count(";base64,")
    assert "".join(parsed.text).count(NASTY) >= 8
    data, = re.findall(r'id="timeline-data">(.*?)</script>', text, re.S)
    assert NASTY in json.loads(data)["texts"]


def test_the_page_is_the_same_each_time(figures):
    rows = [make_row("pp4"), make_row("dp2")]
    assert render(rows, [(trace(), None)], DOCUMENT) == render(rows, [(trace(), None)], DOCUMENT)


def test_two_thousand_cases_stay_below_5_mb(figures):
    """Some 20 s: it draws every figure of many rows."""
    traces = [(trace(f"t{k}", stages=8, micro_batches=64, ops=20), None) for k in range(3)]
    text = render(many_rows(2000), traces, {"exit": 1, "findings": FINDINGS[:1] * 2000 + FINDINGS[2:] * 9000})
    assert 1e6 < len(text.encode()) < 5e6
    assert text.count("<tr><td>") >= 2000


def test_timelines_keep_every_nanosecond():
    found, notes = timelines.lanes_of([(trace(stages=2, micro_batches=3), None)])
    timeline, = found["traces"]
    assert notes == [] and [lane["rank"] for lane in timeline["lanes"]] == [0, 1]
    for lane in timeline["lanes"]:
        starts, lengths, spans = [], lane["spans"][1::4], lane["spans"]
        for delta in spans[::4]:
            starts.append((starts[-1] if starts else 0) + delta)
        assert sum(lengths) == 3 * 3_000_000 and starts == sorted(starts)
        assert max(s + d for s, d in zip(starts, lengths)) <= timeline["window_ns"]
    name, stream, *_ = timeline["labels"][0]
    assert [found["texts"][i] for i in (name, stream)] == ["forward", "compute"]


def test_timelines_that_are_too_long_are_cut_and_say_so(monkeypatch):
    monkeypatch.setattr(timelines, "MOST_SPANS", 50)
    found, notes = timelines.lanes_of([(trace(stages=4, micro_batches=8), None)])
    assert sum(len(lane["spans"]) // 4 for lane in found["traces"][0]["lanes"]) == 50
    assert notes == ["pipe: the first 50 operations of the lowest rank of each stage only."]
    _, notes = timelines.lanes_of([(trace(stages=1, micro_batches=1), None)] * 20)
    assert notes[0] == "The first 12 of 20 traces."


def with_messages(made):
    """The same trace with a message from each forward of a stage to the next stage's."""
    number = 0
    for event in [e for e in made["traceEvents"] if e.get("cat") == "compute" and e["name"] == "forward" and e["pid"] + 1 < 2]:
        number += 1
        ends = {"s": (event["pid"], event["ts"] + event["dur"]), "f": (event["pid"] + 1, event["ts"] + 1000)}
        made["traceEvents"] += [{"ph": ph, "name": "message", "cat": "p2p", "id": number, "pid": pid, "tid": 1000, "ts": ts}
                                for ph, (pid, ts) in ends.items()]
    return made


def test_messages_join_the_lanes_of_their_ends(monkeypatch):
    found, _ = timelines.lanes_of([(with_messages(trace(stages=2, micro_batches=3, ops=1)), None)])
    arrows = found["traces"][0]["arrows"]
    assert [arrows[i:i + 4] for i in range(0, len(arrows), 4)] == [
        [0, (m + 1) * 1_000_000, 1, (m + 1) * 1_000_000] for m in range(3)]
    monkeypatch.setattr(timelines, "MOST_SPANS", 3)
    cut, _ = timelines.lanes_of([(with_messages(trace(stages=2, micro_batches=3, ops=1)), None)])
    assert len(cut["traces"][0]["arrows"]) < 12  # no arrow to what is left out


def test_rows_bring_their_traces_along_once(row_file, tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(make_trace()))
    path = row_file([{**make_row(), "artifacts": {"trace": "t.json"}}, {**make_row("dp2"), "artifacts": {"trace": "gone.json"}}])
    rows, traces, notes = inputs.load([path, tmp_path / "t.json"])
    assert len(rows) == 2 and [row is not None for _, row in traces] == [True]
    assert notes == ["rows.jsonl names a trace that is not there: gone.json"]


def test_a_verdict_may_lie_among_the_rows(row_file, tmp_path):
    row_file([make_row()])
    (tmp_path / "verdict.json").write_text(json.dumps({"exit": 0, "findings": []}))
    assert len(inputs.load([tmp_path], tmp_path / "verdict.json")[0]) == 1
    with pytest.raises(UserError, match="verdict.json"):
        inputs.load([tmp_path])


def test_bandwidths_are_of_collectives_that_had_their_links_to_themselves():
    late = make_coll_row()
    late["coll"]["injected_delay_s"] = 0.002
    assert [page.pictures.undisturbed(row) for row in (make_row(), make_coll_row(), make_coll_row(beside="tp"), late)] == [
        False, True, False, False]


def test_the_verb_writes_the_page(row_file, tmp_path, capsys):
    out = tmp_path / "report.html"
    (tmp_path / "verdict.json").write_text(json.dumps(DOCUMENT))
    assert main(["report", str(row_file([make_row()])), "-o", str(out), "--verdict", str(tmp_path / "verdict.json")]) == 0
    assert capsys.readouterr().out.strip() == str(out) and out.read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("arguments, code, word", [
    (["gone.json", "-o", "r.html"], 4, "gone.json: no such file"),
    (["rows.jsonl", "-o", "no/such/r.html"], 4, "give a file that can be written with -o"),
    (["rows.jsonl", "-o", "r.html", "--verdict", "rows.jsonl"], 4, "not what mb gate --json prints"),
    (["empty.jsonl", "-o", "r.html"], 4, "no row and no trace"),
    (["rows.jsonl"], 2, "required")])
def test_errors_are_one_line_with_an_exit_code(row_file, tmp_path, monkeypatch, capsys, arguments, code, word):
    row_file([make_row()])
    row_file([], "empty.jsonl")
    monkeypatch.chdir(tmp_path)
    try:
        returned = main(["report", *arguments])
    except SystemExit as usage:
        returned = usage.code
    assert returned == code and word in capsys.readouterr().err
