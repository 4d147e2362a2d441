#!/usr/bin/python3
"""A whole training agrees with PyTorch's, from the same initial weights and the same images.

usage: training_beside_torch_test.py COMMAND   (the `lockstep` command)

After 1 iteration every parameter, running statistic and array of the solver lies within 1e-5 of
PyTorch's, by norm. After 20 it is at most twice as far from PyTorch in fp64 as PyTorch in fp32 is,
plus 1e-6. Then PyTorch is trained a little differently, one thing at a time, and the same
comparison must notice each.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch

import files
from networks import CLASSES, HEIGHT, MINI_BATCH, WIDTH, Branches, Dense, Residual

IMAGES = 170  # 10 mini-batches, and 10 more images, which are dropped
EPOCHS = 2
LAST = IMAGES // MINI_BATCH * EPOCHS
FIRST_LIMIT, LAST_FACTOR, LAST_SLACK = 1e-5, 2, 1e-6
WITHOUT_GRADIENT_LIMIT = 1e-6  # absolute, because only rounding moves them

JOB = """
[data]
train = "images"
test = "images"
labels = "nearest"
[network]
input = {{ height = {height}, width = {width}, channels = 3, normalization = "{normalization}" }}
layers = [{layers}]
loss = "cross_entropy"
[training]
{solver}
mini_batch_size = {mini_batch}
shard_size = {mini_batch}
max_epochs = {epochs}
shuffle = "never"
checkpoint_frequency = 1
checkpoints_kept = {last}
seed = 3
"""
SOLVER_FIELDS = {"rate": "initial_learning_rate", "beta_1": "gradient_decay",
                 "beta_2": "squared_gradient_decay", "drop_epochs": "drop_period"}
# Value names that differ between Lockstep and PyTorch.
NAMES = {"weights": "weight", "scale": "weight", "shift": "bias", "mean": "running_mean",
         "variance": "running_var"}


def make_images():
    """Colored stripes, a direction for each class, and noise: N x H x W x 3 bytes, and labels."""
    random = numpy.random.RandomState(5)
    # Some classes are rarer than others. With equal shares the first gradients nearly cancel.
    labels = random.choice(CLASSES, IMAGES, p=numpy.arange(1, CLASSES + 1) / 28)
    assert len(set(labels)) == CLASSES
    y, x = numpy.mgrid[:HEIGHT, :WIDTH]
    images = numpy.empty((IMAGES, HEIGHT, WIDTH, 3), numpy.uint8)
    for image, label in zip(images, labels):
        angle = math.pi * label / CLASSES
        for channel in range(3):
            stripes = numpy.cos(0.9 * (x * math.cos(angle) + y * math.sin(angle)) +
                                random.uniform(0, 2 * math.pi))
            noise = random.normal(0, 25, stripes.shape)
            image[..., channel] = numpy.clip(100 + 20 * channel + 50 * stripes + noise, 0, 255)
    return images, labels


def write_images(folder, images, labels):
    """Each image is in its own folder above its class's folder, so that the listing keeps the order."""
    for number, (image, label) in enumerate(zip(images, labels)):
        place = os.path.join(folder, f"{number:04}", f"class{label}")
        os.makedirs(place)
        files.write_png(os.path.join(place, "image.png"), image)


def job_text(network):
    options = dict(network.solver)
    if "drop_factor" in options:
        options["learning_rate_schedule"] = "piecewise"
    solver = "\n".join(f"{SOLVER_FIELDS.get(key, key)} = {json.dumps(value)}"
                       for key, value in options.items())
    layers = " ".join(network.layers.split())  # TOML needs an inline table on one line
    return JOB.format(height=HEIGHT, width=WIDTH, normalization=network.normalization,
                      layers=layers, solver=solver, mini_batch=MINI_BATCH, epochs=EPOCHS,
                      last=LAST)


class Training:
    """Results of a training: all values after the first and the last iteration, and the losses."""

    def __init__(self, first, last, losses):
        self.after = {1: first, LAST: last}
        self.losses = losses


