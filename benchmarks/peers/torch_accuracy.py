#!/usr/bin/python3
"""The accuracy of S3's training in PyTorch: what `accuracy.py cifar10_s3` is compared with.

The training of examples/jobs/cifar10_s3.toml, written for PyTorch: the same network, initial
distributions, solver, mini-batches and epochs, a tenth of each class held out, or with --validation
all of --train learned from. Batch normalization runs over the whole mini-batch of 128, or over
groups of `--group` observations. Prints, for each seed, the mean of the last ten epochs' validation
accuracies and the test accuracy after the last; then the means.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import sys
import time

import numpy
import torch
from PIL import Image
from torch import nn

import lockstep_runs

MINI_BATCH, SHIFT = 128, 4
RATE, MOMENTUM, L2 = 0.05, 0.9, 1e-10


def decode(path):
    with Image.open(path) as opened:
        return numpy.asarray(opened.convert("RGB")).transpose(2, 0, 1)


def read_folder(path, workers=0):
    """N x 3 x H x W bytes and labels, of a folder with one sub-folder for each class."""
    files, labels = [], []
    for label, name in enumerate(sorted(os.listdir(path))):
        images = sorted(os.listdir(os.path.join(path, name)))
        files += [os.path.join(path, name, image) for image in images]
        labels += [label] * len(images)
    pixels = numpy.empty((len(files), *decode(files[0]).shape), numpy.uint8)
    with multiprocessing.Pool(workers) if workers else contextlib.nullcontext() as pool:
        decoded = pool.imap(decode, files, chunksize=256) if pool else map(decode, files)
        for i, image in enumerate(decoded):
            pixels[i] = image
    return torch.from_numpy(pixels), torch.tensor(labels)


def split(pixels, labels, generator):
    """Nine tenths of each class, and the rest."""
    kept, held_out = [], []
    for label in range(10):
        places = (labels == label).nonzero().flatten()
        places = places[torch.randperm(len(places), generator=generator)]
        held_out.append(places[:len(places) // 10])
        kept.append(places[len(places) // 10:])
    kept, held_out = torch.cat(kept), torch.cat(held_out)
    return pixels[kept], labels[kept], pixels[held_out], labels[held_out]


def augment(pixels, generator, shift=SHIFT):
    """Reflected in x or not, moved by up to `shift` pixels each way; what comes in is zero."""
    n, _, height, width = pixels.shape
    padded = nn.functional.pad(pixels, [shift] * 4)
    dx, dy = (torch.randint(2 * shift + 1, (n, 1, 1), generator=generator) for _ in range(2))
    rows = torch.arange(height).view(1, -1, 1) + dy
    cols = torch.arange(width).view(1, 1, -1).expand(n, 1, -1)
    reflected = torch.randint(2, (n, 1, 1), generator=generator) == 1
    cols = torch.where(reflected, width - 1 - cols, cols) + dx
    return padded[torch.arange(n).view(-1, 1, 1), :, rows, cols].permute(0, 3, 1, 2)


class GroupedNormalization(nn.BatchNorm2d):
    """Normalizes groups of observations by themselves while training."""

    group = 0

    def forward(self, x):
        if not self.training or not self.group or len(x) <= self.group:
            return super().forward(x)
        return torch.cat([super(GroupedNormalization, self).forward(part)
                          for part in x.split(self.group)])


def make_network(depth, group):
    width, channels, layers = round(16 / depth ** 0.5), 3, []
    for level in range(3):
        for _ in range(depth):
            filters = width << level
            normalization = GroupedNormalization(filters)
            normalization.group = group
            layers += [nn.Conv2d(channels, filters, 3, padding=1), normalization,
                       nn.ReLU(inplace=True)]
            channels = filters
        layers.append(nn.MaxPool2d(2, 2) if level < 2 else nn.AvgPool2d(8))
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, 10))
    for layer in network:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return network.to(memory_format=torch.channels_last)


def accuracy(network, pixels, labels, mean):
    network.eval()
    with torch.no_grad():
        right = sum((network(x.float() - mean).argmax(1) == y).sum().item()
                    for x, y in zip(pixels.split(500), labels.split(500)))
    network.train()
    return right / len(labels)


def train_once(train, held_out, test, arguments, seed):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    x, y, held_x, held_y = split(*train, generator) if held_out is None else train + held_out
    mean = x.double().mean((0, 2, 3), keepdim=True).float()
    network = make_network(arguments.depth, arguments.group)
    solver = torch.optim.SGD(network.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=L2)
    loss, begin, validations = nn.CrossEntropyLoss(), time.time(), []
    for epoch in range(arguments.epochs):
        order = torch.randperm(len(x), generator=generator)
        for places in order[:len(x) // MINI_BATCH * MINI_BATCH].split(MINI_BATCH):
            batch = augment(x[places], generator) if arguments.augment else x[places]
            batch = batch.float() - mean
            solver.zero_grad(set_to_none=True)
            loss(network(batch.contiguous(memory_format=torch.channels_last)),
                 y[places]).backward()
            solver.step()
        validations.append(accuracy(network, held_x, held_y, mean))
        print(f"seed {seed}, epoch {epoch + 1}: {100 * validations[-1]:.2f} %, "
              f"{time.time() - begin:.0f} s", file=sys.stderr, flush=True)
    return {"seed": seed,
            "validation": statistics.mean(validations[-10:]) if validations else 0.0,
            "validations": validations, "test": accuracy(network, *test, mean)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--group", type=int, default=0,
                        help="observations normalized together (0: the whole mini-batch)")
    parser.add_argument("--augment", action="store_true",
                        help="reflect in x and translate by up to 4 pixels, as S1 does")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0, help="processes that decode images; 0: this one")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"), metavar="FOLDER",
                        help="holds cifar10/ (default: $LOCKSTEP_TEST_DATA)")
    parser.add_argument("--train", metavar="FOLDER", help="instead of cifar10/train there")
    parser.add_argument("--validation", metavar="FOLDER",
                        help="validate on these images, and learn from all of the others")
    parser.add_argument("--json", metavar="FILE", help="where the figures go as JSON")
    arguments = parser.parse_args()
    if not arguments.data:
        parser.error("no images: give --data or set LOCKSTEP_TEST_DATA")
    torch.set_num_threads(arguments.threads)
    images = os.path.join(arguments.data, "cifar10")
    workers = arguments.workers
    train = read_folder(arguments.train or os.path.join(images, "train"), workers)
    test = read_folder(os.path.join(images, "test"), workers)
    held_out = read_folder(arguments.validation, workers) if arguments.validation else None
    runs = [train_once(train, held_out, test, arguments, seed) for seed in arguments.seeds]
    lockstep_runs.print_table(
        ["seed", "validation, last 10 epochs", "test"],
        [[str(r["seed"]), f"{100 * r['validation']:.2f} %", f"{100 * r['test']:.2f} %"]
         for r in runs] +
        [["mean"] + [f"{100 * statistics.mean(r[k] for r in runs):.2f} %"
                     for k in ("validation", "test")]])
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"machine": lockstep_runs.machine(), "arguments": vars(arguments),
                       "runs": runs}, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
