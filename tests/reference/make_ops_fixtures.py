"""make_ops_fixtures.py [DIR]: write ops_*.txt, what PyTorch in fp64 makes of small operations.

Inputs are not stored: both sides draw them from noise() below, by (seed, index). A file holds cases,
each a line "case NAME size=value ..." and lines "tensor NAME value ...". Made with PyTorch 1.13.1.
"""

import argparse
import pathlib

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def noise(seed, *shape):
    """Uniform in [-1, 1), exact: a 32-bit hash of (seed, index), as tests/support/reference.cc."""
    count = 1
    for size in shape:
        count *= size
    values = []
    for i in range(count):
        z = (i * 2654435761 + seed * 40503 + 12345) % 2**32
        z = ((z ^ (z >> 16)) * 0x45D9F3B) % 2**32
        z = ((z ^ (z >> 16)) * 0x45D9F3B) % 2**32
        z ^= z >> 16
        values.append(z / 2.0**31 - 1)
    return torch.tensor(values).reshape(shape)


def gradients(outputs, douts, inputs):
    return torch.autograd.grad(outputs, inputs, douts)


def leaf(tensor):
    return tensor.clone().requires_grad_()


class Fixture:
    def __init__(self):
        self.lines = []

    def case(self, name, sizes, **tensors):
        pairs = " ".join(f"{key}={value}" for key, value in sizes.items())
        self.lines.append(f"case {name} {pairs}")
        for key, tensor in tensors.items():
            values = " ".join(f"{v:.17g}" for v in tensor.detach().reshape(-1).tolist())
            self.lines.append(f"tensor {key} {values}")

    def write(self, path):
        path.write_text("\n".join(self.lines) + "\n")


def norms():
    out = Fixture()
    for rows, n in [(1, 3), (3, 17), (5, 33)]:
        x, w, b = leaf(2 * noise(1, rows, n) + 0.5), leaf(noise(2, n)), leaf(noise(3, n))
        dy, residual = noise(4, rows, n), noise(5, rows, n)
        y = F.layer_norm(x, (n,), w, b, 1e-5)
        dx, dw, db = gradients(y, dy, (x, w, b))
        out.case("layer", {"rows": rows, "n": n}, y=y, dx=dx + residual, dw=dw, db=db)
        y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w
        dx, dw = gradients(y, dy, (x, w))
        out.case("rms", {"rows": rows, "n": n}, y=y, dx=dx + residual, dw=dw)
    return out


def activations():
    out = Fixture()
    for rows, n in [(1, 1), (3, 17), (2, 40)]:
        u, dy = leaf(6 * noise(1, rows, n)), noise(2, rows, n)
        # PyTorch 1.13 has no fp64 kernel of approximate="tanh" for all shapes: written out.
        y = 0.5 * u * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (u + 0.044715 * u**3)))
        (du,) = gradients(y, dy, (u,))
        out.case("gelu", {"rows": rows, "n": n}, y=y, du=du)
        gate_up = leaf(6 * noise(3, rows, 2 * n))
        y = F.silu(gate_up[:, :n]) * gate_up[:, n:]
        (dgate_up,) = gradients(y, dy, (gate_up,))
        out.case("swiglu", {"rows": rows, "n": n}, y=y, dgate_up=dgate_up)
    return out


