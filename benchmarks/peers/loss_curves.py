#!/usr/bin/env python3
"""Losses of known networks in their first epochs, in Lockstep and PyTorch from the same values.

usage: loss_curves.py [--network NAME] [--size N] [--epochs N] [--no-warmup]

The networks are torchvision's with its initial values, which Lockstep reads from a safetensors file,
and what `lockstep architecture` prints. Both train on the same mini-batches of 32 handwritten
digits in the same order, with the printed options; the rate is scaled to the mini-batch. Nothing is
drawn at random: no shuffling, dropout and stochastic depth. Also printed: Lockstep from its own
initial values; and for the first losses the distance of both programs from PyTorch in fp64, which
tells rounding from mistakes. "Learns" means what tests/apps/architectures_test.py asks: that the mean of the last
four losses is below 0.75 of the first four. Needs PyTorch, torchvision and safetensors.
"""

import argparse
import copy
import os
import random
import re
import statistics
import sys
import tempfile

import numpy
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import lockstep_runs
from known_networks import TORCHVISION

NETWORKS = ("resnet18", "resnet34", "resnet50", "mobilenetv2", "efficientnet_b0")
BATCH, RATE, MOMENTUM, L2, WARM_UP_EPOCHS = 32, 0.0125, 0.9, 1e-4, 5
FIRST = 4  # losses that are compared with fp64


def write_images(arguments, folder):
    """Writes digits in a random order: the path of each is its number, its class, image.png. Returns N x 3 x H x W
    bytes and labels."""
    source = os.path.join(arguments.data, "digits")
    files = [(os.path.join(source, kind, name), int(kind)) for kind in sorted(os.listdir(source))
             for name in sorted(os.listdir(os.path.join(source, kind)))[:arguments.per_class]]
    random.Random(1).shuffle(files)
    images = []
    for number, (path, label) in enumerate(files):
        place = os.path.join(folder, f"{number:05}", str(label))
        os.makedirs(place)
        image = Image.open(path).convert("RGB").resize((arguments.size, arguments.size), Image.BILINEAR)
        image.save(os.path.join(place, "image.png"))
        images.append(numpy.asarray(image))
    pixels = torch.from_numpy(numpy.stack(images)).permute(0, 3, 1, 2)
    return pixels, torch.tensor([label for _, label in files])


def torch_losses(network, pixels, labels, arguments, dtype=torch.float32, most=None):
    """Losses of all iterations, or of the first ones."""
    network.to(dtype).train()
    per_epoch = len(pixels) // BATCH
    warm_up = 0 if arguments.no_warmup else WARM_UP_EPOCHS * per_epoch
    velocities = {values: torch.zeros_like(values) for values in network.parameters()}
    x = pixels.double()
    x = (x - x.mean((0, 2, 3), keepdim=True)).to(dtype)
    losses = []
    for iteration in range(most or arguments.epochs * per_epoch):
        begin = iteration % per_epoch * BATCH
        network.zero_grad()
        loss = nn.functional.cross_entropy(network(x[begin:begin + BATCH]), labels[begin:begin + BATCH])
        loss.backward()
        rate = RATE * min(1, (iteration + 1) / max(1, warm_up))
        with torch.no_grad():
            for values, velocity in velocities.items():
                # torch.optim.SGD multiplies earlier gradients by the newest rate, which rises here.
                decay = L2 if values.dim() > 1 else 0
                velocity.mul_(MOMENTUM).sub_(values.grad + decay * values, alpha=rate)
                values += velocity
        losses.append(loss.item())
    return losses


def lockstep_losses(name, start, images, folder, arguments):
    options = ["--stochastic-depth", "0"] if name == "efficientnet_b0" else []
    text = lockstep_runs.run_measured([arguments.command, "architecture", name, "--height", str(arguments.size),
                                       "--width", str(arguments.size), "--classes", "10", *options])[0]
    text = re.sub(r'(type = "dropout", probability = )[\d.]+', r"\g<1>0", text)
    text = text.replace("[network]", f'[network]\nfrom = "{start}"' if start else "[network]")
    job, out = os.path.join(folder, "job.toml"), os.path.join(folder, "from" if start else "own")
    with open(job, "w") as file:
        file.write(text)
    settings = [f"data.train={images}", "data.labels=nearest", "data.validation_fraction=0", "shuffle=never",
                f"mini_batch_size={BATCH}", f"shard_size={BATCH}", f"initial_learning_rate={RATE}",
                f"max_epochs={arguments.epochs}", "training.device=cpu"]
    if arguments.no_warmup:
        settings += ['learning_rate_schedule="none"', "schedule_epochs=[]"]
    lockstep_runs.train(arguments.command, job, out, settings, arguments.threads)
    return [entry["loss"] for entry in lockstep_runs.read_log(out)[0]]


def torch_network(name, seed):
    torch.manual_seed(seed)
    options = {"stochastic_depth_prob": 0.0} if name == "efficientnet_b0" else {}
    network = getattr(torchvision.models, TORCHVISION.get(name, name))(num_classes=10, **options)
    for layer in network.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    return network


def curve(losses, per_epoch):
    """The mean of each epoch."""
    return " ".join(f"{statistics.mean(losses[i:i + per_epoch]):.2f}" for i in range(0, len(losses), per_epoch))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--network", choices=NETWORKS, action="append", help="only this one; repeat for several")
    parser.add_argument("--size", type=int, default=16, help="rows and columns of the images")
    parser.add_argument("--per-class", type=int, default=30, help="images")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1, help="of torchvision's initial values")
    parser.add_argument("--no-warmup", action="store_true", help="the full rate from the beginning")
    parser.add_argument("--threads", type=int, default=2)
    arguments = lockstep_runs.parse_with_data(parser, "digits/")
    torch.set_num_threads(arguments.threads)
    for name in arguments.network or NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            images = os.path.join(folder, "images")
            pixels, labels = write_images(arguments, images)
            per_epoch = len(pixels) // BATCH
            network = torch_network(name, arguments.seed)
            start = os.path.join(folder, "torch.safetensors")
            save_file(network.state_dict(), start)
            double = torch_losses(copy.deepcopy(network), pixels, labels, arguments, torch.float64, FIRST)
            curves = {"Lockstep": lockstep_losses(name, start, images, folder, arguments),
                      "PyTorch": torch_losses(network, pixels, labels, arguments),
                      "Lockstep, own initial values": lockstep_losses(name, "", images, folder, arguments)}
        print(f"{name} at {arguments.size}, {per_epoch} iterations an epoch; first losses compared with fp64: " +
              "; ".join(f"{what} " + ", ".join(f"{abs(a / b - 1):.1e}" for a, b in zip(curves[what], double))
                        for what in ("Lockstep", "PyTorch")))
        for what, losses in curves.items():
            begin, end = statistics.mean(losses[:4]), statistics.mean(losses[-4:])
            print(f"  {what:<29} {curve(losses, per_epoch)}; last four {end:.3f}, "
                  f"{'learns' if end < 0.75 * begin else 'does not learn'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