def train_with_lockstep(command, network, folder):
    job, out = os.path.join(folder, "job.toml"), os.path.join(folder, "run")
    with open(job, "w") as file:
        file.write(job_text(network))
    arguments = [command, "train", job, "--out", out, "--save-initial", "--json", "--quiet"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command} train: exit code {done.returncode}\n{done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["iterations"] == LAST, result

    def checkpoint(iteration):
        path = os.path.join(out, "checkpoints", f"checkpoint-{iteration:08}.safetensors")
        values = files.read_safetensors(path)
        return {name.split("/", 1)[1]: value for name, value in values.items()}

    log = files.read_json_lines(os.path.join(out, "log.jsonl"))
    losses = [entry["loss"] for entry in log if "loss" in entry]
    initial = files.read_safetensors(os.path.join(out, "initial.safetensors"))
    return Training(checkpoint(1), checkpoint(LAST), losses), initial, result["test_loss"]


def place_in(model, name):
    """PyTorch's tensor for a name of Lockstep's such as "conv_1.weights"."""
    layer, value = name.rsplit(".", 1)
    return getattr(model.get_submodule(layer), NAMES.get(value, value))


def fill(model, values):
    with torch.no_grad():
        for name, value in values.items():
            if not name.startswith("input."):
                place_in(model, name).copy_(torch.from_numpy(value))


def biased(variance, norm, iteration):
    """PyTorch puts n / (n - 1) times the batch's variance into its running variance, Lockstep the
    variance itself. With n always the same, all but what is left of the initial 1 differs so."""
    left = (1 - norm.momentum) ** iteration
    return left + (variance - left) * (norm.count - 1) / norm.count


def count_normalized(norm, inputs):
    norm.count = inputs[0].numel() // norm.num_features


def snapshot(model, optimizer, names, iteration, reconciled):
    values = {}
    for name in names:
        place = place_in(model, name)
        value = place.detach().double().numpy().copy()
        if name.endswith(".variance") and reconciled:
            value = biased(value, model.get_submodule(name.rsplit(".", 1)[0]), iteration)
        values[name] = value
        state = optimizer.state.get(place, {})
        if "momentum_buffer" in state:  # PyTorch multiplies it by the rate when it is applied
            rate = optimizer.param_groups[0]["lr"]
            values[name + ".velocity"] = -rate * state["momentum_buffer"].double().numpy()
        if "exp_avg" in state:
            values[name + ".mean"] = state["exp_avg"].double().numpy().copy()
            values[name + ".square"] = state["exp_avg_sq"].double().numpy().copy()
    return values


def train_with_torch(network, initial, images, labels, dtype, change={}):
    """Trains in PyTorch; `change` selects a deliberate difference."""

    def norm(channels, eps=1e-5, momentum=0.1):
        made = torch.nn.BatchNorm2d(channels, eps=eps * change.get("norm_epsilon", 1),
                                    momentum=momentum + change.get("norm_momentum", 0))
        made.register_forward_pre_hook(count_normalized)
        return made

    options = {**network.solver, **change.get("solver", {})}
    model = network(norm)
    fill(model, initial)
    model.to(dtype)
    named = list(model.named_parameters())
    decays = [p for name, p in named if p.dim() > 1 or change.get("l2_on_everything")]
    others = [p for name, p in named if not any(p is d for d in decays)]
    groups = [{"params": decays, "weight_decay": options["l2"]}, {"params": others}]
    if options["solver"] == "sgdm":
        optimizer = torch.optim.SGD(groups, lr=options["rate"], momentum=options["momentum"])
    else:
        optimizer = torch.optim.Adam(groups, lr=options["rate"], eps=options["epsilon"],
                                     betas=(options["beta_1"], options["beta_2"]))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, options.get("drop_epochs", 1),
                                               options.get("drop_factor", 1))
    x = normalized(images, initial).to(dtype)
    y = torch.from_numpy(labels)
    names = [name for name in initial if not name.startswith("input.")]
    after, losses = {}, []
    for _ in range(EPOCHS):
        for begin in range(0, IMAGES - MINI_BATCH + 1, MINI_BATCH):
            batch = slice(begin, begin + MINI_BATCH)
            loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) in (1, LAST):
                after[len(losses)] = snapshot(model, optimizer, names, len(losses),
                                              not change.get("unbiased_variance"))
        schedule.step()
    return Training(after[1], after[LAST], losses)


def normalized(images, initial):
    """N x 3 x H x W in fp64, with the offset and factor that Lockstep stored."""
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).double()
    offset, factor = (torch.from_numpy(initial["input." + name]).double().view(1, 3, 1, 1)
                      for name in ("offset", "factor"))
    return (pixels - offset) * factor


def distance(a, b):
    return float(numpy.linalg.norm(a.astype(float) - b) / numpy.linalg.norm(b))


def compare(network, ours, single, double):
    """Rows of the table, and the differences that are too large, as texts."""
    rows, far = [], []
    names = {name for name in ours.after[1] if not name.startswith("input.")}
    assert names == set(single.after[1]), names ^ set(single.after[1])
    for name in sorted(names):
        first, last = ours.after[1][name], ours.after[LAST][name]
        if name.startswith(network.without_gradient):
            largest = [float(abs(v).max()) for v in (first, last, single.after[LAST][name])]
            rows.append((name + " (size)", largest[0], largest[0], largest[1], largest[2]))
            if max(largest[:2]) > WITHOUT_GRADIENT_LIMIT:
                far.append(f"{name} has no true gradient, but grew to {max(largest[:2]):.1e}")
            continue
        row = (name, distance(first, single.after[1][name]), distance(first, double.after[1][name]),
               distance(last, double.after[LAST][name]),
               distance(single.after[LAST][name], double.after[LAST][name]))
        rows.append(row)
        if not row[1] <= FIRST_LIMIT:
            far.append(f"{name} is {row[1]:.1e} away after 1 iteration")
        if not row[3] <= LAST_FACTOR * row[4] + LAST_SLACK:
            far.append(f"{name} is {row[3]:.1e} away after {LAST}, PyTorch in fp32 {row[4]:.1e}")
    losses = [numpy.array(t.losses) for t in (ours, single, double)]
    row = ("loss", distance(losses[0][:1], losses[1][:1]), distance(losses[0][:1], losses[2][:1]),
           distance(losses[0], losses[2]), distance(losses[1], losses[2]))
    rows.append(row)
    if not (row[1] <= FIRST_LIMIT and row[3] <= LAST_FACTOR * row[4] + LAST_SLACK):
        far.append("losses differ")
    return rows, far


