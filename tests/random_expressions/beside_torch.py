#!/usr/bin/python3
"""Random programs of ops beside PyTorch in fp64: results, first and second derivatives may be off
by a few times what PyTorch in fp32 is off.

usage: beside_torch.py PROGRAM [--count N] [--seed S] [--first I] [--only I] [--plants]

PROGRAM is `random_expressions`. Exit code 0: nothing found. With --plants the reference makes one
mistake after the other, and the exit code is 0 where each was found.
"""

import argparse
import collections
import json
import pathlib
import sys

import numpy
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "random_networks"))
from frames import Frames, distance  # noqa: E402

FACTOR = 4  # times PyTorch fp32's error
FLOOR = 16 * 2.0 ** -24  # relative, by norm
AMPLIFIED, FACTOR_OF_AMPLIFIED = 1e-5, 40
FACTOR_OF_CHAOS = 1000
RERUNS = (6, 24)
PLANTS = ("sin", "multiply", "where", "max", "prod", "std", "log_softmax", "flip", "pad_reflect",
          "matmul", "gelu", "cumsum", "take_by_argmax", "broadcast_to", "slice", "tan", "log2", "tril",
          "add_linspace", "triplet_margin", "nll", "softmax_cross_entropy", "attention", "rotary", "rms_norm")
SLOPES = ("sin", "multiply", "max", "prod", "softmax", "permute_dims", "gather_by_argmin",
          "attention")


NOTHING = {"axes": [], "keep_dims": False, "numbers": [], "sizes": []}


def floats(condition, like):
    return condition.to(like.dtype)


