"""A program in meshbench's place that does at once what a word of its case tells it, and says that it ran."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from conftest import ROOT, failed_row, make_row

FAKE = """#!/bin/sh
# run: n=N do=WHAT sleep=S ... -o FILE
if [ "$1" = check ]; then exec {python} -SE {folder}/check.py; fi
shift
do=ok sleep= n=0 out=
for word in "$@"; do
  case $word in
    do=*) do=${{word#do=}} ;;
    sleep=*) sleep=${{word#sleep=}} ;;
    n=*) n=${{word#n=}} ;;
  esac
done
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
echo "$n $$" >>{folder}/log
[ -z "$sleep" ] || sleep "$sleep"
case $do in
  ok) cp {folder}/row.json "$out" ;;
  nothing) ;;
  torn) head -c 100 {folder}/row.json >"$out" ;;
  nan) echo '{{"schema": "meshbench-row/1", "value": NaN}}' >"$out" ;;
  usage) echo "meshbench: dtype=fp16: not with sgd" >&2; exit 2 ;;
  unverified) cp {folder}/row.json "$out"; echo "meshbench: the first step is not that of one rank" >&2; exit 3 ;;
  stuck) echo "meshbench: rank 1: no rank has ended an instruction for 60 s: rank 0 waits" >&2; exit 3 ;;
  oom) echo "meshbench: out of memory" >&2; exit 66 ;;
  abort) echo "x.cc:3: Assertion 'n > 0' failed" >&2; kill -ABRT $$ ;;
  segv) kill -SEGV $$ ;;
  kill) kill -KILL $$ ;;
  once) [ -e {folder}/once ] || {{ touch {folder}/once; kill -KILL $$; }}; cp {folder}/row.json "$out" ;;
  hang) sleep 600 ;;
  partial) trap 'cp {folder}/row.json "$out"; exit 130' TERM; sleep 600 & wait ;;
  deaf) trap '' TERM; sleep 600 & wait; wait ;;
  disk) echo "meshbench: $out: cannot write: No space left on device" >&2; exit 4 ;;
esac
"""

CHECK = """
import json, sys
head = json.load(open({folder!r} + "/head.json"))
known = ("n", "do", "sleep", "mode", "mesh", "needed", "s", "model", "flag", "machine")
for line in sys.stdin:
    words = [word.partition("=")[::2] for word in line.split()]
    params = {{"mode": "threads", "mesh": "dp2", **dict(words)}}
    row = {{**head, "suite": "check", "case": line.strip(), "params": params, "status": "ok", "status_detail": {{}}}}
    unknown = [key for key, _ in words if key not in known]
    if unknown:
        row.update(status="invalid", status_detail={{"message": f"key '{{unknown[0]}}' is not known", "phase": "words"}})
    elif params["mesh"] == "tp3":
        row.update(status="invalid", status_detail={{"message": "tp=3 does not divide model.heads=4", "phase": "rules"}})
    elif params["mode"] == "cuda":
        row.update(status="unsupported", status_detail={{"message": "this build has no CUDA", "phase": "mode"}})
    else:
        ranks = 1
        for part in params["mesh"].split("."):
            ranks *= int(part.lstrip("abcdefghijklmnopqrstuvwxyz") or 1)
        row["check"] = {{"model": {{"name": params.get("model", "m"), "layers": 4}}, "machine": None, "ranks": ranks,
                        "step_s": 0.01, "run_s": float(params.get("s", 0.01)),
                        "needed_bytes": int(params.get("needed", 1)) << 30, "capacity_bytes": 8 << 30}}
    print(json.dumps(row), flush=True)
"""


class Fake:
    def __init__(self, folder):
        self.folder = folder
        self.program = folder / "meshbench"
        self.program.write_text(FAKE.format(folder=folder, python=sys.executable))
        self.program.chmod(0o755)
        (folder / "check.py").write_text(CHECK.format(folder=str(folder)))
        (folder / "row.json").write_text(json.dumps(make_row("dp2")))
        (folder / "head.json").write_text(json.dumps(failed_row()))

    def ran(self):
        """n= of every case that was started, in order."""
        log = self.folder / "log"
        return [int(line.split()[0]) for line in log.read_text().splitlines()] if log.exists() else []

    def processes(self):
        return [int(line.split()[1]) for line in (self.folder / "log").read_text().splitlines()]

    def sweep_file(self, **spec):
        """A file of a sweep; without axes, cases n=1 to n=3."""
        file = self.folder / "s.yaml"
        file.write_text(json.dumps({"axes": {"n": [1, 2, 3]}, **spec}))
        return file

    def start(self, file, out, *words, setup=""):
        """A driver of its own, which may be killed; `setup` is Python that it runs before."""
        code = f"import sys\n{setup}\nfrom mb.main import main\nsys.exit(main(sys.argv[1:]))"
        return subprocess.Popen([sys.executable, "-c", code, "sweep", file, "-o", out, *words], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, start_new_session=True,
                                env={**os.environ, "MESHBENCH": str(self.program), "PYTHONPATH": str(ROOT / "scripts")})


@pytest.fixture
def fake(tmp_path, monkeypatch):
    folder = tmp_path / "fake"
    folder.mkdir()
    made = Fake(folder)
    monkeypatch.setenv("MESHBENCH", str(made.program))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return made


@pytest.fixture
def mb(capsys):
    """Runs mb in this process: (exit code, stdout, stderr)."""
    from mb.main import main

    def run(*words):
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)}
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as done:
            code = done.code
        assert {number: signal.getsignal(number) for number in handlers} == handlers
        shown = capsys.readouterr()
        return int(code), shown.out, shown.err
    return run


def rows_in(out):
    """{n: row} of a folder of a sweep."""
    found = [json.loads(file.read_text()) for file in pathlib.Path(out).glob("results/*/*.json")]
    return {row["sweep"]["point"]["n"]: row for row in found}
