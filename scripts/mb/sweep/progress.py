"""Progress of a sweep on stderr: a line drawn over on a terminal, else one at most every 30 s or 5 %."""

import collections
import os
import sys
import time

from mb.sweep.estimate import duration_text

PLAIN_EVERY_S, PLAIN_SHARE = 30, 0.05


class Progress:
    def __init__(self, total, wanted=True, stream=None, clock=time.monotonic):
        self._total, self._wanted, self._clock = total, wanted, clock
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
        self._last_s, self._last_done = clock(), 0

    def show(self, counts, left, current):
        """`counts` by status of what is done, (low, middle, high) seconds left, the case that runs."""
        done = sum(counts.values())
        now = self._clock()
        due = now - self._last_s >= (0.5 if self._terminal else PLAIN_EVERY_S)
        if not self._terminal:
            due = due or done - self._last_done >= max(1, PLAIN_SHARE * self._total)
        if not self._wanted or not due:
            return
        self._last_s, self._last_done = now, done
        line = text(self._total, counts, left, current)
        if self._terminal:
            width = os.get_terminal_size(self._stream.fileno()).columns
            self._stream.write(f"\r\033[K{line[:width - 1]}")
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()

    def say(self, line):
        """A line that stays."""
        clear = "\r\033[K" if self._terminal and self._wanted else ""
        self._stream.write(f"{clear}{line}\n")
        self._stream.flush()

    def end(self):
        if self._terminal and self._wanted:
            self._stream.write("\r\033[K")
            self._stream.flush()


def text(total, counts, left, current):
    low, middle, high = left
    done = sum(counts.values())
    ranged = f"{duration_text(middle)} left ({duration_text(low)} to {duration_text(high)})" if done < total else "done"
    told = ", ".join(f"{n} {status}" for status, n in sorted(collections.Counter(counts).items()) if n)
    return f"{done}/{total}{f' ({told})' if told else ''}, {ranged}{f', {current}' if current else ''}"
