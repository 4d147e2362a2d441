#!/usr/bin/env python3
"""Segmentation: mean intersection over union of Lockstep and PyTorch with the same recipe.

usage: segmentation.py PATH_OF_LOCKSTEP [--seeds N] [--epochs N]

Needs PyTorch. Discs and squares on noise, 32 x 32, made by tests/apps/label_images.py: 256 images
to train, 128 for the test. Both train the same small U-Net with Adam, mirrored images and no other
augmentation. Prints the means over the seeds, and the standard error of their difference.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/apps"))
import label_images  # noqa: E402

TRAIN, TEST, BATCH, RATE = 256, 128, 16, 3e-3
LEVELS = [("a", 16), ("b", 32)]
JOB = """
[data]
train = "images"
targets = "masks"
test = "test_images"
test_targets = "test_masks"
pixel_classes = ["background", "disc", "square"]
[augmentation]
reflect_x = true
[network]
loss = "cross_entropy"
input = {{ height = 32, width = 32, channels = 3, normalization = "z-score" }}
layers = [
{layers}
]
[training]
solver = "adam"
initial_learning_rate = {rate}
mini_batch_size = {batch}
max_epochs = {epochs}
seed = {seed}
l2 = 0
shuffle = "every-epoch"
device = "cpu"
metrics = "iou"
"""


def layers():
    def block(filters, name):
        return [f'{{ type = "convolution2d", filters = {filters}, kernel = 3, padding = "same" }}',
                '{ type = "batch_normalization" }', f'{{ type = "relu", name = "{name}" }}']
    lines = []
    for name, filters in LEVELS:
        lines += block(filters, name) + ['{ type = "max_pooling2d", pool = 2, stride = 2 }']
    lines += block(64, "bottom")
    for name, filters in reversed(LEVELS):
        lines += [f'{{ type = "upsampling2d", name = "up_{name}" }}',
                  f'{{ type = "concatenation", inputs = ["{name}", "up_{name}"] }}'] + block(filters, f"after_{name}")
    lines += ['{ type = "convolution2d", filters = 3, kernel = 1 }', '{ type = "softmax" }']
    return "".join(f"  {line},\n" for line in lines)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()

        def block(inputs, filters):
            return nn.Sequential(nn.Conv2d(inputs, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.ReLU())
        self.down = nn.ModuleList([block(3, 16), block(16, 32)])
        self.bottom = block(32, 64)
        self.up = nn.ModuleList([block(32 + 64, 32), block(16 + 32, 16)])
        self.last = nn.Conv2d(16, 3, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # Lockstep's initial weights
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, x):
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for block in self.up:
            x = block(torch.cat([kept.pop(), nn.functional.interpolate(x, scale_factor=2)], 1))
        return self.last(x)


def iou(masks, found):
    values = []
    for k in range(3):
        both = ((masks == k) & (found == k)).sum()
        values.append(both / ((masks == k) | (found == k)).sum())
    return float(numpy.mean(values))


def of_torch(images, masks, seed, epochs):
    torch.manual_seed(seed)
    x = torch.tensor(images).permute(0, 3, 1, 2).float()
    y = torch.tensor(masks).long()
    mean, deviation = x[:TRAIN].mean((0, 2, 3), keepdim=True), x[:TRAIN].std((0, 2, 3), keepdim=True)
    x = (x - mean) / deviation
    network = UNet()
    solver = torch.optim.Adam(network.parameters(), RATE)
    for _ in range(epochs):
        for some in torch.randperm(TRAIN).split(BATCH):
            a, b = x[some], y[some]
            flip = torch.rand(len(some)) < 0.5
            a[flip], b[flip] = a[flip].flip(3), b[flip].flip(2)
            solver.zero_grad()
            nn.functional.cross_entropy(network(a), b).backward()
            solver.step()
    network.eval()
    with torch.no_grad():
        found = network(x[TRAIN:]).argmax(1).numpy()
    return iou(masks[TRAIN:], found)


def of_lockstep(command, folder, seed, epochs):
    job = folder / f"job{seed}.toml"
    job.write_text(JOB.format(layers=layers(), rate=RATE, batch=BATCH, epochs=epochs, seed=seed))
    done = subprocess.run([command, "train", job, "--out", folder / f"run{seed}", "--json", "--quiet"],
                          check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["test_metrics"]["iou"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("lockstep")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    command = str(pathlib.Path(options.lockstep).resolve())
    scenes = [label_images.scene(i) for i in range(TRAIN + TEST)]
    images = numpy.array([image for image, _ in scenes], numpy.uint8)
    masks = numpy.array([mask for _, mask in scenes], numpy.uint8)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for i, (image, mask) in enumerate(scenes):
            part = "" if i < TRAIN else "test_"
            for kind, data in [("images", label_images.png(image, colors=True)), ("masks", label_images.png(mask))]:
                path = folder / (part + kind) / f"{i:04}.png"
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)
        rows = {}
        for what, measure in [("Lockstep", lambda s: of_lockstep(command, folder, s, options.epochs)),
                              ("PyTorch", lambda s: of_torch(images, masks, s, options.epochs))]:
            begun = time.monotonic()
            rows[what] = [measure(seed) for seed in range(1, options.seeds + 1)]
            print(f"{what:9} IoU {statistics.mean(rows[what]):.4f} ({', '.join(f'{v:.4f}' for v in rows[what])}), "
                  f"{time.monotonic() - begun:.0f} s")
    error = math.sqrt(sum(statistics.variance(values) / len(values) for values in rows.values())
                      if options.seeds > 1 else 0)
    print(f"difference {statistics.mean(rows['Lockstep']) - statistics.mean(rows['PyTorch']):+.4f}, "
          f"standard error {error:.4f}")


if __name__ == "__main__":
    main()
