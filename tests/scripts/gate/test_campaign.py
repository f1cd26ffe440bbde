"""Two builds launched in turns: what is launched, what is kept, and what becomes of launches that fail."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import fakes
from conftest import ROOT, make_coll_row, make_row
from mb.errors import UserError
from mb.gate import campaign, command, launch, statistics
from mb.exit_codes import ExitCode
from mb import rows as rows_of

CASE = "model=gpt-1m mesh=pp4"


@pytest.fixture(autouse=True)
def own_lock(tmp_path, monkeypatch):
    """Other gates of this machine are no concern of a test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def gate(capsys, *words):
    """(exit code, document) of mb gate --builds --json."""
    capsys.readouterr()
    code = command.main(["--builds", "--json", "--any-load", *words])
    return code, json.loads(capsys.readouterr().out)


def test_t1_a_build_that_takes_ten_percent_longer_fails(tmp_path, capsys):
    base, slow = fakes.timed_build(tmp_path, "base", 1), fakes.timed_build(tmp_path, "slow", 2, worse=1.10)
    code, document = gate(capsys, base, slow, CASE)
    told = fakes.finding(document, "step_s")
    assert (code, told["verdict"]) == (1, "REGRESSED")
    assert told["low"] < 0.10 < told["high"] and 0.09 < told["worse"] < 0.11
    assert told["pairs"] == statistics.FIRST_PAIRS + told["n"]
    assert told["reproduce"].startswith(f"mb gate --builds {base} {slow} ")


def test_equal_builds_pass_and_say_how_sure(tmp_path, capsys):
    code, document = gate(capsys, fakes.timed_build(tmp_path, "a", 1), fakes.timed_build(tmp_path, "b", 2), CASE)
    told = fakes.finding(document, "step_s")
    assert (code, told["verdict"], told["n"]) == (0, "PASS(certified)", 10)
    assert 0.003 < told["noise"] < 0.02 and told["detectable"] < 0.05


def test_a_faster_build_is_improved(tmp_path, capsys):
    code, document = gate(capsys, fakes.timed_build(tmp_path, "a", 1), fakes.timed_build(tmp_path, "b", 2, worse=0.8), CASE)
    assert (code, fakes.finding(document, "step_s")["verdict"]) == (0, "IMPROVED")


def test_t20_noise_that_hides_everything_is_inconclusive_and_says_what_would_tell(tmp_path, capsys):
    builds = [fakes.timed_build(tmp_path, name, seed, cv=0.3) for name, seed in (("a", 1), ("b", 3))]
    code, document = gate(capsys, *builds, CASE, "--strict")
    told = fakes.finding(document, "step_s")
    assert (code, told["verdict"]) == (5, "INCONCLUSIVE")
    assert f"some {told['pairs_to_resolve']} pairs" in told["reason"] and told["pairs_to_resolve"] > 60
    assert f"{100 * told['noise']:.2g} %" in told["reason"] and f"{100 * told['detectable']:.2g} %" in told["reason"]


def test_t17_launches_of_a_pair_follow_each_other_in_random_order(tmp_path, capsys):
    gate(capsys, fakes.timed_build(tmp_path, "base", 1), fakes.timed_build(tmp_path, "new", 2), CASE, "model=gpt-1m mesh=pp2")
    order = fakes.launched(tmp_path)
    pairs = list(zip(order[::2], order[1::2]))
    assert all(set(pair) == {"base", "new"} for pair in pairs) and len(set(pairs)) == 2


def test_t21_a_confirmation_has_launches_of_its_own(tmp_path, capsys):
    """The first ten of a build are slow by chance, the rest are not."""
    row = make_row()
    late = [1.5 if i < 10 else 1.0 for i in range(80)]
    chance = fakes.build(tmp_path, "chance", [fakes.scaled(row, step_s=f * g) for f, g in zip(late, fakes.times(2))])
    code, document = gate(capsys, fakes.timed_build(tmp_path, "base", 1), chance, CASE)
    told = fakes.finding(document, "step_s")
    assert code == 0 and told["pairs"] > 10 and abs(told["worse"]) < 0.02


def test_signs_can_be_flipped_instead(tmp_path, capsys):
    builds = [fakes.timed_build(tmp_path, "base", 1), fakes.timed_build(tmp_path, "slow", 2, worse=1.10)]
    code, document = gate(capsys, *builds, CASE, "--test", "signflip")
    assert (code, document["test"], fakes.finding(document, "step_s")["verdict"]) == (1, "signflip", "REGRESSED")


