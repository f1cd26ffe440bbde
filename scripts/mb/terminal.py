"""Colour and tables of the terminal. Data goes to stdout, all else to stderr."""

import os


def wants_colour(stream, choice="auto", environment=os.environ):
    """--color, then NO_COLOR, then FORCE_COLOR or CLICOLOR_FORCE, then whether it is a terminal."""
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") != "0" or environment.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return stream.isatty() and environment.get("TERM") != "dumb"


def console(stream, colour="auto"):
    """A rich console that follows these rules; folds nothing where no terminal limits the width."""
    import rich.console

    coloured = wants_colour(stream, colour)
    width = None if stream.isatty() else 200
    return rich.console.Console(file=stream, force_terminal=coloured, no_color=not coloured, width=width,
                                highlight=False, markup=False, emoji=False, soft_wrap=not stream.isatty())


def table(columns, lines):
    """A rich table of texts: the first column to the left, numbers to the right."""
    import rich.box
    import rich.table

    made = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for at, name in enumerate(columns):
        made.add_column(name, justify="right" if at else "left", overflow="fold")
    for line in lines:
        made.add_row(*map(str, line))
    return made
