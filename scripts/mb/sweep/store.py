"""What a sweep keeps: a file for each case, whole or not there, and a folder for each attempt.

DIR/results/ab/KEY.json    the row of a case; that it is there means that the case is done
DIR/attempts/KEY/N/        command, stdout and stderr of each time that it was started
DIR/claims/KEY             who runs it just now
DIR/plan.json              the cases that the last driver found in the sweep
DIR/slurm/                 scripts, manifests and what was submitted
"""

import contextlib
import errno
import json
import os
import pathlib
import socket

from mb.errors import UserError

HOST = socket.gethostname()
_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is used up", errno.EFBIG: "files may not be so large",
         errno.EROFS: "the disk is read-only", errno.EACCES: "it may not be written", errno.EPERM: "it may not be written"}


class DiskError(UserError):
    """Nothing more can be kept: the sweep ends, and what is done stays done."""


def cannot_write(path, why):
    return DiskError(f"{path}: cannot be written: {why}; make room or give another folder with -o, and start again: "
                     "what is done stays done")


@contextlib.contextmanager
def writing(path):
    """Turns what a disk may refuse into a UserError."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, _FULL.get(error.errno, error.strerror)) from None


def write_whole(path, text):
    """The file is there with all of `text` or as it was before, whatever happens meanwhile."""
    path = pathlib.Path(path)
    beside = path.with_name(f".{path.name}.tmp.{HOST}.{os.getpid()}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(beside, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.rename(beside, path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def strict(text):
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")
    return json.loads(text, parse_constant=refuse)


class Store:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder).absolute()
        self.results, self.attempts, self.claims = (self.folder / part for part in ("results", "attempts", "claims"))
        self.plan = self.folder / "plan.json"

    def result(self, key):
        return self.results / key[:2] / f"{key}.json"

    def read(self, key):
        """The row of a case, or None; a file that cannot be read counts as none."""
        try:
            return strict(self.result(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def stamp(self, key):
        """Differs for every writing of a result; None where there is none."""
        try:
            found = os.stat(self.result(key))
            return found.st_ino, found.st_mtime_ns
        except OSError:
            return None

    def rows(self):
        """All rows, sorted by key, and the files that are none."""
        rows, broken = [], []
        for file in sorted(self.results.glob("*/*.json")):
            try:
                row = strict(file.read_text(encoding="utf-8"))
                if row["sweep"]["key"] != file.stem:
                    raise ValueError("is of another case")
                rows.append(row)
            except (OSError, ValueError, KeyError, TypeError):
                broken.append(file)
        return rows, broken

    def write(self, key, row):
        write_whole(self.result(key), json.dumps(row, allow_nan=False) + "\n")

    def write_plan(self, plan):
        write_whole(self.plan, json.dumps(plan, allow_nan=False) + "\n")

    def read_plan(self):
        try:
            return strict(self.plan.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(f"{self.folder}: no sweep is here; start one with mb sweep FILE.yaml -o {self.folder}") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{self.plan}: cannot be read: {error}; start the sweep again, which writes it") from None

    def new_attempt(self, key):
        """A folder for the next attempt at a case, and its number."""
        folder = self.attempts / key
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            number = 1 + max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=0)
            while True:
                try:
                    (folder / str(number)).mkdir()
                    return folder / str(number), number
                except FileExistsError:
                    number += 1

    def attempts_of(self, key):
        folder = self.attempts / key
        found = [path for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
        return sorted(found, key=lambda path: int(path.name))

    def sweep_up(self):
        """Removes half-written files of drivers of this host that are no more."""
        for file in self.folder.rglob(f".*.tmp.{HOST}.*"):
            pid = file.name.rpartition(".")[2]
            if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                with contextlib.suppress(OSError):
                    file.unlink()