def padded(s, x):
    """Axis by axis, by the positions of elements."""
    for axis in range(len(s["sizes"]) // 2):
        before, after = s["sizes"][2 * axis:2 * axis + 2]
        size = x.shape[axis]
        at = torch.arange(-before, size + after)
        if s["op"] == "pad_constant":
            shape = list(x.shape)
            full = lambda n: torch.full(shape[:axis] + [n] + shape[axis + 1:], s["numbers"][0],
                                        dtype=x.dtype)
            x = torch.cat([full(before), x, full(after)], axis)
            continue
        if s["op"] == "pad_edge":
            at = at.clamp(0, size - 1)
        else:
            at = at.abs()
            at = torch.where(at > size - 1, 2 * (size - 1) - at, at)
        x = x.index_select(axis, at)
    return x


def sliced(s, x):
    for axis in range(len(s["sizes"]) // 3):
        start, stop, step = s["sizes"][3 * axis:3 * axis + 3]
        x = x.index_select(axis, torch.arange(start, stop, step))
    return x


def valid_steps(x):
    """n x t: lengths are t, t - 1 and so on."""
    n, t = x.shape[:2]
    return torch.arange(t) < (t - torch.arange(n)).unsqueeze(1)


def attention(s, q, k, v):
    n, t, c = q.shape
    heads, causal = s["sizes"]
    by_head = lambda x: x.reshape(n, t, heads, c // heads).transpose(1, 2)
    valid = valid_steps(q)
    seen = (valid[:, None, :, None] & valid[:, None, None, :]).expand(n, heads, t, t)
    if causal:
        seen = seen & torch.ones(t, t, dtype=torch.bool).tril()
    scores = by_head(q) @ by_head(k).transpose(2, 3) / (c // heads) ** 0.5
    weights = torch.where(seen, torch.exp(scores), torch.zeros_like(scores))
    total = weights.sum(3, keepdim=True)
    y = weights / torch.where(total == 0, torch.ones_like(total), total) @ by_head(v)
    return y.transpose(1, 2).reshape(n, t, c)


def rotary(s, x):
    heads, first, interleaved = s["sizes"]
    n, t, c = x.shape
    pairs = c // heads // 2
    angles = (first + torch.arange(t, dtype=x.dtype))[:, None] * 10000 ** (
        -torch.arange(pairs, dtype=x.dtype) / pairs)
    cos, sin = torch.cos(angles)[:, None], torch.sin(angles)[:, None]
    parts = x.reshape(n, t, heads, pairs, 2) if interleaved else x.reshape(
        n, t, heads, 2, pairs).transpose(3, 4)
    a, b = parts[..., 0], parts[..., 1]
    y = torch.stack([a * cos - b * sin, b * cos + a * sin], 4)
    return (y if interleaved else y.transpose(3, 4)).reshape(n, t, c)


def rms_norm(s, x):
    scale = torch.linspace(0.5, 2, x.shape[2], dtype=x.dtype) if x.shape[2] > 1 else 0.5
    return x / torch.sqrt((x * x).mean(2, keepdim=True) + 0.1) * scale


def mean_over_steps(s, x):
    valid = valid_steps(x).to(x.dtype)
    return (x * valid[..., None]).sum(1) / valid.sum(1).clamp(min=1)[:, None]


def last_step(s, x):
    n, t = x.shape[:2]
    last = (t - 1 - torch.arange(n)).clamp(min=0)
    return x[torch.arange(n), last] * valid_steps(x)[:, :1].to(x.dtype)


def taken(x, indices, axis):
    axis %= x.dim()
    flat = x.index_select(axis, indices.reshape(-1))
    return flat.reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1:])


def distance_of(a, b):
    """Over observations."""
    apart = (a - b + numpy.float32(1e-6).item()).reshape(a.shape[0], -1)
    return torch.linalg.vector_norm(apart, dim=1)


def product(s, x, keep):
    for axis in sorted((a % x.dim() for a in s["axes"]), reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x


def reduced(name):
    """A reduction over axes; PyTorch takes an empty list for all of them."""
    def of(s, x):
        axes, keep = s["axes"], s["keep_dims"]
        if name == "prod":
            return product(s, x, keep)
        if not axes:  # every element alone
            x, axes, keep = x.unsqueeze(-1), [-1], False
        if name in ("var", "std"):
            return getattr(torch, name)(x, axes, unbiased=s["numbers"][0] == 1, keepdim=keep)
        if name == "norm":
            return torch.linalg.vector_norm(x, dim=axes, keepdim=keep)
        return getattr(torch, {"max": "amax", "min": "amin"}.get(name, name))(x, axes, keepdim=keep)
    return of


def with_number(name, f):
    def of(s, a, b=None):
        return f(a, b if b is not None else torch.tensor(numpy.float32(s["numbers"][0]).item(),
                                                         dtype=a.dtype))
    return of


OPS = {
    "where": lambda s, c, a, b: torch.where(c != 0, a, b),
    "clip": lambda s, x: x.clamp(*(numpy.float32(n).item() for n in s["numbers"])),
    "leaky_relu": lambda s, x: torch.nn.functional.leaky_relu(x, s["numbers"][0]),
    "elu": lambda s, x: torch.where(x > 0, x, s["numbers"][0] * torch.expm1(x)),
    "gelu": lambda s, x: x * (1 + torch.erf(x / 2 ** 0.5)) / 2,
    "swish": lambda s, x: x * torch.sigmoid(x),
    "softplus": lambda s, x: torch.nn.functional.softplus(x, threshold=1e9),
    "negate": lambda s, x: -x,
    "softmax": lambda s, x: torch.softmax(x, s["axes"][0]),
    "log_softmax": lambda s, x: torch.log_softmax(x, s["axes"][0]),
    "broadcast_to": lambda s, x: x.broadcast_to(s["sizes"]),
    "permute_dims": lambda s, x: x.permute(s["axes"]),
    "slice": sliced,
    "expand_dims": lambda s, x: x.unsqueeze(s["axes"][0]),
    "squeeze": lambda s, x: x.reshape([d for a, d in enumerate(x.shape) if a not in
                                       [axis % x.dim() for axis in s["axes"]]]),
    "flip": lambda s, x: torch.flip(x, s["axes"]),
    "roll": lambda s, x: torch.roll(x, s["sizes"][0], s["axes"][0]),
    "tile": lambda s, x: torch.tile(x, s["sizes"]),
    "diagonal": lambda s, x: torch.diagonal(x, dim1=-2, dim2=-1),
    "split": lambda s, x: torch.chunk(x, s["sizes"][0], s["axes"][0])[s["sizes"][1]],
    "stack": lambda s, *x: torch.stack(x, s["axes"][0]),
    "concat": lambda s, *x: torch.cat(x, s["axes"][0]),
    "tril": lambda s, x: torch.tril(x, s["sizes"][0]),
    "triu": lambda s, x: torch.triu(x, s["sizes"][0]),
    "multiply_arange": lambda s, x: x * (s["numbers"][0] + s["numbers"][1] * torch.arange(
        x.shape[-1], dtype=x.dtype)),
    "add_linspace": lambda s, x: x + torch.linspace(*s["numbers"], x.shape[-1], dtype=x.dtype),
    "triplet_margin": lambda s, a, p, n: torch.nn.functional.relu(
        distance_of(a, p) - distance_of(a, n) + numpy.float32(s["numbers"][0]).item()),
    "nll": lambda s, x, y: torch.nn.functional.nll_loss(
        x.contiguous(), torch.argmax(y, 1), ignore_index=int(s["numbers"][0]), reduction="none"),
    "softmax_cross_entropy": lambda s, x, y: torch.nn.functional.cross_entropy(
        x.contiguous(), torch.argmax(y, 1), torch.linspace(0.5, 2, x.shape[1], dtype=x.dtype),
        ignore_index=int(s["numbers"][0]), reduction="none", label_smoothing=s["numbers"][1]),
    "cumsum": lambda s, x: torch.cumsum(x, s["axes"][0]),
    "take_by_argmax": lambda s, x, y: taken(x, torch.argmax(y, s["axes"][1]), s["axes"][0]),
    "gather_by_argmin": lambda s, x, y: torch.gather(
        x, s["axes"][0], torch.argmin(y, s["axes"][0], keepdim=True)),
    "attention": attention,
    "rotary": rotary,
    "rms_norm": rms_norm,
    "last_step": last_step,
    "mean_over_steps": mean_over_steps,
    "matmul": lambda s, a, b: torch.matmul(a, b),
    "matrix_transpose": lambda s, x: x.transpose(-1, -2),
    "less": lambda s, a, b: floats(a < b, a),
    "less_equal": lambda s, a, b: floats(a <= b, a),
    "equal": lambda s, a, b: floats(a == b, a),
    "greater": lambda s, a, b: floats(a > b, a),
    "not_equal": lambda s, a, b: floats(a != b, a),
    "logical_and": lambda s, a, b: floats((a != 0) & (b != 0), a),
    "logical_or": lambda s, a, b: floats((a != 0) | (b != 0), a),
}
for name in ("abs", "sign", "reciprocal", "square", "sqrt", "rsqrt", "exp", "expm1", "log", "log2",
             "log1p", "sin", "cos", "tan", "tanh", "erf", "erfc", "sigmoid", "floor", "ceil", "round", "relu"):
    OPS[name] = lambda s, x, f=getattr(torch, name): f(x)
for name in ("add", "subtract", "multiply", "divide", "pow", "maximum", "minimum"):
    OPS[name] = with_number(name, getattr(torch, name))
for name in ("sum", "mean", "prod", "max", "min", "var", "std", "norm", "logsumexp"):
    OPS[name] = reduced(name)
for name in ("pad_constant", "pad_reflect", "pad_edge"):
    OPS[name] = padded


class Reference:
    """Computes programs in PyTorch. It computes the op `plant` wrongly, or the derivatives of the op
    `slope` alone."""

    def __init__(self, plant=None, slope=None):
        self.plant, self.slope = plant, slope

    def __call__(self, head, arrays, dtype, noise=None):
        def moved(x):
            if noise is None:
                return x
            change = numpy.asarray(noise.uniform(-1, 1, tuple(x.shape)) * 2.0 ** -24)
            return x * (1 + torch.from_numpy(change).to(dtype))
        inputs, directions = [], []
        while f"input {len(inputs)}" in arrays:
            given = torch.from_numpy(arrays[f"input {len(inputs)}"].copy()).to(dtype)
            inputs.append(moved(given).requires_grad_())
            directions.append(torch.from_numpy(
                arrays[f"direction {len(directions)}"].copy()).to(dtype))
        values = list(inputs)
        for s in head["statements"]:
            result = OPS[s["op"]](s, *(values[v] for v in s["in"]))
            if s["op"] == self.plant:
                result = result * 1.001
            if s["op"] == self.slope and result.requires_grad:
                result.register_hook(lambda gradient: gradient * 1.001)
            values.append(moved(result))
        y = values[-1]
        scalar = y + torch.square(y) * numpy.float32(0.3).item()
        zeros = lambda grads: [torch.zeros_like(x) if g is None else g
                               for g, x in zip(grads, inputs)]
        first = zeros(torch.autograd.grad(scalar, inputs, create_graph=True, allow_unused=True)
                      if scalar.requires_grad else [None] * len(inputs))
        along = sum((g * d).sum() for g, d in zip(first, directions))
        second = zeros(torch.autograd.grad(along, inputs, allow_unused=True)
                       if along.requires_grad else [None] * len(inputs))
        found = {"result": y}
        for i, (g, h) in enumerate(zip(first, second)):
            found[f"first {i}"], found[f"second {i}"] = g, h
        return {name: value.detach().numpy().astype(float) for name, value in found.items()}


def cases(options):
    """The heads and arrays of the cases that the options select."""
    program = Frames([options.program, "--seed", str(options.seed), "--first", str(options.first),
                      "--count", str(options.count)])
    try:
        for head, arrays in program:
            head["statements"] = [dict(NOTHING, **s) for s in head["statements"]]
            yield head, arrays
    finally:  # also for a caller that stops early
        code = program.end()
    if code != 0:
        raise SystemExit(f"{options.program} ended with exit code {code}")


def problems(head, arrays, reference, counts):
    if "error" in head:
        return [head["error"]]
    with numpy.errstate(all="ignore"):
        wanted = reference(head, arrays, torch.float64)
        if not all(numpy.isfinite(v).all() for v in wanted.values()):
            counts["without derivatives in PyTorch"] += 1
            return []
        noise = numpy.random.RandomState(head["case"] % 2 ** 32)
        first = reference(head, arrays, torch.float32)
        if not all(numpy.isfinite(v).all() for v in first.values()):
            counts["beyond PyTorch in fp32"] += 1
            return []
        allowed = {name: distance(first[name], wanted[name]) for name in wanted}
        found = compare(arrays, wanted, allowed)
        for times in RERUNS:
            for _ in range(times if found else 0):
                other = reference(head, arrays, torch.float32, noise)
                for name in allowed:
                    error = distance(other[name], wanted[name])
                    if error == error:
                        allowed[name] = max(allowed[name], error)
            found = compare(arrays, wanted, allowed)
    return found


def compare(arrays, wanted, allowed):
    found = []
    largest = collections.defaultdict(float)  # of results, first and second derivatives
    for name, value in wanted.items():
        kind = name.split()[0]
        largest[kind] = max(largest[kind], float(numpy.linalg.norm(value)))
    for name, value in wanted.items():
        error, size = distance(arrays[name].astype(float), value), float(numpy.linalg.norm(value))
        factor = FACTOR
        if allowed[name] > AMPLIFIED * size:
            factor = FACTOR_OF_CHAOS if allowed[name] > size else FACTOR_OF_AMPLIFIED
        # Where terms cancel exactly in PyTorch, ours may leave the rounding of their sum.
        kind = name.split()[0]
        floor = FLOOR * max(size, largest[kind] / 100,
                            largest["first"] / 10 if kind == "second" else 0)
        # Of one element, softmax's are 0 in PyTorch.
        floor += 1e-6 if size == 0 else 1e-12
        if not error <= factor * allowed[name] + floor:
            found.append(f"{name} is off by {error / max(size, 1e-300):.2g}, PyTorch fp32 by "
                         f"{allowed[name] / max(size, 1e-300):.2g} (norm {size:.3g})")
    return found


def find_plants(options):
    counts = collections.Counter()
    missing = {("a wrong " + name, name): Reference(plant=name) for name in PLANTS}
    missing.update({("a wrong slope of " + name, name): Reference(slope=name) for name in SLOPES})
    for head, arrays in cases(options):
        used = {s["op"] for s in head["statements"]}
        tried = [key for key in missing if key[1] in used]
        if not tried or problems(head, arrays, Reference(), counts):
            continue
        for key in tried:
            if problems(head, arrays, missing[key], counts):
                del missing[key]
                print(f"case {head['case']}: {key[0]} is found", flush=True)
        if not missing:
            break
    for text, _ in sorted(missing):
        print(f"{text} is not found in {options.count} programs")
    return 1 if missing else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--plants", action="store_true")
    options = parser.parse_args()
    if options.only is not None:
        options.first, options.count = options.only, 1
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as in Lockstep, subnormal numbers are zero
    if options.plants:
        return find_plants(options)
    counts, used, finds = collections.Counter(), collections.Counter(), 0
    for head, arrays in cases(options):
        used.update(s["op"] for s in head["statements"])
        found = problems(head, arrays, Reference(), counts)
        if not found:
            continue
        finds += 1
        print(f"case {head['case']} of seed {head['seed']}:")
        for text in found[:4]:
            print("   ", text)
        for s in head["statements"]:
            print("       ", json.dumps({key: value for key, value in s.items() if value}))
        sys.stdout.flush()
    unused = sorted(set(OPS) - set(used))
    if unused and options.count >= 500:
        print("never used: " + ", ".join(unused))
        finds += 1
    if sum(counts.values()) > options.count / 10:
        print("too many programs are left out")
        finds += 1
    rest = "".join(f", {n} {what}" for what, n in counts.items())
    print(f"{options.count} programs from seed {options.seed}: {finds} finds "
          f"({sum(used.values())} statements{rest})")
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
