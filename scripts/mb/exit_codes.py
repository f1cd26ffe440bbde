"""Exit codes, the same for every verb and for the binary."""

import enum


class ExitCode(enum.IntEnum):
    OK = 0
    REGRESSION = 1
    USAGE = 2  # argparse's own, and what make returns: nothing else uses it
    NO_VERDICT = 3
    NO_DATA = 4
    INCONCLUSIVE = 5  # under --strict
    INTERNAL = 70
    INTERRUPTED = 130


HELP = """\
Exit codes: 0 done; 1 a regression; 2 wrong use; 3 could not judge, or failures that nobody expected;
4 no data, or an input or a store that cannot be read or written; 5 inconclusive and --strict;
70 a fault of this program; 130 interrupted."""