def test_launches_keep_to_cpus_where_some_are_to_spare():
    assert launch.ranks_of("model=gpt-1m mesh=dp2.tp2") == 4 and launch.ranks_of("sim mesh=1") == 1
    assert launch.ranks_of("case=first") is None
    assert launch.cpus_for(2, set(range(8))) == [4, 5, 6, 7]
    assert launch.cpus_for(4, set(range(8))) is None  # two for each rank, and none to spare
    assert launch.cpus_for(None, set(range(8))) is None and launch.cpus_for(1, {3}) is None
    assert launch.listed({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8"


def test_where_a_launch_ran_is_kept_with_its_rows(tmp_path, capsys, monkeypatch):
    usable = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(launch, "cpus_for", lambda ranks, cpus: usable[-1:])
    before = f"grep Cpus_allowed_list /proc/self/status >> {tmp_path}/allowed"
    builds = [fakes.build(tmp_path, name, [make_row(mode="sim")] * 2, before=before) for name in "ab"]
    assert gate(capsys, *builds, "sim " + CASE, "-o", "kept")[0] == 0
    assert {line.split()[1] for line in (tmp_path / "allowed").read_text().splitlines()} == {str(usable[-1])}
    rows = rows_of.load(["kept/rows"])
    assert len(rows) == 4 and all(row["affinity"] == {"cpus": str(usable[-1]), "pinned": True} for row in rows)


def test_traffic_that_doubles_without_any_change_in_time_fails(tmp_path, capsys):
    part = {"rank": 0, "stage": 0, "axis": "dp", "site": "gradients", "kind": "all_reduce", "closed_form": None,
            "counted": None, "equal": True}
    base, double = ({**make_row(), "traffic": [{**part, "plan": {"calls": n, "elements": n, "bytes": 8 * n}}]} for n in (1, 2))
    code, document = gate(capsys, fakes.timed_build(tmp_path, "base", 1, base), fakes.timed_build(tmp_path, "new", 2, double), CASE)
    assert code == 1 and fakes.finding(document, "step_s")["verdict"] == "PASS(certified)"
    assert fakes.finding(document, "traffic_0_dp_gradients_all_reduce_bytes")["worse"] == 8


def test_t7_a_launch_that_crashes_leaves_nine(tmp_path, capsys):
    rows = [fakes.scaled(make_row(), step_s=f) for f in fakes.times(2)]
    frail = fakes.build(tmp_path, "frail", rows, before="[ $n = 3 ] && kill -SEGV $$")
    code, document = gate(capsys, fakes.timed_build(tmp_path, "base", 1), frail, CASE)
    assert code == 0 and fakes.finding(document, "step_s")["n"] == 9
    assert "1 of 10 launches failed: crash: SIGSEGV" in fakes.finding(document, "status")["reason"]


def test_t7_fewer_than_five_pairs_are_inconclusive(tmp_path, capsys):
    rows = [fakes.scaled(make_row(), step_s=f) for f in fakes.times(2)]
    frail = fakes.build(tmp_path, "frail", rows, before="[ $n -gt 0 ] && [ $n -lt 7 ] && exit 3")
    code, document = gate(capsys, fakes.timed_build(tmp_path, "base", 1), frail, CASE)
    assert code == 3 and fakes.finding(document, "status")["verdict"] == "ERRORED"
    assert fakes.finding(document, "step_s")["verdict"] == "INCONCLUSIVE"
    assert "only 4 of 10 pairs ran whole" in fakes.finding(document, "step_s")["reason"]


def test_a_build_that_crashes_in_most_launches_is_no_pass(tmp_path, capsys):
    """It is slow in the screen, and then has no launch that could say otherwise."""
    rows = [fakes.scaled(make_row(), step_s=f) for f in fakes.times(2, worse=1.5)]
    frail = fakes.build(tmp_path, "frail", rows, before="[ $n -ge 10 ] && exit 3")
    code, document = gate(capsys, fakes.timed_build(tmp_path, "base", 1), frail, CASE)
    told = fakes.finding(document, "step_s")
    assert code == 3 and told["verdict"] == "INCONCLUSIVE" and "only 0 of" in told["reason"]
    assert fakes.finding(document, "status")["verdict"] == "ERRORED"


@pytest.mark.parametrize("before, said", [
    ("echo no memory left >&2; exit 66", "ok -> oom; candidate: 2 of 2 launches failed: oom: exit 66: no memory left"),
    ("echo gradients differ >&2; cp $0 $out; exit 3", "ok -> crash; candidate: 2 of 2 launches failed: crash: exit 3: gradients differ"),
    ("kill -ABRT $$", "crash: SIGABRT"),
    ("exit 0", "crash: exit 0, but it wrote no row"),
    ("echo '{' >$out; exit 0", "crash: exit 0, but its row: not a row"),
    ("exit 2", "ok -> invalid"),
])
def test_a_case_that_fails_in_one_build_is_a_verdict(tmp_path, capsys, before, said):
    """Two failures are enough, and the other case is judged all the same."""
    other = make_row("pp2")
    mine = '[ "$3" = mesh=pp4 ] && { %s; }' % before
    base = fakes.build(tmp_path, "base", [make_row() if i < 3 and i != 1 else other for i in range(40)],
                       before='[ "$3" = mesh=pp4 ] && { cp %s/base/0 $out; exit 0; }' % tmp_path)
    broken = fakes.build(tmp_path, "broken", [other] * 40, before=mine)
    code, document = gate(capsys, base, broken, CASE, "model=gpt-1m mesh=pp2")
    failed = fakes.finding(document, "status", verdict="ERRORED")
    assert code == 3 and said in failed["reason"] and failed["case"] == make_row()["case"]
    assert fakes.finding(document, "peak_bytes", case=other["case"])["verdict"] == "PASS"
    assert fakes.launched(tmp_path).count("broken") == 12


def test_what_failed_and_runs_now_is_fixed(tmp_path, capsys):
    code, document = gate(capsys, fakes.build(tmp_path, "base", before="exit 66"),
                          fakes.build(tmp_path, "new", [make_row()] * 9), CASE)
    assert code == 0 and fakes.finding(document, "status")["verdict"] == "FIXED"


def test_what_both_builds_fail_is_no_pass(tmp_path, capsys):
    builds = [fakes.build(tmp_path, name, before="exit 66") for name in ("a", "b")]
    code, document = gate(capsys, *builds, CASE)
    assert code == 4 and fakes.finding(document, "status")["verdict"] == "BOTH_ERRORED"


def test_what_both_builds_refuse_is_named_before_anything_is_launched(tmp_path):
    builds = [fakes.build(tmp_path, name, check="echo mesh=pp4: no >&2; exit 2") for name in ("a", "b")]
    with pytest.raises(UserError, match="both builds refuse it: exit 2: mesh=pp4: no") as told:
        command.main(["--builds", *builds, CASE])
    assert told.value.code == 2 and not (tmp_path / "launches").exists()


def test_a_collective_that_both_builds_refuse_is_named_after_a_pair(tmp_path):
    builds = [fakes.build(tmp_path, name, before="echo op=al: no >&2; exit 2") for name in ("a", "b")]
    with pytest.raises(UserError, match="both builds refuse it: exit 2: op=al: no"):
        command.main(["--builds", *builds, "coll op=al", "--any-load"])
    assert len(fakes.launched(tmp_path)) == 2


def test_a_launch_that_hangs_ends(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(launch, "TIMEOUT_S", 0.2)
    hangs = fakes.build(tmp_path, "hangs", before="sleep 60 & wait")
    code, document = gate(capsys, fakes.build(tmp_path, "base", [make_row()] * 9), hangs, CASE)
    assert code == 3 and "timeout: no end after 0.2 s" in fakes.finding(document, "status")["reason"]


def test_virtual_time_takes_two_launches_of_each(tmp_path, capsys):
    row = make_row(mode="sim")
    builds = [fakes.build(tmp_path, name, [row] * 9) for name in ("a", "b")]
    assert gate(capsys, *builds, "sim mesh=pp4")[0] == 0
    assert len(fakes.launched(tmp_path)) == 4


def test_launches_that_differ_in_virtual_time_are_nondeterministic(tmp_path, capsys):
    row = make_row(mode="sim")
    builds = [fakes.build(tmp_path, "a", [row] * 9), fakes.build(tmp_path, "b", [row, fakes.scaled(row, step_s=0.5)])]
    code, document = gate(capsys, *builds, "sim mesh=pp4")
    assert code == 3 and fakes.finding(document, "step_s")["verdict"] == "NONDETERMINISTIC"


def test_t14_one_size_of_twenty_is_found(tmp_path, capsys):
    def rows(seed, worse):
        return [[make_coll_row(size=1024 << k, samples=(1e-3 * f * (worse if k == 7 else 1),) * 10,
                               busbw=(1024 << k) / (1e-3 * f * (worse if k == 7 else 1)))
                 for k, f in enumerate(fakes.times([seed, i], 20))] for i in range(40)]
    sides = []
    for name, seed, worse in (("base", 1, 1.0), ("new", 2, 1.3)):
        launches = rows(seed, worse)
        for row in (row for launch_rows in launches for row in launch_rows):
            row["metrics"]["algbw_bytes_per_s"] = row["metrics"]["busbw_bytes_per_s"]
        sides.append(fakes.build(tmp_path, name, launches))
    code, document = gate(capsys, *sides, "coll op=all_reduce mesh=dp2.tp2")
    wrong = [f for f in document["findings"] if f["verdict"] == "REGRESSED"]
    assert code == 1 and [f["detail"].split()[1] for f in wrong] == [f"size={1024 << 7}"]
    assert sum(f["metric"] == "completion_s" for f in document["findings"]) == 20


def test_t10_other_flags_are_incomparable_unless_told(tmp_path, capsys):
    other = make_row()
    other["fingerprint"]["hard"] = {**other["fingerprint"]["hard"], "flags_hash": "f" * 16}
    builds = [fakes.timed_build(tmp_path, "a", 1), fakes.timed_build(tmp_path, "b", 2, other, worse=1.5)]
    code, document = gate(capsys, *builds, CASE)
    told = fakes.finding(document, "step_s")
    assert (code, told["verdict"]) == (3, "INCOMPARABLE") and "flags_hash" in told["reason"]
    code, document = gate(capsys, *builds, CASE, "--any-fingerprint", "-o", str(tmp_path / "gate" / os.listdir("gate")[0]))
    told = fakes.finding(document, "step_s")
    assert (code, told["verdict"], told["gates"]) == (0, "REGRESSED", False)


def test_t25_the_same_command_launches_only_what_is_missing(tmp_path, capsys):
    builds = [fakes.timed_build(tmp_path, "a", 1), fakes.timed_build(tmp_path, "b", 2, worse=1.2)]
    first = gate(capsys, *builds, CASE, "-o", "kept")
    count = len(fakes.launched(tmp_path))
    gone = sorted(pathlib.Path("kept/rows").iterdir())[3]
    gone.unlink()
    gate(capsys, *builds, CASE, "-o", "kept")
    assert len(fakes.launched(tmp_path)) == count + 2
    again = gate(capsys, *builds, CASE, "-o", "kept")
    assert len(fakes.launched(tmp_path)) == count + 2 and again[0] == first[0] == 1
    assert "were there already" in again[1]["warnings"][0]


def test_t29_kept_launches_give_the_same_bytes(tmp_path, capsys):
    words = ["--builds", "--json", "--any-load", fakes.timed_build(tmp_path, "a", 1), fakes.timed_build(tmp_path, "b", 2), CASE]
    command.main(words)
    documents = []
    for _ in range(2):
        capsys.readouterr()
        command.main(words)
        documents.append(capsys.readouterr().out)
    assert documents[0] == documents[1] and json.loads(documents[0])["seed"] == 1


def test_t22_rows_on_disk_are_strict_and_say_whose_they_are(tmp_path, capsys):
    frail = fakes.build(tmp_path, "frail", [make_row()] * 40, before="[ $n = 3 ] && exit 66")
    gate(capsys, fakes.timed_build(tmp_path, "base", 1), frail, CASE, "-o", "kept")
    rows = rows_of.load(["kept/rows"])
    assert len(rows) == 20 and {row["status"] for row in rows} == {"ok", "oom"}
    assert {(row["role"], row["pair"], row["order"]) for row in rows} <= {
        (role, pair, order) for role in campaign.ROLES for pair in range(10) for order in (0, 1)}


@pytest.mark.parametrize("change, said", [("program", "other builds"), ("case", "other cases"), ("seed", "other seed")])
def test_a_folder_of_another_comparison_is_refused(tmp_path, capsys, change, said):
    builds = [fakes.build(tmp_path, name, [make_row(mode="sim")] * 9) for name in ("a", "b", "c")]
    gate(capsys, *builds[:2], CASE, "-o", "kept")
    words = {"program": [builds[0], builds[2], CASE], "case": [*builds[:2], "mesh=pp2"],
             "seed": [*builds[:2], CASE, "--seed", "2"]}[change]
    with pytest.raises(UserError, match=said):
        command.main(["--builds", "--any-load", *words, "-o", "kept"])


@pytest.mark.parametrize("words, code, said", [
    (["a", "b"], 4, "no case to launch"), (["a", "b", " "], 4, "no case to launch"),
    (["none", "b", CASE], 4, "none: no program to launch"), (["a", "b", "theory mesh=pp4"], 2, "theory leaves no rows"),
    (["a", "b", CASE, CASE], 2, "is named twice"), (["a", "b", "x='"], 2, "No closing quotation")])
def test_t3_what_cannot_be_launched_is_refused_first(tmp_path, words, code, said):
    names = {name: fakes.build(tmp_path, name) for name in ("a", "b")}
    with pytest.raises(UserError, match=said) as raised:
        command.main(["--builds", "--any-load", *(names.get(word, word) for word in words)])
    assert raised.value.code == code and not (tmp_path / "launches").exists()


def test_two_gates_do_not_time_each_other(tmp_path):
    with campaign.machine_to_itself(), pytest.raises(UserError, match="another gate") as raised:
        with campaign.machine_to_itself():
            pass
    assert raised.value.code == ExitCode.NO_VERDICT
    with campaign.machine_to_itself():
        pass


def test_on_a_busy_machine_times_advise(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0, 0))
    monkeypatch.setattr(campaign, "CALM_WAIT_S", -1)
    builds = [fakes.timed_build(tmp_path, "a", 1), fakes.timed_build(tmp_path, "b", 2, worse=1.5)]
    code = command.main(["--builds", "--json", *builds, CASE])
    document = json.loads(capsys.readouterr().out)
    assert code == 0 and not fakes.finding(document, "step_s", verdict="REGRESSED")["gates"]
    assert "load average 1e+03" in document["warnings"][0]


def test_a_full_disk_is_said_and_keeps_what_is_there(tmp_path, monkeypatch):
    builds = [fakes.timed_build(tmp_path, name, 1) for name in ("a", "b")]
    write, calls = campaign._write, []

    def full(file, text):
        calls.append(file)
        if len(calls) == 4:
            raise OSError(28, "No space left on device")
        write(file, text)

    monkeypatch.setattr(campaign, "_write", full)
    with pytest.raises(UserError, match="No space left on device; all pairs before it are kept"):
        command.main(["--builds", "--any-load", *builds, CASE, "-o", "kept"])
    assert len(os.listdir("kept/rows")) == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_t23_whatever_ends_the_gate_pairs_that_ended_are_kept(tmp_path, number):
    """At a random moment of a random pair; the same command then launches only what is missing."""
    rows = [fakes.scaled(make_row(), step_s=f) for f in fakes.times(1)]
    wanted = random.randrange(1, 6)
    stuck = f"[ $n -lt {wanted + 1} ] || [ -e {tmp_path}/go ] || exec sleep 60"  # or the gate might end first
    builds = [fakes.build(tmp_path, name, rows, before=stuck) for name in ("a", "b")]
    words = [sys.executable, "-m", "mb", "gate", "--builds", "--any-load", *builds, CASE, "-o", "kept"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)
    kept = pathlib.Path("kept/rows")
    while running.poll() is None and not (kept.exists() and len(list(kept.glob("[0-9]*"))) >= wanted):
        time.sleep(0.005)
    running.send_signal(number)
    _, said = running.communicate(timeout=300)
    (tmp_path / "go").touch()
    assert running.returncode == (-9 if number == signal.SIGKILL else 130)
    assert number == signal.SIGKILL or "the same command goes on from there" in said
    before = {file.name: file.read_bytes() for file in kept.glob("[0-9]*")}
    assert len(before) >= wanted and len(rows_of.load(["kept/rows"])) == 2 * len(before)
    assert subprocess.run(words, stdout=subprocess.DEVNULL, env=env, timeout=300).returncode == 0
    assert all((kept / name).read_bytes() == data for name, data in before.items()) and len(list(kept.glob("[0-9]*"))) == 10