def print_table(title, rows):
    width = max(len(row[0]) for row in rows)
    print(f"\n{title}: relative distances by norm")
    print(f"{'':{width}}  after 1 iteration to  after {LAST} to PyTorch in fp64")
    print(f"{'':{width}}  fp32       fp64       Lockstep   PyTorch fp32")
    for name, *values in rows:
        print(f"{name:{width}}  " + "  ".join(f"{value:9.1e}" for value in values))


class TrainingBesideTorch(unittest.TestCase):
    command = ""

    def check(self, network, changes):
        torch.set_num_threads(1)
        images, labels = make_images()
        with tempfile.TemporaryDirectory() as folder:
            write_images(os.path.join(folder, "images"), images, labels)
            ours, initial, test_loss = train_with_lockstep(self.command, network, folder)
        self.check_normalization(network, images, initial)
        torch.manual_seed(0)
        single = train_with_torch(network, initial, images, labels, torch.float32)
        double = train_with_torch(network, initial, images, labels, torch.float64)
        rows, far = compare(network, ours, single, double)
        print_table(network.__name__, rows)
        self.assertEqual(far, [])
        self.check_evaluation(network, ours, initial, images, labels, test_loss)
        for what, change in changes.items():
            with self.subTest(noticed=what):
                other = [train_with_torch(network, initial, images, labels, dtype, change)
                         for dtype in (torch.float32, torch.float64)]
                far = compare(network, ours, *other)[1]
                print(f"with {what}: {len(far)} values too far")
                self.assertNotEqual(far, [], f"the comparison does not notice {what}")

    def check_normalization(self, network, images, initial):
        """Offset and factor are the mean and one over the standard deviation, over all images."""
        values = images.reshape(-1, 3).astype(float)
        factor = 1 / values.std(axis=0) if network.normalization == "z-score" else numpy.ones(3)
        self.assertLess(distance(initial["input.offset"], values.mean(axis=0)), 1e-7)
        self.assertLess(distance(initial["input.factor"], factor), 1e-7)

    def check_evaluation(self, network, ours, initial, images, labels, test_loss):
        """The trained network's loss, by moving statistics, over every image."""
        model = network(torch.nn.BatchNorm2d)
        fill(model, {name: ours.after[LAST][name] for name in initial})
        model.double().eval()
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(model(normalized(images, initial)),
                                                     torch.from_numpy(labels)).item()
        self.assertLess(abs(test_loss / loss - 1), 1e-5)

    def test_sgdm_agrees_and_differences_are_noticed(self):
        self.check(Residual, {
            "twice the epsilon of batch normalization": {"norm_epsilon": 2},
            "another momentum of batch normalization": {"norm_momentum": 0.01},
            "the running variance unbiased": {"unbiased_variance": True},
            "another momentum of the solver": {"solver": {"momentum": 0.89}},
            "another learning rate": {"solver": {"rate": 0.0201}},
            "another l2": {"solver": {"l2": 0.0101}},
            "l2 on biases and normalization too": {"l2_on_everything": True},
        })

    def test_dense_layers_agree_and_differences_are_noticed(self):
        self.check(Dense, {
            "another momentum of the solver": {"solver": {"momentum": 0.89}},
            "another learning rate": {"solver": {"rate": 0.0201}},
            "another l2": {"solver": {"l2": 0.0101}},
        })

    def test_adam_agrees_and_differences_are_noticed(self):
        self.check(Branches, {
            "twice the epsilon of batch normalization": {"norm_epsilon": 2},
            "another momentum of batch normalization": {"norm_momentum": 0.01},
            "another decay of the gradient": {"solver": {"beta_1": 0.89}},
            "another decay of the squared gradient": {"solver": {"beta_2": 0.9991}},
            "twice the epsilon of the solver": {"solver": {"epsilon": 2e-3}},
            "another l2": {"solver": {"l2": 0.0101}},
            "a learning rate that stays": {"solver": {"drop_factor": 1}},
        })


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    TrainingBesideTorch.command = sys.argv.pop(1)
    unittest.main(verbosity=2)
