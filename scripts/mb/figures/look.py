"""What all figures share: colours, hatches, caption, footer, and how they are written."""

from mb.errors import UserError
from mb.figures import rounds

# Okabe and Ito's colours, told apart by every kind of colour vision.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
GREY, PALE = "#999999", "#DDDDDD"

# Letters that surely fit into an inch.
TITLE_PER_INCH, CAPTION_PER_INCH = 8.5, 15.5
# Inches beside the title that a legend may take.
BESIDE = 3.4

# More bars than this are not readable on one page.
MOST_BARS = 40

STYLE = {
    "font.family": "DejaVu Sans", "font.size": 10, "axes.titlesize": 11, "hatch.linewidth": 0.6,
    "svg.hashsalt": "meshbench", "axes.spines.top": False, "axes.spines.right": False,
}


class NoData(UserError):
    """There is nothing to draw; says why and what would do."""


def new_figure(width, height, title):
    """An empty Figure that keeps titles, legends and captions clear of each other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    figure.suptitle("\n".join(wrapped(title, int(TITLE_PER_INCH * (width - BESIDE)))), x=0.01, ha="left", fontsize=13, fontweight="bold")
    return figure


def annotate(figure, caption, rows=()):
    """The caption, and under it where the numbers come from."""
    lines = [*caption, *([footer(rows)] if rows else [])]
    width = int(CAPTION_PER_INCH * figure.get_figwidth())
    figure.supxlabel("\n".join(part for line in lines for part in wrapped(line, width)), x=0.01, ha="left", fontsize=8,
                     color="#333333", linespacing=1.4)


def footer(rows):
    machines = sorted({row["fingerprint"]["id"] for row in rows})
    commits = sorted({commit(row["build"]) for row in rows})
    virtual = sum(rounds.count(row) for row in rows if row.get("virtual_time"))
    of_which = f", {virtual} in virtual time" if virtual else ""
    count = sum(map(rounds.count, rows))
    return f"machine {_listed(machines)}   commit {_listed(commits)}   {count} row{'s'[:count != 1]}{of_which}"


def commit(build):
    if build["git"] is None:
        return "unknown"
    return build["git"][:10] + ("+changes" if build["dirty"] else "")


def _listed(names, most=3):
    shown = ", ".join(names[:most]) or "unknown"
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def samples_text(rows, name):
    """How many steps a number stands for: "n = 5" or "n = 3 to 5"."""
    counts = sorted({row["metrics"][name]["n"] for row in rows if name in row["metrics"]})
    if not counts:
        return "n = 0"
    return f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"


def measured(rows):
    """Rows of status ok, rounds of a case as one, and lines on what was left out. Throws NoData if none is ok."""
    ok, notes = launches(rows)
    ok = rounds.as_one(ok)
    return ok, [*rounds.note(ok), *notes]


def launches(rows):
    """Rows of status ok, and a line on those that are not. Throws NoData if none is ok."""
    if not rows:
        raise NoData("no row to draw; make one with meshbench run ... --out FILE")
    ok = [row for row in rows if row["status"] == "ok"]
    rest = sorted({row["status"] for row in rows if row["status"] != "ok"})
    if not ok:
        raise NoData(f"no row of status ok among {len(rows)} ({', '.join(rest)}); nothing was measured")
    if len(ok) == len(rows):
        return ok, []
    return ok, [f"Left out, without numbers: {len(rows) - len(ok)} ({', '.join(rest)})."]


def first_bars(rows):
    """As many rows as a page of bars holds, and a line on the rest."""
    if len(rows) <= MOST_BARS:
        return rows, []
    return rows[:MOST_BARS], [f"The first {MOST_BARS} of {len(rows)} rows; choose others with --where."]


# How a run was made, and what follows from the other parameters: never a name for a row.
UNTOLD = {"mesh", "micro_batches", "parameters", "data", "seed", "steps", "warm_up", "verify", "timeout_s"}


def differing(rows, untold=UNTOLD):
    """Parameters in which the rows differ; the round of a schedule is none where it is the pipeline's length."""
    from mb.rows import stages

    if all(row["params"].get("group") in (None, 1, stages(row)) for row in rows):
        untold = {*untold, "group"}
    return [key for key in dict.fromkeys(key for row in rows for key in row["params"]) if key not in untold and
            len({str(row["params"].get(key)) for row in rows}) > 1]


def short(text, most=40):
    text = str(text)
    return text if len(text) <= most else text[:most - 3] + "..."


def common(rows, untold):
    """Words that the cases of all rows have alike, those of the untold keys left out."""
    cases = [row["case"].split() for row in rows]
    return " ".join(word for word in cases[0] if word.partition("=")[0] not in untold and
                    all(word in case for case in cases))


def pairs(row, keys):
    return [f"{key}={short(row['params'][key])}" for key in keys if key in row["params"]]


# Told by a name only if nothing else tells it.
FOLLOWING = ("mode", "stack", "dtype", "chunks", "group", "machine")


def telling(rows):
    """Parameters in which the rows differ, without those that follow from one other, as a dtype from its model."""
    keys = differing(rows)
    for key in FOLLOWING:
        others = [other for other in keys if other != key]
        for other in others if key in keys else []:
            pairs = {(str(row["params"].get(other)), str(row["params"].get(key))) for row in rows}
            if len(pairs) == len({value for value, _ in pairs}):
                keys = others
                break
    return keys


def row_height(names, least):
    """Inches that a row of a figure wants, for the longest of the names beside the rows."""
    return max(least, 0.12 + 0.16 * (1 + max(name.count("\n") for name in names)))


def labels(rows):
    """A name for each row: its mesh, and what else differs between the rows."""
    keys = telling(rows)
    return ["\n".join([short(row["mesh"]["text"]), *filter(None, wrapped(" ".join(pairs(row, keys)), 32))]) for row in rows]


def numbered(names):
    """The same, those that are alike told apart by a number."""
    return [name if names.count(name) == 1 else f"{name} ({names[:at].count(name) + 1})" for at, name in enumerate(names)]


def wrapped(text, width):
    """Lines of at most so many letters; a word that is longer is broken, on lines of its own."""
    if len(text) <= width:
        return [text]
    lines = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines += [word[at:at + width] for at in range(0, len(word), width)]
    return lines


def time_unit(seconds):
    """(factor, name) that shows a time of this size with few digits."""
    for factor, name in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return factor, name
    return 1e9, "ns"


def save(figure, folder, name):
    """Writes NAME.png (150 dpi) and NAME.svg, the same bytes for the same rows; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    figure.savefig(paths[0], dpi=150, metadata={"Software": None})
    figure.savefig(paths[1], metadata={"Date": None, "Creator": "meshbench"})
    return paths