def rotated(x, base):
    """x[batch, sequence, heads, head_dim] with pairs (i, i + head_dim / 2), as Llama's weights."""
    sequence, head_dim = x.shape[1], x.shape[3]
    frequency = base ** (-torch.arange(0, head_dim, 2) / head_dim)
    angle = torch.outer(torch.arange(sequence) * 1.0, frequency)[None, :, None, :]
    a, b = x.chunk(2, -1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attentions():
    out = Fixture()
    shapes = [(1, 1, 1, 1, 2), (2, 5, 3, 3, 4), (1, 9, 4, 2, 6), (2, 7, 4, 1, 2), (1, 67, 2, 1, 2)]
    for batch, sequence, heads, kv_heads, head_dim in shapes:
        sizes = dict(batch=batch, sequence=sequence, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
        qkv = leaf(2 * noise(1, batch, sequence, heads + 2 * kv_heads, head_dim))
        dout = noise(2, batch, sequence, heads * head_dim)
        q, k, v = qkv.split([heads, kv_heads, kv_heads], 2)
        group = heads // kv_heads
        k, v = (t.repeat_interleave(group, 2).transpose(1, 2) for t in (k, v))
        scores = q.transpose(1, 2) @ k.transpose(2, 3) / head_dim**0.5
        mask = torch.ones(sequence, sequence).tril() == 0
        scores = scores.masked_fill(mask, -torch.inf)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, sequence, heads * head_dim)
        (dqkv,) = gradients(y, dout, (qkv,))
        out.case("attention", sizes, out=y, lse=scores.logsumexp(-1), dqkv=dqkv)
        if sequence < 20:
            q, k, v = qkv.split([heads, kv_heads, kv_heads], 2)
            turned = torch.cat([rotated(q, 500.0), rotated(k, 500.0), v], 2)
            out.case("rotary", sizes, qkv=turned)
    return out


def losses():
    out = Fixture()
    for rows, vocabulary in [(1, 2), (4, 13), (5, 97)]:
        logits = leaf(5 * noise(1, rows, vocabulary))
        labels = ((noise(2, rows) + 1) / 2 * vocabulary).long()
        if rows > 2:
            labels[1] = -1
        loss = F.cross_entropy(logits, labels, ignore_index=-1, reduction="sum")
        (dlogits,) = gradients(loss, torch.tensor(1.0), (logits,))
        sizes = {"rows": rows, "vocabulary": vocabulary}
        valid = (labels >= 0).sum()
        out.case("cross_entropy", sizes, labels=labels, loss=loss, valid=valid, dlogits=dlogits)
    return out


def embeddings():
    out = Fixture()
    for batch, sequence, n, vocabulary in [(1, 1, 1, 1), (2, 5, 3, 7), (3, 4, 17, 5)]:
        table, positions = leaf(noise(1, vocabulary, n)), leaf(noise(2, sequence, n))
        tokens = ((noise(3, batch, sequence) + 1) / 2 * vocabulary).long()
        dy = noise(4, batch, sequence, n)
        y = F.embedding(tokens, table) + positions
        dtable, dpositions = gradients(y, dy, (table, positions))
        sizes = dict(batch=batch, sequence=sequence, n=n, vocabulary=vocabulary)
        out.case("embedding", sizes, tokens=tokens, y=y, dtable=dtable, dpositions=dpositions)
    return out


def linears():
    out = Fixture()
    for m, n, k in [(1, 1, 1), (3, 5, 7), (13, 17, 9)]:
        x, w, b = leaf(noise(1, m, k)), leaf(noise(2, n, k)), leaf(noise(3, n))
        y = F.linear(x, w, b)
        dx, dw, db = gradients(y, noise(4, m, n), (x, w, b))
        out.case("linear", dict(m=m, n=n, k=k), y=y, dx=dx, dw=dw, db=db)
    return out


def optimizers():
    """Three steps; the undivided gradient of a step is 10 * noise, over 5 valid tokens."""
    out = Fixture()
    for n, clip in [(1, 0), (37, 0), (37, 0.25), (37, 1000)]:
        for name in ("adamw", "sgd"):
            parameter = leaf(noise(1, n))
            if name == "adamw":
                step = torch.optim.AdamW([parameter], lr=0.01, betas=(0.9, 0.95), eps=1e-8,
                                         weight_decay=0.1)
            else:
                step = torch.optim.SGD([parameter], lr=0.01)
            for i in range(3):
                parameter.grad = 10 * noise(2 + i, n) / 5
                if clip:
                    torch.nn.utils.clip_grad_norm_([parameter], clip)
                step.step()
            # In thousandths, as sizes are whole numbers.
            out.case(name, {"n": n, "clip": int(clip * 1000)}, parameter=parameter)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    directory = parser.parse_args().dir
    makers = dict(norm=norms, activation=activations, attention=attentions, loss=losses,
                  embedding=embeddings, linear=linears, optimizer=optimizers)
    for name, make in makers.items():
        make().write(directory / f"ops_{name}.txt")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
