#!/usr/bin/env python3
"""Recurrent ops and their gradients beside PyTorch's packed sequences in fp64.

usage: recurrent_beside_torch_test.py PATH_OF_RECURRENT_OPS [--count N] [--seed S]
"""
import argparse
import json
import random
import subprocess
import sys

import numpy
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

# By norm: what f32 loses in sums and, from step to step, in states.
TOLERANCE = 2e-5
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def array(chance, *shape, size=1.0):
    return (size * chance.uniform(-1, 1, shape)).astype(numpy.float32)


def problem_of(number, seed):
    pick, chance = random.Random(f"{seed} {number}"), numpy.random.RandomState(seed * 9973 + number)
    op = ["lstm", "gru", "rnn"][number % 3]
    rows, steps = pick.randint(1, 9), pick.choice([1, 2, 5, 13, 40])
    channels, hidden = pick.randint(1, 20), pick.choice([1, 2, 7, 16, 33, 64])
    lengths = [pick.randint(0, steps) for _ in range(rows)]
    lengths[pick.randrange(rows)] = steps - pick.choice([0, 0, steps - 1])
    gates, size = GATES[op] * hidden, 2 / max(hidden, channels) ** 0.5
    operands = [array(chance, rows, steps, channels), numpy.array(lengths, numpy.int32),
                array(chance, gates, channels, size=size), array(chance, gates, hidden, size=size),
                array(chance, gates)]
    if op == "gru":
        operands.append(array(chance, gates))
    operands += [array(chance, rows, hidden) for _ in range(2 if op == "lstm" else 1)]
    weights = [array(chance, rows, steps, hidden)]
    weights += [array(chance, rows, hidden) for _ in range(2 if op == "lstm" else 1)]
    options = {"reverse": pick.random() < 0.5, "relu": op == "rnn" and pick.random() < 0.5}
    return {"op": op, "options": options, "operands": operands, "weights": weights}


def text_of(problem):
    operands = [{"shape": list(a.shape), "values": a.ravel().tolist(), "whole": a.dtype == numpy.int32}
                for a in problem["operands"]]
    return json.dumps({**problem, "operands": operands,
                       "weights": [w.ravel().tolist() for w in problem["weights"]]})


def expected_of(problem):
    """Outputs and gradients by PyTorch: the layer, or the backward half of a bidirectional one."""
    op, options = problem["op"], problem["options"]
    lengths = problem["operands"][1]
    floats = [torch.tensor(a, dtype=torch.float64, requires_grad=True)
              for a in problem["operands"] if a.dtype != numpy.int32]
    more = {"nonlinearity": "relu" if options["relu"] else "tanh"} if op == "rnn" else {}
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[op](
        floats[0].shape[2], floats[2].shape[1], batch_first=True, bidirectional=True, dtype=torch.float64, **more)
    own = "_reverse" if options["reverse"] else ""
    of_layer = dict(layer.named_parameters())
    names = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0"] + ["bias_hh_l0"] * (op == "gru")
    with torch.no_grad():
        for parameter in of_layer.values():
            parameter.zero_()
        for name, value in zip(names, floats[1:]):
            of_layer[name + own].copy_(value)
    floats[1:1 + len(names)] = [of_layer[name + own] for name in names]
    states = floats[1 + len(names):]
    hidden, steps, x = floats[2].shape[1], floats[0].shape[1], floats[0]
    valid = [i for i, n in enumerate(lengths) if n > 0]
    half = 1 if options["reverse"] else 0
    last = [s.clone() for s in states]
    y = torch.zeros(x.shape[0], steps, hidden, dtype=torch.float64)
    if valid:
        packed = pack_padded_sequence(x[valid], torch.tensor(lengths[valid], dtype=torch.int64),
                                      batch_first=True, enforce_sorted=False)
        both = [torch.stack([s[valid] if k == half else torch.zeros_like(s[valid]) for k in range(2)])
                for s in states]
        out, after = layer(packed, tuple(both) if op == "lstm" else both[0])
        padded, _ = pad_packed_sequence(out, batch_first=True, total_length=steps)
        y[valid] = padded[:, :, half * hidden:(half + 1) * hidden]
        for to, s in zip(last, after if op == "lstm" else [after]):
            to[valid] = s[half]
    outputs = [y, *last]
    total = sum((o * torch.tensor(w, dtype=torch.float64)).sum()
                for o, w in zip(outputs, problem["weights"]))
    diffs = torch.autograd.grad(total, floats, allow_unused=True)
    return [r.detach().numpy() for r in outputs] + \
        [numpy.zeros(f.shape) if d is None else d.numpy() for d, f in zip(diffs, floats)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    problems = [problem_of(number, arguments.seed) for number in range(arguments.count)]
    ran = subprocess.run([arguments.program], input="\n".join(map(text_of, problems)) + "\n",
                         capture_output=True, text=True, timeout=500)
    lines = ran.stdout.splitlines()
    if ran.returncode != 0 or len(lines) != len(problems):
        print(f"{len(lines)} of {len(problems)} problems were computed; exit code {ran.returncode}\n"
              + ran.stderr)
        return 1
    worst, wrong = 0.0, 0
    for number, (problem, line) in enumerate(zip(problems, lines)):
        expected, seen = expected_of(problem), json.loads(line)
        assert len(expected) == len(seen)
        for k, (e, s) in enumerate(zip(expected, seen)):
            error = numpy.linalg.norm(numpy.array(s, dtype=float) - e.ravel())
            error /= max(numpy.linalg.norm(e), 1e-3)
            worst = max(worst, error)
            if not error <= TOLERANCE:
                wrong += 1
                print(f"problem {number} ({problem['op']}, {problem['options']}, lengths "
                      f"{problem['operands'][1].tolist()}): result {k} differs by {error:.2g}")
    print(f"{len(problems)} problems, largest error by norm {worst:.2g}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
