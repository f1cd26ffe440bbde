"""Runs the points of a sweep that have no result yet, each in a process of its own, beside other drivers.

One thread: it starts cases, looks after them and after the claims, and writes what came of each.
"""

import collections
import contextlib
import dataclasses
import functools
import os
import shlex
import signal
import subprocess
import time

from mb.errors import UserError
from mb.exit_codes import ExitCode
from mb.sweep import binary, launch, outcome, slurm
from mb.sweep.claims import Claims
from mb.sweep.estimate import Estimate
from mb.sweep.store import DiskError, cannot_write, writing

GRACE_S = 10  # between SIGTERM and SIGKILL
RETRIES, BACK_OFF_S = 2, 1.0
SAME_CRASHES = 10  # in a row, until the sweep stops
LONGEST_NAP_S = 0.1
UNEXPECTED = ("crash", "timeout")


@dataclasses.dataclass
class Options:
    jobs: int = 1
    keep_going: bool = False
    run_predicted_oom: bool = False


@dataclasses.dataclass
class Running:
    point: object
    process: subprocess.Popen
    folder: object
    attempt: int
    started: float
    limit_s: float
    oom_kills: int | None
    stopped: str | None = None  # why we stopped it
    killed_at: float | None = None


class Driver:
    def __init__(self, sweep, store, options, progress):
        self.sweep, self.store, self.options, self.progress = sweep, store, options, progress
        self.claims = Claims(store.claims)
        self.estimate = Estimate()
        self.counts = collections.Counter()
        self.running = []
        self.signals = 0  # 1: start no more; 2: stop what runs
        self.tripped = None
        self._last_crash, self._same = None, 0
        self._stamps = {}  # of results when they were looked at
        self._retries, self._not_before = collections.Counter(), {}
        self._environment = launch.environment_of(binary.environment())

    def run(self, points, wanted):
        """Until every point is done, by us or by others. `wanted` says of a row, or of None, whether to run its case."""
        pending = collections.deque()
        nap_s = 0.002
        for point in points:
            self._stamps[point.key] = self.store.stamp(point.key)
            row = self.store.read(point.key)
            if not wanted(point, row):
                self.counts[row["status"]] += 1
            elif self._decided(point):
                self.record(point, outcome.Outcome(point.status, point.detail))
            else:
                pending.append(point)
        with self._signals():
            try:
                while pending or self.running:
                    moved = self._reap(pending)
                    if self.signals >= 1 or self.tripped:
                        pending.clear()
                    if self.signals >= 2:
                        self._stop_all()
                    moved |= self._start_next(pending)
                    self.claims.beat()
                    self._tell(pending)
                    nap_s = 0.002 if moved else min(LONGEST_NAP_S, nap_s * 1.3)
                    time.sleep(nap_s)
            finally:
                self._abandon()
                self.progress.end()

    def _decided(self, point):
        """Whether it is known without running what comes of it."""
        return point.status is not None and not (point.status == "oom_predicted" and self.options.run_predicted_oom)

    def _count_again(self, point, pending):
        """Another driver has written a result meanwhile."""
        self._stamps[point.key] = self.store.stamp(point.key)
        row = self.store.read(point.key)
        if row is None or row["status"] == "cancelled":
            pending.append(point)
        else:
            self.counts[row["status"]] += 1

    def record(self, point, found, attempt=None):
        """Writes the row of a point, which is then done unless it was cancelled."""
        row = {**(found.row or {**point.row, "metrics": {}}), "status": found.status, "status_detail": found.detail}
        row["sweep"] = {"name": self.sweep.name, "key": point.key, "config": point.config_hash,
                        "point": point.config, "words": list(point.words), "rule": point.rule,
                        "machine": point.machine, "predicted_s": point.predicted_s, **(attempt or {})}
        if found.by_text:
            row["sweep"]["judged_by"] = "text"
        self.store.write(point.key, row)
        self.counts[found.status] += 1

    def _tell(self, pending):
        left = [(point.mode, point.predicted_s) for point in pending]
        left += [(run.point.mode, run.point.predicted_s) for run in self.running]
        self.progress.show(self.counts, self.estimate.left(left, self.options.jobs),
                           self.running[0].point.line if self.running else "others run the rest" if pending else "")

    def _start_next(self, pending):
        """Starts the first pending point that nobody runs; whether anything changed."""
        moved = False
        for _ in range(len(pending)):
            if len(self.running) >= self.options.jobs or self.signals or self.tripped:
                break
            point = pending.popleft()
            if self._not_before.get(point.key, 0) > time.monotonic() or not self.claims.take(point.key):
                pending.append(point)
                continue
            moved = True
            if self.store.stamp(point.key) != self._stamps[point.key]:  # by another driver, before we had the claim
                self.claims.leave(point.key)
                self._count_again(point, pending)
                continue
            self._start(point)
        return moved

    def _start(self, point):
        folder, attempt = self.store.new_attempt(point.key)
        try:
            command = launch.command_of(self.sweep.program, point.words, point.ranks, folder / "row.json",
                                        self.sweep.spec.get("mpi"))
            with writing(folder), open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
                (folder / "command").write_text(shlex.join(command) + "\n", encoding="utf-8")
                kills = outcome.oom_kills()
                try:
                    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                               env=self._environment, start_new_session=True,
                                               preexec_fn=functools.partial(launch.die_with, os.getpid()))
                except (OSError, subprocess.SubprocessError) as error:
                    raise UserError(f"{command[0]}: cannot be started: {error}") from None
        except UserError as error:
            if isinstance(error, DiskError):
                raise
            self._settle(point, outcome.Outcome("crash", {"message": str(error), "phase": "launch"}),
                         {"attempt": attempt, "since": time.time()})
            return
        limit_s = self.sweep.spec.get("time_limit_s") or self.estimate.limit_s(point.mode, point.predicted_s)
        self.running.append(Running(point, process, folder, attempt, time.monotonic(), limit_s, kills))

    def _reap(self, pending):
        """Looks after what runs; whether anything ended."""
        ended = False
        for run in list(self.running):
            now = time.monotonic()
            code = run.process.poll()
            if code is None:
                if run.stopped is None and now - run.started > run.limit_s:
                    self._stop(run, "timeout")
                elif run.killed_at and now - run.killed_at > GRACE_S:
                    self._signal(run, signal.SIGKILL)
                continue
            ended = True
            self.running.remove(run)
            self._signal(run, signal.SIGKILL)  # children that it left behind
            found = self._judge(run, code)
            if found.status == "disk":
                raise cannot_write(self.store.folder, found.detail["message"])
            took_s = now - run.started
            if found.retry and self._retries[run.point.key] < RETRIES and not self.signals:
                self._retries[run.point.key] += 1
                self._not_before[run.point.key] = now + BACK_OFF_S * 2 ** self._retries[run.point.key]
                self.claims.leave(run.point.key)
                self.progress.say(f"mb sweep: {run.point.line}: {found.detail['message']}; tried again")
                pending.append(run.point)
                continue
            if found.status == "ok":
                self.estimate.observe(run.point.mode, run.point.predicted_s, took_s)
            command = launch.pasteable(self.sweep.program, run.point.words, run.point.ranks, self.sweep.spec.get("mpi"))
            self._settle(run.point, found, {"attempt": run.attempt, "observed_s": took_s, "since": time.time(),
                                            "command": command})
            with contextlib.suppress(OSError):
                (run.folder / "row.json").unlink()
        return ended

    def _judge(self, run, code):
        kills = outcome.oom_kills()
        more = run.oom_kills is not None and kills is not None and kills > run.oom_kills
        state = slurm.state_of_this_job() if code in (-signal.SIGKILL, 128 + signal.SIGKILL) else None
        return outcome.judge(code, run.folder, stopped=run.stopped, limit_s=run.limit_s, more_oom_kills=more,
                             slurm_state=state)

    def _settle(self, point, found, attempt):
        if found.status in UNEXPECTED:
            attempt = {**attempt, "stderr": outcome.tail(self.store.attempts / point.key / str(attempt["attempt"]) / "stderr")}
            self.progress.say(f"mb sweep: {found.status}: {point.line}: {found.detail['message']}")
        self.record(point, found, attempt)
        self.claims.leave(point.key)
        if found.status != "crash":
            self._last_crash, self._same = None, 0
            return
        self._same = self._same + 1 if found.signature == self._last_crash else 1
        self._last_crash = found.signature
        if self._same >= SAME_CRASHES and not self.options.keep_going:
            self.tripped = f"{self._same} cases in a row failed in the same way: {found.detail['message']}"

    def _stop(self, run, why):
        run.stopped, run.killed_at = why, time.monotonic()
        self._signal(run, signal.SIGTERM)

    def _stop_all(self):
        for run in self.running:
            if run.stopped is None:
                self._stop(run, "cancelled")

    @staticmethod
    def _signal(run, number):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(run.process.pid, number)

    def _abandon(self):
        """After an error of ours: nothing goes on without us."""
        for run in self.running:
            self._signal(run, signal.SIGKILL)
            run.process.wait()
        for key in list(self.claims.held):
            self.claims.leave(key)

    @contextlib.contextmanager
    def _signals(self):
        """SIGINT: start no more, the second time stop all. SIGTERM, and USR2 by which Slurm tells of the end: stop all."""
        def interrupt(number, frame):
            self.signals += 1
            if self.signals == 1:
                self.progress.say("mb sweep: starts no more, waits for what runs; interrupt again to stop that too")

        def terminate(number, frame):
            self.signals = 2

        handlers = {signal.SIGINT: interrupt, signal.SIGTERM: terminate, signal.SIGUSR2: terminate}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def exit_code(self):
        if self.signals:
            return ExitCode.INTERRUPTED
        failed = any(self.counts[status] for status in UNEXPECTED)
        return ExitCode.NO_VERDICT if failed or self.tripped else ExitCode.OK
