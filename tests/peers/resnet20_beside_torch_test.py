#!/usr/bin/python3
"""A short training of ResNet-20 agrees with PyTorch's, from the same weights and the same images.

usage: resnet20_beside_torch_test.py COMMAND   (the `lockstep` command)

The network is the one that `lockstep architecture resnet20` prints. Images are CIFAR-10's, where
LOCKSTEP_TEST_DATA has them, else colored stripes. With thousands of activations in front of ReLUs
some lie so near zero that rounding decides: from then on two trainings drift apart, whoever
computes. So what is compared is the distance from PyTorch in fp64, over all parameters and running
statistics: Lockstep's must be at most three times that of PyTorch in fp32.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch

import files
from job_network import JobNetwork
from training_beside_torch_test import biased, count_normalized, fill, normalized, place_in

CLASSES, SIDE, MINI_BATCH, ITERATIONS = 10, 32, 32, 5
IMAGES = MINI_BATCH * ITERATIONS
RATE, MOMENTUM, L2 = 0.001, 0.9, 1e-4
SETTINGS = {"max_epochs": 1, "mini_batch_size": MINI_BATCH, "shard_size": MINI_BATCH,
            "shuffle": '"never"', "solver": '"sgdm"', "initial_learning_rate": RATE,
            "momentum": MOMENTUM, "l2": L2, "checkpoint_frequency": 1,
            "checkpoints_kept": ITERATIONS, "data.validation_fraction": 0, "data.resize": "false",
            "learning_rate_schedule": '"none"'}
FACTOR = 3


def make_images():
    """N x 32 x 32 x 3 bytes, labels, and a description of both."""
    folder = os.path.join(os.environ.get("LOCKSTEP_TEST_DATA", ""), "cifar10", "test")
    random = numpy.random.RandomState(2)
    labels = random.randint(CLASSES, size=IMAGES)
    if os.path.isdir(folder):
        from PIL import Image
        classes = sorted(os.listdir(folder))
        images = [Image.open(os.path.join(folder, classes[label], sorted(os.listdir(
            os.path.join(folder, classes[label])))[number])) for number, label in enumerate(labels)]
        return numpy.stack([numpy.asarray(image.convert("RGB")) for image in images]), labels, folder
    y, x = numpy.mgrid[:SIDE, :SIDE]
    images = numpy.empty((IMAGES, SIDE, SIDE, 3), numpy.uint8)
    for image, label in zip(images, labels):
        angle = numpy.pi * label / CLASSES
        stripes = numpy.cos(0.6 * (x * numpy.cos(angle) + y * numpy.sin(angle)) +
                            random.uniform(0, 6))[..., None]
        image[...] = numpy.clip(120 + 60 * stripes + random.normal(0, 25, image.shape), 0, 255)
    return images, labels, "colored stripes (no CIFAR-10: set LOCKSTEP_TEST_DATA)"


def train_with_lockstep(command, images, labels, folder):
    """Values after the first and the last iteration, the initial ones, and the network."""
    for number, (image, label) in enumerate(zip(images, labels)):
        place = os.path.join(folder, "images", f"{number:04}", f"class{label}")
        os.makedirs(place)
        files.write_png(os.path.join(place, "image.png"), image)
    job, out = os.path.join(folder, "job.toml"), os.path.join(folder, "run")
    with open(job, "w") as file:
        subprocess.run([command, "architecture", "resnet20"], stdout=file, check=True)
    arguments = [command, "train", job, "--out", out, "--save-initial", "--json", "--quiet", "--set",
                 "data.train=" + os.path.join(folder, "images"), "--set", "data.labels=nearest"]
    for key, value in SETTINGS.items():
        arguments += ["--set", f"{key}={value}"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}\n{done.stderr}")
    assert json.loads(done.stdout.splitlines()[-1])["iterations"] == ITERATIONS

    def checkpoint(iteration):
        path = os.path.join(out, "checkpoints", f"checkpoint-{iteration:08}.safetensors")
        values = files.read_safetensors(path)
        return {name.split("/", 1)[1]: value for name, value in values.items()
                if not name.startswith("solver/")}

    with open(os.path.join(out, "job.json")) as file:
        network = json.load(file)["network"]
    initial = files.read_safetensors(os.path.join(out, "initial.safetensors"))
    return [checkpoint(1), checkpoint(ITERATIONS)], initial, network


def train_with_torch(network, initial, images, labels, dtype, rate=RATE):
    def norm(channels, **options):
        made = torch.nn.BatchNorm2d(channels, **options)
        made.register_forward_pre_hook(count_normalized)
        return made

    model = JobNetwork(network, norm)
    fill(model, initial)
    model.to(dtype).train()
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": L2},
              {"params": [p for p in model.parameters() if p.dim() == 1]}]
    optimizer = torch.optim.SGD(groups, lr=rate, momentum=MOMENTUM)
    x, y = normalized(images, initial).to(dtype), torch.from_numpy(labels)
    after = []
    for iteration in range(1, ITERATIONS + 1):
        batch = slice((iteration - 1) * MINI_BATCH, iteration * MINI_BATCH)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
        if iteration in (1, ITERATIONS):
            values = {}
            for name in initial:
                if name.startswith("input."):
                    continue
                value = place_in(model, name).detach().double().numpy().copy()
                if name.endswith(".variance"):
                    value = biased(value, model.get_submodule(name.rsplit(".", 1)[0]), iteration)
                values[name] = value
            after.append(values)
    return after


def distance(a, b, initial):
    """The distance of each array relative to its change from the initial values; returns the median."""
    shares = [numpy.linalg.norm(a[name].astype(float) - b[name]) /
              numpy.linalg.norm(b[name] - initial[name].astype(float)) for name in b]
    return float(numpy.median(shares))


class ResNet20BesideTorch(unittest.TestCase):
    command = ""

    def test_it_stays_as_near_to_fp64_as_torch_does(self):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        images, labels, what = make_images()
        with tempfile.TemporaryDirectory() as folder:
            ours, initial, network = train_with_lockstep(self.command, images, labels, folder)
        single = train_with_torch(network, initial, images, labels, torch.float32)
        double = train_with_torch(network, initial, images, labels, torch.float64)
        print(f"\nResNet-20, {ITERATIONS} iterations of {MINI_BATCH}, {what}")
        print("distance from PyTorch in fp64, of the way that training went:")
        for title, place in (("after 1 iteration", 0), (f"after {ITERATIONS}", 1)):
            figures = [distance(t[place], double[place], initial) for t in (ours, single)]
            print(f"{title:18} Lockstep {figures[0]:.1e}  PyTorch fp32 {figures[1]:.1e}")
            self.assertLess(figures[0], FACTOR * figures[1])
        # The same comparison detects a rate that is a twentieth larger.
        other = train_with_torch(network, initial, images, labels, torch.float64, 1.05 * RATE)
        self.assertGreater(distance(ours[1], other[1], initial),
                           FACTOR * distance(single[1], double[1], initial))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ResNet20BesideTorch.command = sys.argv.pop(1)
    unittest.main(verbosity=2)
