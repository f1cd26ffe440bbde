"""Rows of published measurements as cases of mode=sim."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from mb.errors import UserError

MACHINES = [  # first words of a `gpu` column
    ("A100-40GB", "a100-40x8"), ("A100", "a100x8"), ("H100-96GB", "h100-96x8"), ("H100", "h100x8"), ("H200", "h200x8"),
    ("GB300", "gb300x72"), ("GB200", "gb200x72"), ("B300", "b300x8"), ("B200", "b200x8"), ("V100", "v100x8"),
]
# NVFP4 multiplies at twice the rate of fp8 on GB200, at three times on GB300 (NVIDIA's datasheets, dense).
FP4_TFLOPS = {"gb200x72": 10000, "gb300x72": 15000, "b200x8": 9000, "b300x8": 13500}


@dataclass
class Published:
    """A measured step; `words` is None where `skipped` says why it cannot be a case."""
    id: str
    source: str
    group: str  # rows of a group differ in the mesh alone: where a predicted best makes sense
    stack: str
    measured_s: float | None
    words: str | None = None
    skipped: str = ""
    memory_gib: float | None = None
    memory_kind: str = ""


def _rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def _case(model, mesh, options):
    words = [f"model.{key}={value}" for key, value in model.items() if value not in (None, "")]
    words += ["mesh=" + (".".join(f"{axis}{n}" for axis, n in mesh.items() if n > 1) or "1")]
    return " ".join(["model=" + ("llama2-7b" if model.get("arch") == "llama" else "gpt2")] +
                    [w for w in words if not w.startswith("model.arch")] +
                    [f"{key}={value}" for key, value in options.items() if value is not None])


def _model(layers, hidden, heads, seq, vocab, ffn=None, kv_heads=None, arch="gpt", multiple=128):
    return {"arch": arch, "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads or heads,
            "ffn": ffn or 4 * hidden, "vocabulary": vocab, "vocabulary_multiple": multiple, "sequence": seq,
            "tied": None if arch == "gpt" else "false"}


MEGATRON = {"dropout": 0.1, "overlap": "none", "reduce_dtype": "dtype", "bucket": "100GiB"}


def single_node(path):
    """vTrain's steps on one node of A100."""
    for r in _rows(path):
        n = {key: int(r[key]) for key in ("gbs", "mbs", "hidden", "heads", "layers", "seq", "tp", "dp", "pp")}
        model = _model(n["layers"], n["hidden"], n["heads"], n["seq"], 50257)
        mesh = {"dp": n["dp"], "pp": n["pp"], "tp": n["tp"]}
        words = _case(model, mesh, {"machine": "a100x8", "dtype": "fp16", "recompute": "full", "micro_batch": n["mbs"],
                                    "global_batch": n["gbs"], **MEGATRON})
        group = "-".join(r[key] for key in ("n_gpus", "gbs", "hidden", "layers"))
        yield Published(r["id"], "vTrain single node", group, "megatron-vtrain", float(r["iter_time_ms"]) / 1e3, words)


# SimuMax's llama3-405b.json has 16 groups of keys and values, as the first weights of the model had.
LLAMA3 = {"70b": _model(80, 8192, 64, 4096, 128256, 28672, 8, "llama"),
          "405b": _model(126, 16384, 128, 4096, 128256, 53248, 16, "llama")}


def b200(path):
    """Llama 3 with few layers on a node of B200: the names say all."""
    for r in _rows(path):
        name = r["case"]
        p = Published(name, "B200", "-".join(name.split("_")[:2]), "megatron-b200", float(r["measured_step_ms"]) / 1e3,
                      memory_gib=float(r["measured_allocated_GiB"]), memory_kind="allocated")
        known = re.match(r"llama3_(70b|405b)_", name)
        if not known:
            p.skipped = "multi-head latent attention is not modelled"
            yield p
            continue
        n = {key: int(value) for key, value in re.findall(r"_(l|tp|cp|pp|dp|ep|mbc|seq)(\d+)", name)}
        model = {**LLAMA3[known[1]], "layers": n["l"], "sequence": n.get("seq", 4096)}
        mesh = {axis: n.get(axis, 1) for axis in ("dp", "pp", "cp", "tp")}
        p.words = _case(model, mesh, {
            "machine": "b200x8", "dtype": "bf16", "micro_batch": 1, "global_batch": n["mbc"] * mesh["dp"], "zero": 1,
            "sequence_parallel": "on" if mesh["tp"] > 1 else None, "overlap": "none"})
        yield p


