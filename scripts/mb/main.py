"""mb VERB ...: what is done with the rows that meshbench writes."""

import importlib
import importlib.metadata
import os
import platform
import subprocess
import sys

from mb import color, exit_codes
from mb.errors import UserError
from mb.exit_codes import ExitCode

# Verb -> module with main(argv), which returns an exit code; and what it does. Imported when called.
VERBS = {
    "rows": ("mb.rows", "print rows as a table, or those that meet conditions"),
    "plot": ("mb.plot", "draw one figure from rows"),
    "published": ("mb.published.command", "hold predictions to published measurements"),
    "report": ("mb.report.command", "one HTML page on rows, traces and a gate's verdict"),
    "gate": ("mb.gate.command", "hold a build or its rows to those of a base; history, self-test"),
    "sweep": ("mb.sweep.command", "run all cases of a file that have no result yet"),
    "status": ("mb.sweep.status", "how far a sweep is, and what failed"),
    "index": ("mb.sweep.index", "one file of all results of a sweep"),
    "explain": ("mb.sweep.explain", "all about one case of a sweep"),
}


LIBRARIES = ("numpy", "scipy", "matplotlib", "jinja2", "jsonschema", "pyyaml")


def help_text():
    verbs = "\n".join(f"  {name:10} {text}" for name, (_, text) in VERBS.items())
    return (f"usage: mb [--version] [--debug] [--color WHEN] VERB ...\n\n{__doc__}\n\nVerbs, each with --help:\n{verbs}\n\n"
            "  --version     the program that verbs launch, Python and its libraries\n"
            "  --debug       show where an error came from\n"
            "  --color WHEN  colours of verdicts and outcomes: auto (default: on a terminal), always, never\n\n"
            "Results go to stdout, all else to stderr. Of the environment are read: MESHBENCH, the program to launch;\n"
            "NO_COLOR, then FORCE_COLOR and CLICOLOR_FORCE, where --color is auto; CI, where progress is plain lines.\n\n"
            "Examples:\n  mb rows results/quickstart/rows\n  mb plot breakdown results/quickstart/rows\n\n"
            f"{exit_codes.HELP}")


def version_text():
    """What a report of a fault has to tell."""
    from mb.sweep import binary

    try:
        told = subprocess.run([binary.program(), "--version"], capture_output=True, text=True, timeout=30).stdout.strip()
    except (UserError, OSError, subprocess.TimeoutExpired) as error:
        told = str(error)
    libraries = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)
    return f"{told}\nPython {platform.python_version()}, {libraries}"


def _usage(message):
    print(f"mb: {message}; verbs are {', '.join(VERBS)}; see mb --help", file=sys.stderr)
    return ExitCode.USAGE


def main(argv=None):
    words = list(sys.argv[1:] if argv is None else argv)
    debug = False
    while words and (words[0] == "--debug" or words[0].partition("=")[0] == "--color"):
        word, equals, when = words.pop(0).partition("=")
        if word == "--debug":
            debug = True
            continue
        when = when if equals else words.pop(0) if words else ""
        if when not in color.WHEN:
            return _usage(f'--color takes {", ".join(color.WHEN)}, not "{when}"')
        color.choose(when)
    if words[:1] in (["-h"], ["--help"]):
        print(help_text())
        return ExitCode.OK
    if words[:1] == ["--version"]:
        print(version_text())
        return ExitCode.OK
    if not words:
        return _usage("no verb given")
    verb, *rest = words
    if verb not in VERBS:
        return _usage(f'"{verb}" is no verb')
    return _guarded(verb, rest, debug)


def _guarded(verb, argv, debug):
    """Runs a verb; errors become a line on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what a locale has no letter for is escaped
            stream.reconfigure(errors="backslashreplace")
    try:
        code = importlib.import_module(VERBS[verb][0]).main(argv)
        sys.stdout.flush()
        return code
    except UserError as error:
        if debug:
            raise
        print(f"mb {verb}: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print(f"mb {verb}: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except Exception as error:  # a fault of ours must not look like a regression
        if debug:
            raise
        print(f"mb {verb}: internal error: {type(error).__name__}: {error}; mb --debug {verb} ... shows where",
              file=sys.stderr)
        return ExitCode.INTERNAL


if __name__ == "__main__":
    sys.exit(main())
