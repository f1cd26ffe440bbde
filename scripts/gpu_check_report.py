"""What gpu_check.py writes of its parts: goals that are met or missed, one JSON, one table."""

import json
import time

# --- goals ---


def launch_gaps(check):
    """Share of a step as a graph in which the GPU does nothing. What it does is what CUPTI timed in the
    same step without a graph, or, where that is not there, what device events say."""
    graphs, cupti = check.seen.get("graph", {}), check.seen.get("tracing", {})
    if "step_ms" not in graphs:
        return None
    step_s = sum(graphs["step_ms"]["graph=on"]) / len(graphs["step_ms"]["graph=on"]) / 1e3
    if cupti.get("steps"):
        return 1 - sum(c["busy_s"] for c in cupti["classes"]) / cupti["steps"] / step_s
    return max(graphs["idle_s"]["graph=on"]) / step_s


# What is measured, the share of it that is wanted, and whether that is the least or the most.
GOALS = [("products by themselves, of the measured bf16 peak", 0.85, True,
          lambda check: check.seen.get("steps", {}).get("matmuls_of_measured_gemm_peak")),
         ("the whole step (MFU), of the measured bf16 peak", 0.60, True,
          lambda check: check.seen.get("steps", {}).get("of_measured_gemm_peak")),
         ("gaps between launches, of a step as a CUDA graph", 0.02, False, launch_gaps),
         ("CUPTI's tracing, added to the step", 0.03, False, lambda check: check.seen.get("tracing", {}).get("overhead"))]


def judged(check):
    """Each goal with what was measured: met, missed, or why neither."""
    goals = []
    for name, wanted, least, measure in GOALS:
        measured = measure(check)
        if check.cases.tiny:
            status = "not judged: --tiny"
        elif measured is None:
            status = f"not measured: {check.no_speed or 'a part that it is from has no result'}"
        else:
            status = "met" if (measured >= wanted if least else measured < wanted) else "MISSED"
        goals.append({"goal": name, "wanted": f"{'at least' if least else 'under'} {100 * wanted:.0f} %",
                      "measured": measured, "status": status})
    return goals


# --- the table ---


def aligned(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]) - 1)]
    return "".join("  ".join([*(cell.ljust(width) for cell, width in zip(line, widths)), line[-1]]).rstrip() + "\n"
                   for line in lines)


def table(report):
    text = f"Meshbench on {report['gpu'] or 'a GPU that no part has named'}, {report['time_utc']}\n"
    if report["no_speed"]:
        text += f"No speed is told, and none of this says anything of a GPU: {report['no_speed']}.\n"
    elif report["tiny"]:
        text += "Small models (--tiny), to check this script: their speeds say nothing of a GPU.\n"
    text += "\n" + aligned([("part", "status", "s", "result"),
                            *((p["part"], p["status"], f"{p['seconds']:.1f}", p["result"]) for p in report["parts"])])
    text += f"\nGoals, of {report['judged_case']}:\n"
    return text + aligned([("what", "wanted", "measured", "status"),
                           *((g["goal"], g["wanted"], "-" if g["measured"] is None else f"{100 * g['measured']:.1f} %",
                              g["status"]) for g in report["goals"])])


def report_of(check, judged_case, parts):
    goals = judged(check)
    gpus = [(p["details"] or {}).get("gpu") for p in parts if p["part"] == "peaks"]
    return {"schema": "meshbench-gpu-check/2", "time_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "gpu": gpus[0] if gpus else None, "tiny": check.cases.tiny, "no_speed": check.no_speed,
            "ok": all(p["status"] == "ok" for p in parts) and all(g["status"] != "MISSED" for g in goals),
            "judged_case": judged_case, "parts": parts, "goals": goals}


def write(out, report):
    (out / "gpu_check.json").write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    (out / "gpu_check.txt").write_text(table(report), encoding="utf-8")
