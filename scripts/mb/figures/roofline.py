"""Rooflines: operations of one core beside its ceilings, and steps beside those of a device and its network."""

import json

from mb import rows as rows_of
from mb.figures import look, series


def load(paths):
    """(operations by ops_bench, rows): what --benchmark_out of ops_bench wrote, and rows of meshbench."""
    benches, rows = [], []
    for path in (f for p in paths for f in rows_of.files_of(p)):
        bench = _bench(path) if path.suffix == ".json" else None
        if bench is None:
            rows += rows_of.load([path])
        else:
            benches += bench
    return benches, rows


def _bench(path):
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # rows_of.load says what is wrong
    return content.get("benchmarks") if isinstance(content, dict) else None


def operations(benches):
    """[(name, FLOP/B, GFLOP/s)] of the operations that have both rates."""
    found = []
    for bench in benches:
        flops, bytes_ = bench.get("GFLOP_per_s"), bench.get("GB_per_s")
        if bench["name"].startswith("op/") and flops and bytes_:
            found.append((bench["name"].split("/", 2)[-1], flops / bytes_, flops))
    return found


def steps(rows):
    """[(row, link, FLOP/B sent over it, FLOP/s a device, FLOP/s peak, B/s of the link)] of steps in virtual time."""
    found = []
    for row in rows:
        flops, seconds = rows_of.value(row, "hardware_flops"), rows_of.value(row, "step_s")
        if row["suite"] != "step" or not row["virtual_time"] or not row.get("machine") or not flops or not seconds:
            continue
        world = row["mesh"]["world"]
        for (link, key), sent in sent_over(row).items():
            found.append((row, link, flops / world / sent, flops / world / seconds, row["peak"]["flops_per_s"],
                          1e9 * row["machine"][key]))
    return found


# Link of a collective -> its name, and the machine's rate. A ring over nodes sends the same over each of its links.
LINKS = {"intra": ("within nodes", "link_gb_per_s"), "inter": ("between nodes", "nic_gb_per_s"),
         "mixed": ("between nodes", "nic_gb_per_s")}


def sent_over(row):
    """{(link, key of its rate): bytes that a rank sends over it in a step, mean over ranks}."""
    found = {}
    for part in row["collectives"]:
        if part["link"] in LINKS and part["link_bytes"]:
            senders = 1 if part["kind"] == "send_recv" else part["group_size"]
            sent = part["link_bytes"] * senders * part["count"] / row["mesh"]["world"]
            found[LINKS[part["link"]]] = found.get(LINKS[part["link"]], 0) + sent
    return found


def roofline(found):
    """A panel for operations, one for steps."""
    benches, rows = found
    ops, ran = operations(benches), steps([row for row in rows if row["status"] == "ok"])
    if not ops and not ran:
        raise look.NoData("no operation of ops_bench and no step on a machine; make some with ops_bench "
                          "--benchmark_out=ops.json, or meshbench run mode=sim ... --out FILE")
    panels = [panel for panel, data in ((_operations, ops), (_steps, ran)) if data]
    heights = [max(5.6, 1.2 + series.legend_height(list(lines_of(ran))[:series.MOST])) if panel is _steps else 5.6
               for panel in panels]
    figure = look.new_figure(11.5, 1.2 + sum(heights), "Roofline")
    for ax, panel in zip(figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0], panels):
        panel(ax, benches if panel is _operations else ran)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
        series.grid_lines(ax)
    look.annotate(figure, [
        "Sloped: as many bytes as the memory, or the link, can move; flat: as many FLOPs as the unit can do; dashed line: as a "
        "large matmul can. n = 1 a point.",
        "Operations with a count of FLOPs: bytes that each must read and write, on one core. Steps, in virtual time: bytes "
        "sent over the class of links,",
        "mean over ranks; a point for each class; as close to its roof as that class holds the step up.",
        *(series.first(lines_of(ran), "lines of steps")[1] if ran else [])],
        list({id(row): row for row, *_ in ran}.values()))
    return figure


