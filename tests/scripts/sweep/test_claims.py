"""A case is run by one driver at a time, and by another once that one is gone."""

import json
import multiprocessing
import os
import subprocess
import sys

import pytest

from mb.sweep import claims
from mb.sweep.claims import Claims, is_dead, own


def dead_pid():
    process = subprocess.Popen([sys.executable, "-SE", "-c", ""])
    process.wait()
    return process.pid


def test_a_claim_is_taken_once_and_can_be_left(tmp_path):
    mine, other = Claims(tmp_path), Claims(tmp_path)
    assert mine.take("k") and not other.take("k")
    mine.leave("k")
    assert other.take("k") and [p.name for p in tmp_path.iterdir()] == ["k"]


def test_one_who_can_be_seen_to_be_gone_is_dead_at_once():
    assert not is_dead(own(), 1e9)
    assert is_dead({**own(), "pid": dead_pid()}, 0)
    assert is_dead({**own(), "started": "1"}, 0)  # the number is another process's now


@pytest.mark.parametrize("field", ["host", "boot", "namespace"])
def test_one_who_cannot_be_seen_is_dead_when_beats_are_missing(field):
    foreign = {**own(), field: "another", "pid": dead_pid()}
    assert not is_dead(foreign, claims.MISSED * claims.BEAT_S - 1) and is_dead(foreign, claims.MISSED * claims.BEAT_S + 1)


@pytest.mark.parametrize("state, dead", [("RUNNING", False), ("", True)])
def test_of_a_slurm_job_slurm_has_the_last_word(tmp_path, monkeypatch, state, dead):
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho {state}\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert is_dead({**own(), "host": "node7", "slurm_job": "12_3"}, 1e6) is dead


def test_a_claim_that_cannot_be_read_is_nobodys(tmp_path):
    (tmp_path / "k").write_text('{"host": ')
    assert Claims(tmp_path).take("k")


def _race(folder, start, wins):
    taker = Claims(folder)
    start.wait()
    if taker.take("k"):
        wins.put(os.getpid())
    start.wait()  # none leaves before all have tried: it would be dead


@pytest.mark.parametrize("left_by_the_dead", [False, True])
def test_of_many_takers_one_wins(tmp_path, left_by_the_dead):
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        (tmp_path / "k").unlink(missing_ok=True)
        if left_by_the_dead:
            (tmp_path / "k").write_text(json.dumps({**own(), "pid": dead_pid()}))
        start, wins = context.Barrier(6), context.Queue()
        takers = [context.Process(target=_race, args=(tmp_path, start, wins)) for _ in range(6)]
        for taker in takers:
            taker.start()
        for taker in takers:
            taker.join(30)
        winner = wins.get(timeout=10)
        assert wins.empty() and json.loads((tmp_path / "k").read_text())["pid"] == winner


def test_beats_keep_a_claim_young(tmp_path, monkeypatch):
    mine = Claims(tmp_path)
    mine.take("k")
    os.utime(tmp_path / "k", (1, 1))
    mine.beat()
    assert claims.read(tmp_path / "k")[1] > 1e6
    monkeypatch.setattr(claims, "BEAT_S", 0)
    mine.beat()
    assert claims.read(tmp_path / "k")[1] < 60
