"""Rows and traces to draw: small, valid against the schema, with numbers that are easy to check."""

import json
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

MIB = 2**20
NS = 1_000_000_000


def metric_of(samples, unit):
    ordered = sorted(samples)
    middle = ordered[len(ordered) // 2]
    return {"value": middle, "unit": unit, "n": len(samples), "min": ordered[0], "median": middle,
            "mean": sum(samples) / len(samples), "samples": samples}


def absent(unit, reason):
    return {"value": None, "unit": unit, "n": 0, "reason": reason}


def axes_of(mesh):
    return {name: int(size) for name, size in re.findall(r"([a-z]+)(\d+)", mesh)}


def make_row(mesh="pp4", micro_batches=8, schedule="1f1b", mode="threads", steps=5,
             bubble_excess=0.02, mfu=0.25):
    """A row of status ok: 10 ms forward and 20 ms backward a micro-batch and stage.

    Virtual time has the bubble of the closed form; threads have `bubble_excess` more.
    """
    axes = axes_of(mesh)
    p, world = axes.get("pp", 1), 1
    for size in axes.values():
        world *= size
    theory = (p - 1) / (micro_batches + p - 1)
    virtual = mode == "sim"
    bubble = theory if virtual or p == 1 else theory + bubble_excess
    compute_ns = 30_000_000 * micro_batches
    optimizer_ns, idle_ns = 5_000_000, 1_000_000
    comm = {a: 3_000_000 for a in axes if a in ("dp", "tp")}
    wait_ns = round(compute_ns * bubble / (1 - bubble))
    parts = [("compute", None, compute_ns), ("optimizer", None, optimizer_ns), ("idle", None, idle_ns)]
    parts += [("exposed_transfer", a, ns) for a, ns in comm.items()]
    if p > 1:
        parts += [("exposed_transfer", "pp", 1_000_000), ("exposed_wait", "pp", wait_ns)]
    step_ns = sum(ns for _, _, ns in parts)
    step_s = [step_ns / NS * (1 + 0.01 * (k - steps // 2)) for k in range(steps)]
    classes = {"parameter": 8, "gradient": 8, "moment": 16, "activation": 2 * micro_batches}
    total = sum(classes.values()) * MIB

    def memory_row(name, size):
        return {"class": name, "closed_form_bytes": size, "plan_bytes": size + MIB,
                "measured_bytes": None if virtual else size + MIB}

    metrics = {
        "step_s": metric_of(step_s, "s"),
        "tokens_per_s": metric_of([1024 / s for s in step_s], "token/s"),
        "model_flops": metric_of([1e9] * steps, "FLOP"),
        "mfu": metric_of([mfu] * steps, "1"),
        "hfu": metric_of([mfu] * steps, "1"),
        "compute_s": metric_of([(compute_ns + optimizer_ns) / NS] * steps, "s"),
        "comm_s": metric_of([sum(comm.values()) / NS] * steps, "s"),
        "exposed_comm_s": metric_of([sum(comm.values()) / NS] * steps, "s"),
        "exposed_fraction": metric_of([sum(comm.values()) / step_ns] * steps, "1"),
        "idle_s": metric_of([idle_ns / NS] * steps, "s"),
        "busy_s": metric_of([(step_ns - idle_ns) / NS] * steps, "s"),
        "bubble_fraction": metric_of([bubble] * steps, "1"),
        "peak_bytes": metric_of([total] * steps, "B"),
        "loss": absent("1", "virtual time computes nothing") if virtual else
        metric_of([5.5 - 0.1 * k for k in range(steps)], "1"),
    }
    phase = {"window_s": 0.1, "compute_s": 0.1, "transfer_s": {}, "wait_s": {}, "memory_s": 0, "idle_s": 0}
    return {
        "schema": "meshbench-row/1", "run_id": f"{mesh}-{schedule}-{micro_batches}-{mode}",
        "campaign_id": None, "time_utc": "2026-01-02T03:04:05Z", "suite": "step",
        "case": f"model=gpt-1m mesh={mesh} schedule={schedule} mode={mode}", "case_version": 1,
        "params": {"model": "gpt-1m", "mesh": mesh, "schedule": schedule, "mode": mode, "micro_batch": 1,
                   "global_batch": micro_batches * axes.get("dp", 1)},
        "key": "0" * 16,
        "build": {"git": "0123456789abcdef0123456789abcdef01234567", "dirty": False, "type": "Release",
                  "flags_hash": "1" * 16, "compiler": "g++ 12.2.0"},
        "fingerprint": {"id": "fedcba9876543210", "hard": {"cores": 2}, "soft": {}},
        "role": "single", "pair": None, "order": None, "seed": 1, "status": "ok", "status_detail": {},
        "metrics": metrics, "ranks": {}, "env": {}, "artifacts": {}, "raw": None,
        "mode": mode, "virtual_time": virtual, "steps": {"warm_up": 2, "measured": steps},
        "mesh": {"text": mesh, "world": world, "axes": axes, "order": "tp-cp-ep-dp-rdp-pp", "ranks_per_node": 8},
        "convention": {"name": "megatron", "source": "Narayanan et al., SC 2021"},
        "peak": {"flops_per_s": 1e11, "devices": world, "dtype": "fp32", "source": "measured"},
        "verified": {"ok": not virtual, "by": None if virtual else "one rank in fp64"},
        "theory": {"bubble_fraction": theory, "bubble_over_ideal": (p - 1) / micro_batches,
                   "source": "Narayanan et al., SC 2021, section 2.2"},
        "stages": [{"stage": s, "window_s": 0.3, "compute_s": 0.3 * (1 - bubble), "bubble_s": 0.3 * bubble,
                    "bubble_fraction": bubble, "bubble_over_ideal": bubble / (1 - bubble),
                    "warm_up": phase, "steady": phase, "cool_down": phase, "closed_form": None}
                   for s in range(p)],
        "breakdown": {
            "steps": steps, "ranks": world, "window_ns": step_ns * steps,
            "parts": [{"name": name, "axis": axis, "total_ns": ns * steps * world, "mean_s": ns / NS,
                       "share": ns / step_ns} for name, axis, ns in parts],
            "overlapped": [{"axis": "dp", "total_ns": 2_000_000 * steps * world,
                            "transfer_ns": 1_000_000 * steps * world, "mean_s": 0.002}]
            if "dp" in axes else []},
        "collectives": [],
        "memory": {"rank": 0, "stage": 0, "classes": [memory_row(c, n * MIB) for c, n in classes.items()],
                   "total": memory_row("total", total)},
        "traffic": [],
    }


def make_place_row(orders=("tp,dp",), inter_mib=0, simulated_s=1.0, measured_s=()):
    """A row of meshbench place: an order of dp2.tp2 on two nodes that sends so much between them."""
    row = failed_row()
    step = metric_of(list(measured_s), "s") if measured_s else absent("s", "not run; --run measures it")
    axis = {"axis": "tp", "ranks": 2, "groups": 2, "crossing": 2 if inter_mib else 0,
            "link": "inter" if inter_mib else "intra", "intra_bytes": MIB, "inter_bytes": inter_mib * MIB, "seconds": 0.1}
    return {**row, "suite": "place", "status": "ok", "status_detail": {},
            "params": {**row["params"], "mesh": "dp2.tp2", "link": "none"}, "machine": {"name": "h100x8"},
            "metrics": {"step_s": step, "simulated_step_s": metric_of([simulated_s], "s")},
            "placement": {"orders": list(orders), "nodes": 2, "crossing_axes": ["tp"] if inter_mib else [],
                          "intra_bytes": MIB, "inter_bytes": inter_mib * MIB, "times_the_best": 1.0, "axes": [axis]}}


def times_of(samples):
    """A distribution whose median's interval is 10 % to either side."""
    ordered = sorted(samples)
    middle = ordered[len(ordered) // 2]
    at = {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))]
          for name, share in (("p95_s", 0.95), ("p99_s", 0.99), ("p999_s", 0.999))}
    return {"n": len(ordered), "min_s": ordered[0], "p50_s": middle, **at, "max_s": ordered[-1],
            "median_deviation_s": 0.0, "low_s": middle / 1.1, "high_s": middle * 1.1, "outliers": 0}


def make_coll_row(operation="all_reduce", size=MIB, busbw=1e9, group=0, ranks=(0, 1), axis="dp", library=None,
                  ceiling=None, samples=(1e-3,) * 10, raw=False, waits=None, late=None, beside=None, slow_down=2.0,
                  in_place=False):
    """A row of meshbench coll. `late` is the rank that arrives last every time and that the verdict names."""
    row = failed_row()
    n = len(samples)
    members = [{"rank": rank, "host": "h", "wait_s": (waits or {}).get(rank, 0.0), "transfer_s": 1e-3 * (k + 1),
                "late_s": 0.0, "arrived_last": n if rank == late else 0} for k, rank in enumerate(ranks)]
    sized = size is not None
    coll = {"operation": operation, "axis": axis, "group": group, "groups": 2, "members": len(ranks),
            "ranks": list(ranks), "bytes": size, "asked_bytes": size, "count": size and size // 4,
            "dtype": "fp32" if sized else None, "redop": "sum" if "reduce" in operation else None, "root": None,
            "in_place": in_place, "algorithm": "own", "call": "blocking", "cache": "warm", "pages": "huge",
            "factor": 1.0 if sized else None, "warm_up_operations": 5, "completion": times_of(samples),
            "mean_of_ranks_s": 1e-3, "submit": None, "skew": times_of(samples), "clock_uncertainty_s": 0.0,
            "members_times": members,
            "expected": {"link": "intra", "seconds": None, "busbw_ceiling_bytes_per_s": ceiling, "ceiling_by": "memory",
                         "fraction": ceiling and busbw / ceiling, "wire_intra_bytes": None, "wire_inter_bytes": None,
                         "wire_node_bytes": None},
            "check": {"wrong": 0, "checked_elements": 1, "full_operations": 1, "sampled_operations": 0,
                      "first_wrong": None},
            "verdict": {"fault": "none" if late is None else "late_rank", "who": [] if late is None else [late],
                        "effect_s": 0.0, "text": ""},
            "warm": True, "certain": True, "drifts": False, "minor_faults": 0, "switches": 0, "preemptions": 0,
            "overlap": {"compute": "none", "units": 0, **dict.fromkeys(
                ("operation_s", "compute_s", "both_s", "efficiency", "operation_slow_down", "compute_slow_down"))},
            "beside": {"operation": beside and operation, "axis": beside, "bytes": size if beside else None,
                       "alone_s": 1e-3 if beside else None, "slow_down": slow_down if beside else None}}
    if raw:
        coll["samples_s"] = list(samples)
    rate = metric_of([busbw], "B/s") if sized else absent("B/s", "the operation moves no bytes")
    carried = {"mpi": {"library": library, "version": "1", "hosts": [{"name": "h", "ranks": 2}],
                       "clock_uncertainty_ns": 0}} if library else {}
    mesh = make_row("dp2.tp2")["mesh"]
    return {**row, "suite": "coll", "status": "ok", "status_detail": {}, "mode": "mpi" if library else "threads",
            "virtual_time": False, "mesh": mesh, "coll": coll, **carried,
            "params": {"op": operation, "mesh": "dp2.tp2", "size": size or 0},
            "metrics": {"completion_s": metric_of(list(samples), "s"), "algbw_bytes_per_s": rate,
                        "busbw_bytes_per_s": rate}}


def failed_row(status="oom", message="needs 9 GiB, has 8 GiB"):
    """A row of a launch that measured nothing."""
    row = make_row()
    kept = ("schema", "run_id", "campaign_id", "time_utc", "suite", "case", "case_version", "params", "key",
            "build", "fingerprint", "role", "pair", "order", "seed", "ranks", "env", "artifacts", "raw")
    return {**{k: row[k] for k in kept}, "status": status, "status_detail": {"message": message}, "metrics": {}}


def many_rows(count):
    """`count` valid rows of differing meshes, micro-batches, schedules, modes and seeds."""
    meshes = ("pp4", "pp2", "dp2.pp2", "dp4", "tp4", "pp2.tp2", "dp2.pp2.tp2", "pp8")
    rows = []
    for k in range(count):
        rows.append(make_row(mesh=meshes[k % len(meshes)], micro_batches=2 ** (k // 8 % 6),
                             schedule=("1f1b", "gpipe")[k // 48 % 2],
                             mode=("threads", "sim")[k // 96 % 2]))
        rows[-1]["params"]["seed"] = k // 192
    return rows


@pytest.fixture
def row_file(tmp_path):
    """Writes rows to a .jsonl file and returns its path."""
    def write(rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path
    return write


def make_trace(stages=4, micro_batches=8, forward_us=1000, backward_us=2000, ops=2):
    """GPipe in a Chrome trace as meshbench writes it: equal stages, free communication, `ops` each."""
    events = [{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "rank 0, stage 0"}}]

    def slot(stage, name, micro_batch, start, length):
        for op in range(ops):
            events.append({"ph": "X", "name": name, "cat": "compute", "pid": stage, "tid": 1000,
                           "ts": start + length / ops * op, "dur": length / ops,
                           "args": {"pass": name, "micro_batch": micro_batch, "stage": stage}})

    for s in range(stages):
        for m in range(micro_batches):
            slot(s, "forward", m, (s + m) * forward_us, forward_us)
            turn = (micro_batches + stages - 1) * forward_us
            slot(s, "backward", m, turn + (stages - 1 - s + m) * backward_us, backward_us)
    return {"displayTimeUnit": "ns", "baseTimeNanoseconds": 0, "traceEvents": events}
