"""make_model_fixtures.py [DIR]: write model_*.txt, what PyTorch in fp64 makes of whole small models.

A file holds settings, lines "key=value" (those of the model are named as on the command line), and
arrays, a line "name count" and a line of values. For each parameter NAME:
  initial/NAME, sgd/NAME, adamw/NAME   three checksums of its values: at first, after one SGD step
                                       without clipping, after three clipped AdamW steps
  gradient/NAME                        its gradient, row-major, 7 digits
  gradient_sums/NAME                   the checksums of its gradient, all digits
Checksums are the sum, the sum of squares and the dot product with normals(seed + 1, NAME). Weights
are not stored: both sides draw them by name from the same counter-based generator. Every step sees
the same batch. Made with PyTorch 1.13.1.
"""

import argparse
import math
import pathlib

import numpy as np
import torch

torch.set_default_dtype(torch.float64)

SEED = 7
BATCH = 3
EXPERT_BATCH = 4  # of models with experts: expert ranks have sequences of their own
PERTURBATION = 0.1  # of norm weights around 1, and of biases around 0
# Epsilon is large so that the gradient of key biases, 0 but for rounding, moves nothing.
OPTIMIZER = {"sgd_learning_rate": 0.5, "learning_rate": 0.01, "beta1": 0.9, "beta2": 0.95,
             "epsilon": 1e-6, "weight_decay": 0.1}
GPT = {"arch": "gpt", "layers": 2, "hidden": 16, "heads": 4, "kv_heads": 4, "head_dim": 4,
       "ffn": 32, "vocabulary": 29, "sequence": 8, "norm": "pre", "tied": "true",
       "norm_epsilon": 1e-5, "rotary_base": 10000.0, "init_std": 0.2}
MODELS = {
    "model_gpt_pre_tied": GPT,
    "model_gpt_post_untied": {**GPT, "norm": "post", "tied": "false"},
    "model_llama_untied": {**GPT, "arch": "llama", "kv_heads": 2, "ffn": 24, "tied": "false"},
}
MOE = {**MODELS["model_llama_untied"], "ffn": 8, "experts": 4, "experts_per_token": 2,
       "balance_coefficient": 0.5}
MODELS["model_moe"] = MOE
MODELS["model_moe_capacity"] = {**MOE, "capacity_factor": 1.0}

# --- the generator of workloads/base/rng.h ---

GAMMA = np.uint64(0x9E3779B97F4A7C15)