def _machine(gpu):
    for start, name in MACHINES:
        if gpu.startswith(start):
            return name
    return None


SOURCES = [  # (part of the `source` column, name here, stack)
    ("Narayanan", "SC21", "megatron-2021"), ("Korthikanti", "Korthikanti", "megatron-2022"),
    ("BLOOM", "BLOOM", "megatron-deepspeed"), ("vTrain", "vTrain multi-node", "megatron-vtrain-nodes"),
    ("MPT", "MPT", "llm-foundry"), ("torchtitan", "torchtitan", "torchtitan"),
    ("Megatron-Bridge", "Megatron-Bridge dense", "megatron-bridge"),
    ("NeMo-Framework-Launcher", "NeMo 2024", "nemo-2024"),
]
# Of a source that is not among these, the stack that is next of kin to the program that ran it.
KIN = [  # (part of the `framework` column, stack on Hopper and later, before)
    ("Megatron-Bridge", "megatron-bridge", "megatron-bridge"), ("NeMo", "nemo-2024", "nemo-2024"),
    ("DeepSpeed", "megatron-deepspeed", "megatron-deepspeed"), ("Megatron", "nemo-2024", "megatron-2022"),
    ("torchtitan", "torchtitan", "torchtitan"), ("FSDP", "llm-foundry", "llm-foundry"),
]
WANTED = ("layers", "hidden", "heads", "seq", "tp", "pp", "dp", "mbs", "gbs")


def _why_not(r):
    if r["moe"] == "1":
        return "mixture of experts: dimensions not published"
    if r["confidence"] == "recalled":
        return "recalled, not verified"
    missing = [key for key in WANTED if not r[key]]
    if missing:
        return "not published: " + ", ".join(missing)
    if "DeepSpeed ZeRO-3" in r["framework"]:
        return "DeepSpeed's parameter partitioning of 2021 is not modelled"
    if "torchtitan" in r["source"] and int(r["pp"]) > 1:
        return "micro-batch of the pipeline not published"
    if int(r["hidden"]) // int(r["heads"]) % 8:
        return "head size is no multiple of 8: kernels without tensor cores are not modelled"
    if _machine(r["gpu"]) is None:
        return "no machine for " + r["gpu"]
    return ""


def _megatron_bridge(r, machine, options):
    pp, vpp, layers = int(r["pp"]), int(r["vpp"] or 1), int(r["layers"])
    stages = pp * vpp
    if stages > 1 and layers % stages and (layers + 2) % stages == 0:
        each = (layers + 2) // stages
        options["layout"] = ",".join(str(each - (k in (0, stages - 1))) for k in range(stages))
    fp4 = "FP4" in r["precision"].upper()
    if fp4:
        options["machine.fp8_tflops"] = FP4_TFLOPS.get(machine)
    return "megatron-bridge-fp4" if fp4 else None


