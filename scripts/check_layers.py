#!/usr/bin/env python3
"""check_layers.py [ROOT]: includes point down only, and meet a file.

Data flows one way, and so do includes: a file includes its own place in ORDER and the places
before it. Exits with 0 if that holds, 1 if an include breaks it, 2 if ROOT is no checkout.
"""

import argparse
import pathlib
import re
import sys

# A header that is plain data may stand lower than the sources of its folder.
ORDER = [
    "workloads/base",
    "workloads/ops",
    "workloads/model",
    "parallel/mesh",
    "parallel/comm",
    "parallel/timeline/timeline.h",
    "parallel/plan",
    "parallel/schedule",
    "parallel/strategy",
    "parallel/timeline",
    "parallel/cost",
    "parallel/device",
    "parallel/exec",
    "bench/analysis",
    "bench/profile",
    "bench/report",
    "bench/doctor",
    "bench/coll",
    "bench/choose",
    "bench/fit",
    "bench/cli",
    "bench/micro",
]
# Headers that the build writes.
GENERATED = ("git_version.h",)
TOPS = ("workloads", "parallel", "bench")
SUFFIXES = (".h", ".cc", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def place(path):
    """The index in ORDER of a path from the root, or None where ORDER does not name it."""
    folder = str(pathlib.PurePosixPath(path).parent)
    for name in (path, folder):
        if name in ORDER:
            return ORDER.index(name)
    return None


def includes(file):
    """(line number, included path) of every quoted include but generated ones."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match and match.group(1) not in GENERATED:
            yield number, match.group(1)


def sources(root, tops=TOPS):
    """C++ files below the folders `tops`, sorted."""
    return sorted(f for top in tops for f in (root / top).rglob("*") if f.suffix in SUFFIXES)


def faults_of(root, file):
    """What is wrong with the includes of one file, a line each."""
    path = file.relative_to(root).as_posix()
    own = place(path)
    if own is None:
        yield f"{path}: its folder has no place in ORDER of scripts/check_layers.py; add it there"
        return
    for number, included in includes(file):
        other = place(included)
        if not (root / included).is_file():
            yield f"{path}:{number}: no file {included}; give the path from the root"
        elif other is None or other > own:
            yield f"{path}:{number}: {ORDER[own]} may not include {included}, which stands above it"


def faults(root):
    return [fault for file in sources(root) for fault in faults_of(root, file)]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0],
                                     epilog="Lowest first:\n  " + "\n  ".join(ORDER),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args(argv).root
    count = len(sources(root))
    if count == 0:
        print(f"check_layers: {root}: no C++ file in {', '.join(TOPS)}; give the root of a checkout",
              file=sys.stderr)
        return 2
    found = faults(root)
    for fault in found:
        print(fault)
    print(f"{count} files, {len(found)} faults", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
