#!/usr/bin/python3
"""A network with two heads trains as in PyTorch: squared errors times 0.5 and cross-entropy times 2.

usage: outputs_beside_torch_test.py COMMAND   (the `lockstep` command)

From the same weights and the same rows, 10 iterations of stochastic gradient descent with momentum:
losses and all values agree with PyTorch's in fp64 within 1e-5, by norm. Then PyTorch is trained a
little differently, one thing at a time, and the comparison must notice each.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch
from torch import nn
from torch.nn import functional

import files

ROWS, FEATURES, MINI_BATCH, EPOCHS = 80, 6, 16, 2
ITERATIONS = ROWS // MINI_BATCH * EPOCHS
KINDS = ["bar", "dot", "rim"]
RATE, MOMENTUM = 0.05, 0.9
LIMIT = 1e-5

JOB = f"""
[data]
train = "rows.csv"
target_columns = ["width", "height", "kind"]
categories = "kind"
[network]
layers = [
  {{ type = "feature_input", features = {FEATURES}, normalization = "none" }},
  {{ type = "fully_connected", units = 11, name = "trunk" }},
  {{ type = "tanh", name = "tanh" }},
  {{ type = "fully_connected", units = 2, name = "size", inputs = ["tanh"] }},
  {{ type = "fully_connected", units = {len(KINDS)}, name = "kind", inputs = ["tanh"] }},
]
outputs = [
  {{ layer = "size", loss = "mean_squared_error", weight = 0.5 }},
  {{ layer = "kind", loss = "cross_entropy", weight = 2 }},
]
[training]
solver = "sgdm"
initial_learning_rate = {RATE}
momentum = {MOMENTUM}
l2 = 0
mini_batch_size = {MINI_BATCH}
max_epochs = {EPOCHS}
shuffle = "never"
seed = 5
"""


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(FEATURES, 11)
        self.size = nn.Linear(11, 2)
        self.kind = nn.Linear(11, len(KINDS))

    def forward(self, x):
        shared = torch.tanh(self.trunk(x))
        return self.size(shared), self.kind(shared)


def make_rows():
    """Features, two numbers and a class, all in fp32."""
    random = numpy.random.RandomState(3)
    x = random.uniform(-1, 1, (ROWS, FEATURES)).astype(numpy.float32)
    sizes = numpy.stack([x[:, 0] - 2 * x[:, 1], x[:, 2] * x[:, 3]], 1).astype(numpy.float32)
    kinds = numpy.where(x[:, 4] > 0.2, 0, numpy.where(x[:, 5] > 0, 1, 2))
    assert len(set(kinds)) == len(KINDS)
    return x, sizes, kinds


def write_rows(path, x, sizes, kinds):
    with open(path, "w", encoding="utf-8") as file:
        names = [f"x{k}" for k in range(FEATURES)]
        print(",".join(["height", *names, "kind", "width"]), file=file)
        for row, (width, height), kind in zip(x, sizes, kinds):
            numbers = [repr(float(value)) for value in (height, *row, width)]
            print(",".join([*numbers[:-1], KINDS[kind], numbers[-1]]), file=file)


def train_with_lockstep(command, rows):
    """The values before and after, and the losses."""
    with tempfile.TemporaryDirectory() as folder:
        write_rows(os.path.join(folder, "rows.csv"), *rows)
        job, out = os.path.join(folder, "job.toml"), os.path.join(folder, "run")
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB)
        done = subprocess.run([command, "train", job, "--out", out, "--save-initial", "--json", "--quiet"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{command} train: exit code {done.returncode}\n{done.stderr}")
        assert json.loads(done.stdout.splitlines()[-1])["iterations"] == ITERATIONS
        log = files.read_json_lines(os.path.join(out, "log.jsonl"))
        values = [{name: value for name, value in files.read_safetensors(os.path.join(out, file)).items()
                   if name.split(".")[0] in ("trunk", "size", "kind")}
                  for file in ("initial.safetensors", "model.safetensors")]
    return *values, [entry["loss"] for entry in log if "loss" in entry]


def place_in(model, name):
    layer, value = name.rsplit(".", 1)
    return getattr(model.get_submodule(layer), {"weights": "weight", "bias": "bias"}[value])


def train_with_torch(initial, rows, weights=(0.5, 2.0), momentum=MOMENTUM, reduction="mean"):
    x, sizes, kinds = (torch.from_numpy(part) for part in rows)
    x, sizes = x.double(), sizes.double()
    model = TwoHeads().double()
    with torch.no_grad():
        for name, value in initial.items():
            place_in(model, name).copy_(torch.from_numpy(value))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum)
    losses = []
    for _ in range(EPOCHS):
        for begin in range(0, ROWS, MINI_BATCH):
            batch = slice(begin, begin + MINI_BATCH)
            size, kind = model(x[batch])
            squares = functional.mse_loss(size, sizes[batch], reduction="none")
            squares = squares.mean() if reduction == "mean" else squares.sum(1).mean()
            loss = weights[0] * squares + weights[1] * functional.cross_entropy(kind, kinds[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return {name: place_in(model, name).detach().numpy() for name in initial}, losses


def distance(a, b):
    return float(numpy.linalg.norm(numpy.asarray(a, float) - b) / numpy.linalg.norm(b))


def differences(ours, losses, expected, expected_losses):
    found = {name: distance(value, expected[name]) for name, value in ours.items()}
    found["loss"] = distance(losses, numpy.array(expected_losses))
    return found


class OutputsBesideTorch(unittest.TestCase):
    command = ""

    def test_two_heads_agree_and_differences_are_noticed(self):
        torch.set_num_threads(1)
        rows = make_rows()
        initial, trained, losses = train_with_lockstep(self.command, rows)
        self.assertEqual(len(initial), 6)
        self.assertEqual(len(losses), ITERATIONS)
        found = differences(trained, losses, *train_with_torch(initial, rows))
        for name, value in found.items():
            print(f"{name:15} {value:.1e}")
        self.assertLess(max(found.values()), LIMIT, found)
        changes = {"another weight of the squares": {"weights": (0.501, 2.0)},
                   "another weight of the cross-entropy": {"weights": (0.5, 2.001)},
                   "the weights in place of each other": {"weights": (2.0, 0.5)},
                   "sums of squares": {"reduction": "sum"},
                   "another momentum": {"momentum": 0.899}}
        for what, change in changes.items():
            with self.subTest(noticed=what):
                found = differences(trained, losses, *train_with_torch(initial, rows, **change))
                self.assertGreater(max(found.values()), LIMIT, what)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    OutputsBesideTorch.command = sys.argv.pop(1)
    unittest.main(verbosity=2)