def lines_of(ran):
    """Steps by what tells them apart beside the batch; of several models and machines, by these as well."""
    kinds = series.kinds(list({id(row): row for row, *_ in ran}.values()))
    found = {}
    for kind, rows in kinds.items():
        for name, group in series.split(rows, ("global_batch", "micro_batch", "micro_batches", "order")).items():
            found[f"{kind}: {name or group[0]['mesh']['text']}" if len(kinds) > 1 else name] = group
    return found


def _roof(ax, peak, rate, low, high, name, colour, dash="-"):
    """min(peak, rate * intensity) over an interval of intensities."""
    x = sorted({low, min(max(peak / rate, low), high), high})
    ax.plot(x, [min(peak, rate * value) for value in x], dash, color=colour, linewidth=1.4, label=name, zorder=1)


def _operations(ax, benches):
    ops = operations(benches)
    ceilings = {bench["name"].split("/iterations")[0]: bench for bench in benches if bench["name"].startswith("ceiling/")}
    kinds = {}
    for name, intensity, rate in ops:
        kinds.setdefault(name.split("_")[0], []).append((intensity, rate))
    kinds = dict(sorted(kinds.items(), key=lambda kind: -len(kind[1]))[:series.MOST])
    for at, (kind, points) in enumerate(kinds.items()):
        ax.plot(*zip(*points), linestyle="none", markersize=6, label=kind, zorder=3, **series.style(at))
    low, high = (f(value for _, value, _ in ops) for f in (min, max))
    if "ceiling/triad" in ceilings:
        memory = ceilings["ceiling/triad"]["GB_per_s"]
        low = min(low, 1.0)
        for name, label, dash in (("ceiling/fma/fp32", "multiply-add", "-"), ("ceiling/matmul/fp32", "large matmul", "--")):
            if name in ceilings:
                peak = ceilings[name]["GFLOP_per_s"]
                _roof(ax, peak, memory, low / 2, high * 2, f"{label} {peak:.4g} GFLOP/s, triad {memory:.3g} GB/s",
                      look.BLACK, dash)
    ax.set_title("operations on one core", loc="left")
    ax.set_xlabel("FLOP per byte of memory traffic")
    ax.set_ylabel("GFLOP/s")


def _steps(ax, ran):
    roofs = sorted({(peak, rate, link) for _, link, _, _, peak, rate in ran})[:series.MOST]
    low, high = (f([*(point[2] for point in ran), *(peak / rate for peak, rate, _ in roofs)]) for f in (min, max))
    for peak, rate, link in roofs:
        dash = "-" if link == "within nodes" else "--"
        _roof(ax, peak / 1e12, rate / 1e12, low / 3, high * 3, None, look.BLACK, dash)
    for rate in sorted({rate for _, rate, _ in roofs}):
        links = ",\n".join(sorted({link for _, of, link in roofs if of == rate}))
        ax.annotate(f"{rate / 1e9:g} GB/s {links}", (low / 3, rate / 1e12 * low / 3), fontsize=7, ha="right", va="center",
                    xytext=(-3, 0), textcoords="offset points")
    ax.set_xlim(low / 3 / (9 * high / low) ** 0.25, 4 * high)  # room for these names
    groups, _ = series.first(lines_of(ran))
    links = [(link, fill) for link, fill in (("within nodes", "full"), ("between nodes", "none"))
             if any(of == link for _, of, *_ in ran)]
    for at, (name, group) in enumerate(groups.items()):
        for link, fill in links:
            points = [(intensity, done / 1e12) for row, of, intensity, done, *_ in ran
                      if of == link and any(row is member for member in group)]
            if points:
                ax.plot(*zip(*points), linestyle="none", markersize=7, zorder=3, fillstyle=fill, **series.style(at))
        ax.plot([], [], linestyle="none", markersize=7, label=series.legend_name(name or group[0]["mesh"]["text"]),
                **series.style(at))
    for link, fill in links:
        ax.plot([], [], "o", color=look.GREY, fillstyle=fill, label=f"bytes {link}")
    ax.set_title("steps, by what the network carries", loc="left")
    ax.set_xlabel("FLOP per byte sent")
    ax.set_ylabel("TFLOP/s a device")