def mix64(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def stream_of(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return np.uint64(value)


def bits(seed, name, index):
    with np.errstate(over="ignore"):
        start = mix64(mix64(np.uint64(seed) + GAMMA) ^ stream_of(name))
        return mix64(start + GAMMA * (index.astype(np.uint64) + np.uint64(1)))


def uniforms(seed, name, index):
    return (bits(seed, name, index) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normals(seed, name, count):
    index = np.arange(count)
    u = 1.0 - uniforms(seed, name, 2 * index)
    v = uniforms(seed, name, 2 * index + 1)
    return np.sqrt(-2.0 * np.log(u)) * np.cos(6.283185307179586 * v)


# --- the model ---


def shapes(model):
    """Names and shapes of the parameters, in the order of their use."""
    hidden, heads, kv, dim = (model[k] for k in ("hidden", "heads", "kv_heads", "head_dim"))
    gpt = model["arch"] == "gpt"

    def linear(name, rows, columns):
        biases = {f"{name}.bias": (rows,)} if gpt else {}
        return {f"{name}.weight": (rows, columns), **biases}

    def norm(name):
        biases = {f"{name}.bias": (hidden,)} if gpt else {}
        return {f"{name}.weight": (hidden,), **biases}

    table = {"embedding.weight": (model["vocabulary"], hidden)}
    if gpt:
        table["position.weight"] = (model["sequence"], hidden)
    for i in range(model["layers"]):
        layer = f"layers.{i}"
        table.update(norm(f"{layer}.norm1"))
        table.update(linear(f"{layer}.attention.qkv", (heads + 2 * kv) * dim, hidden))
        table.update(linear(f"{layer}.attention.out", hidden, heads * dim))
        table.update(norm(f"{layer}.norm2"))
        if "experts" in model:
            experts = model["experts"]
            table[f"{layer}.router.weight"] = (experts, hidden)
            table[f"{layer}.experts.gate_up.weight"] = (experts, 2 * model["ffn"], hidden)
            table[f"{layer}.experts.down.weight"] = (experts, hidden, model["ffn"])
            continue
        if gpt:
            table.update(linear(f"{layer}.mlp.up", model["ffn"], hidden))
        else:
            table.update(linear(f"{layer}.mlp.gate_up", 2 * model["ffn"], hidden))
        table.update(linear(f"{layer}.mlp.down", hidden, model["ffn"]))
    if model["norm"] == "pre":
        table.update(norm("final_norm"))
    if model["tied"] == "false":
        table["head.weight"] = (model["vocabulary"], hidden)
    return table


def initial(model, name, shape):
    """Normal weights, narrower where they feed the residual sum; perturbed norms and biases."""
    draw = torch.from_numpy(normals(SEED, name, math.prod(shape))).reshape(shape)
    if len(shape) == 1:
        return (0.0 if name.endswith(".bias") else 1.0) + PERTURBATION * draw
    std = model["init_std"]
    if name.endswith(("attention.out.weight", "mlp.down.weight", "experts.down.weight")):
        std /= math.sqrt(2 * model["layers"])
    return std * draw


def normalise(model, p, name, x):
    epsilon = float(np.float32(model["norm_epsilon"]))
    if model["arch"] == "llama":
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * p[f"{name}.weight"]
    x = x - x.mean(-1, keepdim=True)
    x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon)
    return x * p[f"{name}.weight"] + p[f"{name}.bias"]


def linear(p, name, x):
    y = x @ p[f"{name}.weight"].T
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def rotate(model, x):
    """Turns pairs (i, i + head_dim / 2) of x[batch, head, sequence, head_dim] by its position."""
    half = x.shape[-1] // 2
    frequency = model["rotary_base"] ** (-torch.arange(half) * 2.0 / x.shape[-1])
    angle = torch.arange(x.shape[-2])[:, None] * frequency
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def attention(model, p, name, x):
    heads, kv, dim = model["heads"], model["kv_heads"], model["head_dim"]
    batch, sequence, _ = x.shape
    qkv = linear(p, f"{name}.qkv", x)
    parts = torch.split(qkv, [heads * dim, kv * dim, kv * dim], -1)
    q, k, v = (part.reshape(batch, sequence, -1, dim).transpose(1, 2) for part in parts)
    if model["arch"] == "llama":
        q, k = rotate(model, q), rotate(model, k)
    k, v = (t.repeat_interleave(heads // kv, 1) for t in (k, v))
    later = torch.ones(sequence, sequence, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-1, -2) / math.sqrt(dim)).masked_fill(later, -math.inf)
    out = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, sequence, heads * dim)
    return linear(p, f"{name}.out", out)


def swiglu(gate_up, down, x):
    gate, up = (x @ gate_up.T).chunk(2, -1)
    return (gate * torch.sigmoid(gate) * up) @ down.T


def mlp(model, p, name, x):
    if model["arch"] == "llama":
        return swiglu(p[f"{name}.gate_up.weight"], p[f"{name}.down.weight"], x)
    u = linear(p, f"{name}.up", x)
    inner = math.sqrt(2.0 / math.pi) * (u + 0.044715 * u**3)
    return linear(p, f"{name}.down", 0.5 * u * (1 + torch.tanh(inner)))


def taken(model, choice):
    """Which of choice[batch, sequence, top] find room in an expert's capacity for their sequence."""
    if "capacity_factor" not in model:
        return torch.ones_like(choice, dtype=torch.bool)
    even = model["experts_per_token"] * model["sequence"] / model["experts"]
    ones = torch.nn.functional.one_hot(choice.flatten(1), model["experts"])
    place = (ones.cumsum(1) * ones).sum(-1).reshape(choice.shape)  # from 1
    return place <= math.ceil(model["capacity_factor"] * even)


def mixture(model, p, layer, x):
    """Switch Transformer's experts, dense: each on all rows. Returns y and the balance loss."""
    count, top, sequence = model["experts"], model["experts_per_token"], model["sequence"]
    probability = (x @ p[f"{layer}.router.weight"].T).softmax(-1)
    gate, choice = probability.topk(top, -1)
    gate = gate / gate.sum(-1, keepdim=True) * taken(model, choice)
    y = torch.zeros_like(x)
    for e in range(count):
        weight = (gate * (choice == e)).sum(-1, keepdim=True)
        gate_up, down = (p[f"{layer}.experts.{n}.weight"][e] for n in ("gate_up", "down"))
        y = y + weight * swiglu(gate_up, down, x)
    share = torch.nn.functional.one_hot(choice, count).sum((1, 2)) / sequence
    balance = sequence * count / top * (share * probability.mean(1)).sum()
    return y, model["balance_coefficient"] * balance


def logits_of(model, p, tokens):
    """Logits, and the sum of the balance losses of all layers and sequences."""
    x, balance = p["embedding.weight"][tokens], torch.zeros(())
    if model["arch"] == "gpt":
        x = x + p["position.weight"]
    for i in range(model["layers"]):
        for norm, block, name in [("norm1", attention, "attention"), ("norm2", mlp, "mlp")]:
            norm, name = f"layers.{i}.{norm}", f"layers.{i}.{name}"
            if block is mlp and "experts" in model:
                y, loss = mixture(model, p, f"layers.{i}", normalise(model, p, norm, x))
                x, balance = x + y, balance + loss
            elif model["norm"] == "pre":
                x = x + block(model, p, name, normalise(model, p, norm, x))
            else:
                x = normalise(model, p, norm, x + block(model, p, name, x))
    if model["norm"] == "pre":
        x = normalise(model, p, "final_norm", x)
    return x @ p["embedding.weight" if model["tied"] == "true" else "head.weight"].T, balance


def loss_of(model, p, tokens, labels):
    """Loss and balance loss, summed and divided by the number of labels that are not -1; logits."""
    logits, balance = logits_of(model, p, tokens)
    valid = labels >= 0
    chosen = logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return -(chosen * valid).sum() / valid.sum(), balance / valid.sum(), logits


# --- training ---


def parameters(model):
    return {name: initial(model, name, shape).requires_grad_()
            for name, shape in shapes(model).items()}


def backward(model, p, batch):
    """Loss, balance loss, logits and gradient norm; leaves the gradients of both losses in p."""
    for tensor in p.values():
        tensor.grad = None
    loss, balance, logits = loss_of(model, p, *batch)
    (loss + balance).backward()
    norm = math.sqrt(sum((tensor.grad**2).sum().item() for tensor in p.values()))
    return loss.item(), balance.item(), logits.detach(), norm


def after_sgd(model, batch):
    p = parameters(model)
    backward(model, p, batch)
    torch.optim.SGD(p.values(), lr=OPTIMIZER["sgd_learning_rate"]).step()
    return p


def after_adamw(model, batch, clip, steps=3):
    """Parameters, and loss and norm of each step; matrices decay, vectors do not."""
    p = parameters(model)
    groups = [{"params": [t for t in p.values() if t.dim() > 1],
               "weight_decay": OPTIMIZER["weight_decay"]},
              {"params": [t for t in p.values() if t.dim() == 1], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=OPTIMIZER["learning_rate"], eps=OPTIMIZER["epsilon"],
                              betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]))
    losses, norms = [], []
    for _ in range(steps):
        loss, _, _, norm = backward(model, p, batch)
        assert norm > clip, "clipping is to be active"
        for tensor in p.values():
            tensor.grad *= clip / (norm + 1e-6)
        adamw.step()
        losses.append(loss)
        norms.append(norm)
    return p, losses, norms


# --- the files ---


def batch_of(model):
    return EXPERT_BATCH if "experts" in model else BATCH


def draw_batch(model):
    """Tokens and labels [batch, sequence]; every seventh label is -1."""
    index = np.arange(batch_of(model) * model["sequence"])
    tokens = bits(SEED, "tokens", index) % np.uint64(model["vocabulary"])
    labels = (bits(SEED, "labels", index) % np.uint64(model["vocabulary"])).astype(np.int64)
    labels[index % 7 == 3] = -1
    shape = (batch_of(model), model["sequence"])
    return (torch.from_numpy(tokens.astype(np.int64)).reshape(shape),
            torch.from_numpy(labels).reshape(shape))


def checksums(name, tensor):
    values = tensor.detach().numpy().reshape(-1)
    return [values.sum(), (values**2).sum(), values @ normals(SEED + 1, name, values.size)]


def array(name, values, digits=17):
    text = " ".join(f"{value:.{digits}g}" for value in np.asarray(values).reshape(-1))
    return [f"{name} {np.asarray(values).size}", text]


def fixture(model):
    p, batch = parameters(model), draw_batch(model)
    first = {name: checksums(name, tensor) for name, tensor in p.items()}
    embedding = p["embedding.weight"].detach().numpy().reshape(-1)[:8].copy()
    loss, balance, logits, norm = backward(model, p, batch)
    clip = round(norm / 4, 2)
    sgd = after_sgd(model, batch)
    adamw, losses, norms = after_adamw(model, batch, clip)

    settings = {**{f"model.{key}": value for key, value in model.items()}, "seed": SEED,
                "batch": batch_of(model), "perturbation": PERTURBATION, **OPTIMIZER, "clip": clip}
    lines = [f"{key}={value}" for key, value in settings.items()]
    lines += array("tokens", batch[0]) + array("labels", batch[1])
    lines += array("embedding_head", embedding)
    lines += array("loss", [loss]) + array("gradient_norm", [norm])
    lines += array("balance_loss", [balance])
    lines += array("logits", logits, 8) + array("logits_sums", checksums("logits", logits))
    lines += array("adamw_losses", losses) + array("adamw_norms", norms)
    for name, tensor in p.items():
        lines += array(f"initial/{name}", first[name])
        lines += array(f"gradient/{name}", tensor.grad, 7)
        lines += array(f"gradient_sums/{name}", checksums(name, tensor.grad))
        lines += array(f"sgd/{name}", checksums(name, sgd[name]))
        lines += array(f"adamw/{name}", checksums(name, adamw[name]))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    folder = parser.parse_args().dir
    for name, model in MODELS.items():
        (folder / f"{name}.txt").write_text(fixture(model))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
