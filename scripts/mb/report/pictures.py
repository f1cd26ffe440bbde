"""Figures of a page in data URIs, as SVG or, of many points, PNG, each with a text for those who do not see it.

Those without data are left out.
"""

import base64
import io

from mb import rows as rows_of
from mb.figures import (breakdown, bubble, collectives, exposure, forest, heat_maps, history, look, memory, meshes, pareto,
                        placement, predicted, rounds, scaling, straggler)

# Bars of a figure; a page of thousands of rows draws those with the best MFU.
MOST_BARS = 16
# A figure with more text of SVG than this is smaller, and faster to show, as PNG.
MOST_SVG_BYTES = 200_000
# Text stays text: smaller by half, and set in what the reader has.
STYLE = {**look.STYLE, "svg.fonttype": "none"}
FIGURES = (
    ("meshes", meshes.meshes, "Heat maps of the best MFU by tensor and pipeline ranks and by data ranks and micro-batch"),
    ("breakdown", breakdown.breakdown, "Stacked bars: compute, optimizer, exposed communication by axis, idle"),
    ("bubble", bubble.bubble, "Pipeline bubble over micro-batches beside its closed form"),
    ("memory", memory.memory, "Peak memory by class: closed form, plan, measured"),
    ("scaling", scaling.scaling, "Throughput and MFU over devices with the ideal line"),
    ("pareto", pareto.pareto, "Step time against peak memory, with the front"),
    ("exposure", exposure.exposure, "Exposed and hidden communication over the bandwidth of a link"),
    ("predicted", predicted.predicted, "Predicted against measured times and memory"),
    ("straggler", straggler.straggler, "Least, median and most time of ranks"),
    ("history", history.history, "Times over campaigns with change points"),
    ("placement", placement.placement, "Orders of axes: bytes between nodes and step times"),
    ("busbw", collectives.busbw, "Bus bandwidth of collectives over size"),
    ("latency", collectives.latency, "Time of collectives over size, with latency and rate fitted"),
    ("skew", heat_maps.skew, "Who arrives last, who waits, who is slow, by rank and size"))
BARS = ("breakdown", "memory", "straggler")
# Drawn of training steps alone, or collectives alone; the rest sorts out for itself.
STEPS = ("meshes", "breakdown", "bubble", "memory", "scaling", "pareto", "exposure", "straggler")


def draw(rows, document):
    """[{name, alt, note, uri}] of all figures that have something to draw."""
    import matplotlib

    steps = [row for row in rows if row["suite"] == "step"]
    found = []
    with matplotlib.rc_context(STYLE):
        if document:
            found += _picture("forest", lambda _: forest.forest(document["findings"]),
                              "Effect and interval of each finding of the gate, with its verdict", [], "")
        for name, figure, alt in FIGURES:
            of = steps if name in STEPS else rows
            if name in ("busbw", "latency"):
                of = [row for row in rows if undisturbed(row)]
            note = ""
            ran = [row for row in of if row["status"] == "ok"]
            ran = ran if name == "straggler" else rounds.as_one(ran)
            if name in BARS and len(ran) > MOST_BARS:
                note = f"The {MOST_BARS} of {len(ran)} {'launches' if name == 'straggler' else 'cases'} with the best MFU."
                of = sorted(ran, key=lambda row: -(rows_of.value(row, "mfu") or 0))[:MOST_BARS]
            of = meshes.rows_with_cells(of) if name == "meshes" else of
            if of:
                found += _picture(name, figure, alt, of, note)
    return found


def undisturbed(row):
    """Whether a collective had its links to itself; others have figures of their own."""
    coll = row.get("coll")
    return coll is not None and coll["beside"]["operation"] is None and not coll.get("injected_delay_s")


def _picture(name, figure, alt, rows, note):
    try:
        drawn = figure(rows)
    except look.NoData:
        return []
    return [{"name": name, "alt": f"{alt}. {drawn.get_supxlabel()}".replace("\n", " "), "note": note,
             "title": drawn.get_suptitle(), "uri": _uri(drawn)}]


def _png(figure):
    """Of as few colours as a figure has."""
    from PIL import Image

    drawn, out = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    Image.open(drawn).convert("RGB").quantize(64).save(out, format="png", optimize=True)
    return out.getvalue()


def _uri(figure):
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "meshbench"})
    text = out.getvalue().replace(b"'DejaVu Sans'", b"'DejaVu Sans', Verdana, sans-serif")
    kind = "svg+xml"
    if len(text) > MOST_SVG_BYTES:
        text, kind = _png(figure), "png"
    return f"data:image/{kind};base64," + base64.b64encode(text).decode("ascii")