def _step(r, name, stack):
    measured = r["iter_time_s"] or r["iter_time_derived_s"]
    if not measured and r["tokens_per_s_per_gpu"] and r["gbs"] and r["seq"]:
        measured = int(r["gbs"]) * int(r["seq"]) / (float(r["tokens_per_s_per_gpu"]) * int(r["n_gpus"]))
    p = Published(r["id"], name, "-".join((r["model"], r["gpu"], r["n_gpus"], r["gbs"], r["seq"], r["precision"])), stack,
                  float(measured) if measured else None, skipped=_why_not(r))
    if r["mem_gb"]:
        p.memory_kind = r["mem_kind"]
        p.memory_gib = float(r["mem_gb"]) * (1 if "GiB" in p.memory_kind else 1e9 / 2**30)
    if not measured:
        p.skipped = p.skipped or "no time published"
    if p.skipped:
        return p
    machine = _machine(r["gpu"])
    n = {key: int(r[key] or 1) for key in ("tp", "pp", "dp", "cp", "ep", "mbs", "gbs", "n_gpus")}
    arch = "llama" if r["arch"].startswith("llama") else "gpt"
    model = _model(r["layers"], r["hidden"], r["heads"], r["seq"], r["vocab"] or 51200, r["ffn"], r["kv_heads"], arch)
    options = {"machine": machine, "dtype": "bf16" if "16" not in r["precision"] or "bf16" in r["precision"] else "fp16",
               "micro_batch": n["mbs"], "global_batch": n["gbs"], "zero": int(r["zero_stage"]) if r["zero_stage"].isdigit() else 0,
               "sequence_parallel": "on" if r["seq_parallel"] == "1" and n["tp"] > 1 else None}
    recompute = r["recompute"]
    options["recompute"] = ("full" if recompute.startswith("full") else "attention" if recompute.startswith("selective")
                            else None)
    if recompute.startswith("full,"):
        options["recompute_layers"] = "0-%d" % (int(re.search(r"\d+", recompute)[0]) - 1)
    vpp = int(r["vpp"]) if r["vpp"].isdigit() else 1
    if n["pp"] > 1 and vpp > 1:
        options.update(schedule="interleaved", chunks=vpp)
    if r["gpu"].startswith("G"):  # the part of an NVL72 domain that a mesh of powers of two takes
        options["machine.ranks_per_node"] = 64
    elif r["nic_gbps_per_gpu"]:
        nics = int(r["nic_gbps_per_gpu"]) / 8
        options["machine.nic_gb_per_s"] = nics
    if stack.startswith("megatron-") and "bridge" not in stack:
        options.update(MEGATRON)
        if options["dtype"] == "bf16":
            options["reduce_dtype"] = "main"
    if stack == "megatron-deepspeed" and "embedding counted as a layer" in r["notes"]:
        layers, pp = int(r["layers"]), n["pp"]
        if (layers + 2) % pp == 0:
            each = (layers + 2) // pp
            options["layout"] = ",".join(str(each - (k in (0, pp - 1))) for k in range(pp))
    if "bridge" in stack:
        p.stack = _megatron_bridge(r, machine, options) or stack
    if stack in ("megatron-bridge", "nemo-2024") and not re.search("FP[48]", r["precision"].upper()):
        options["stack.fp8_matmul"] = "false"
    if stack == "llm-foundry":
        p.stack = "llm-foundry-" + ("fp8" if "fp8" in r["precision"] else "h100" if "h100" in machine else "a100")
    if stack == "torchtitan":
        p.stack = "torchtitan-fp8" if "fp8" in r["precision"] else "torchtitan"
        if "rowwise" in r["precision"]:
            p.stack = "torchtitan-rowwise"
        if "202506" in r["verified_in"]:  # the loss is compiled by then
            options["stack.loss_copies"] = 0
        if recompute.startswith("selective"):
            # Per operation: results of attention and of every second product are kept. Nearest: half of the layers.
            options.update(recompute="full", recompute_layers="0-%d" % (int(r["layers"]) // 2 - 1))
        if "async" in r["schedule"] or "asyncTP" in r["id"]:
            options["tensor_chunks"] = 4
    p.words = _case(model, {axis: n[axis] for axis in ("dp", "pp", "cp", "tp")}, options)
    return p


def _source(r):
    """The name of a row's source here, and its stack: None where nothing is kin to what ran it."""
    for part, name, stack in SOURCES:
        if part in r["source"]:
            return name, stack
    old = (_machine(r["gpu"]) or "").startswith(("a100", "v100"))
    return r["source"], next((before if old else stack for part, stack, before in KIN if part in r["framework"]), None)


def steps(path):
    for r in _rows(path):
        name, stack = _source(r)
        if stack:
            yield _step(r, name, stack)
        else:
            yield Published(r["id"], name, "", "", None,
                            skipped=_why_not(r) or f"no stack is kin to {r['framework']}")


def load(folder):
    """All published steps of a folder, of which any file may be missing."""
    folder = Path(folder)
    readers = {"measured_steps.csv": steps, "vtrain_single_node.csv": single_node, "b200_steps.csv": b200}
    found = [list(read(folder / name)) for name, read in readers.items() if (folder / name).is_file()]
    if not found:
        raise UserError(f"--published {folder}: holds none of {', '.join(readers)}")
    return [p for rows in found for p in rows]
