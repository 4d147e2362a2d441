#!/usr/bin/env python3
"""Time to fine-tune torchvision's ResNet-18 on 500 images at 224 x 224, frozen up to its last stage.

usage: fine_tuning.py PATH_OF_LOCKSTEP [--threads N] [--images N]

The weights are random ones of torchvision's network, in a safetensors file with PyTorch's names. The images
are noise with a shape for each of ten classes, as JPEG files that this script writes. Five epochs of 15
mini-batches of 32; SGD with momentum; all batch normalizations keep their statistics. Times are those of
whole programs, with reading and decoding, and for PyTorch without its import. Needs PyTorch, torchvision and
safetensors.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import numpy
import torch
import torchvision
from PIL import Image
from safetensors.torch import load_file, save_file

EPOCHS, BATCH, CLASSES = 5, 32, 10
FROZEN = ["conv1", "bn1", "layer1*", "layer2*", "layer3*"]


def layers():
    """torchvision's ResNet-18 as a job file's layers, with its names."""
    out = []

    def norm(name, before):
        out.append(f'{{ type = "batch_normalization", name = "{name}", inputs = ["{before}"] }}')

    def convolution(name, before, filters, kernel, stride):
        out.append(f'{{ type = "convolution2d", name = "{name}", inputs = ["{before}"], filters = {filters}, '
                   f'kernel = {kernel}, stride = {stride}, padding = {kernel // 2}, bias = false }}')

    convolution("conv1", "input", 64, 7, 2)
    norm("bn1", "conv1")
    out.append('{ type = "relu", name = "relu" }')
    out.append('{ type = "max_pooling2d", name = "maxpool", pool = 3, stride = 2, padding = 1 }')
    last = "maxpool"
    for stage in range(1, 5):
        for block in range(2):
            name, filters = f"layer{stage}.{block}", 32 << stage
            stride = 2 if stage > 1 and block == 0 else 1
            convolution(name + ".conv1", last, filters, 3, stride)
            norm(name + ".bn1", name + ".conv1")
            out.append(f'{{ type = "relu", name = "{name}.relu1" }}')
            convolution(name + ".conv2", name + ".relu1", filters, 3, 1)
            norm(name + ".bn2", name + ".conv2")
            shortcut = last
            if stride == 2:
                convolution(name + ".downsample.0", last, filters, 1, 2)
                norm(name + ".downsample.1", name + ".downsample.0")
                shortcut = name + ".downsample.1"
            out.append(f'{{ type = "addition", name = "{name}.sum", inputs = ["{name}.bn2", "{shortcut}"] }}')
            out.append(f'{{ type = "relu", name = "{name}.relu2" }}')
            last = name + ".relu2"
    out.append('{ type = "average_pooling2d", name = "avgpool", pool = 7, stride = 7 }')
    out.append(f'{{ type = "fully_connected", name = "fc", units = {CLASSES} }}')
    out.append('{ type = "softmax", name = "softmax" }')
    return ",\n  ".join(out)


def write_images(folder, count):
    draw = numpy.random.default_rng(1)
    rows, columns = numpy.mgrid[0:224, 0:224]
    for i in range(count):
        kind = i % CLASSES
        pixels = draw.integers(0, 128, (224, 224, 3))
        row, column = draw.integers(60, 164, 2)
        size = 15 + 4 * kind
        inside = (numpy.abs(rows - row) < size) & (numpy.abs(columns - column) < size)
        if kind % 2:
            inside = (rows - row) ** 2 + (columns - column) ** 2 < size ** 2
        pixels[inside] += 25 * (kind % 5 + 1)
        path = folder / str(kind) / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(numpy.uint8)).save(path, quality=92)


def job(threads):
    return f"""[data]
train = "images"
[network]
from = "resnet18.safetensors"
keep_statistics = ["bn1", "layer*"]
input = {{ height = 224, width = 224, channels = 3, normalization = "z-score" }}
layers = [
  {layers()}
]
[training]
freeze = {json.dumps(FROZEN)}
mini_batch_size = {BATCH}
max_epochs = {EPOCHS}
initial_learning_rate = 0.001
threads = {threads}
"""


def torch_seconds(folder, threads, kept):
    """Trains with PyTorch; `kept`: results of the frozen layers are computed once."""
    torch.set_num_threads(threads)
    start = time.perf_counter()
    network = torchvision.models.resnet18()
    network.load_state_dict(load_file(folder / "resnet18.safetensors"))
    network.fc = torch.nn.Linear(512, CLASSES)
    network.eval()  # batch normalizations keep their statistics
    for name, values in network.named_parameters():
        values.requires_grad_(name.startswith(("layer4", "fc")))
    network = network.to(memory_format=torch.channels_last)
    below = torch.nn.Sequential(network.conv1, network.bn1, network.relu, network.maxpool, network.layer1,
                                network.layer2, network.layer3)
    rest = torch.nn.Sequential(network.layer4, network.avgpool, torch.nn.Flatten(), network.fc)
    change = torchvision.transforms.Compose([
        torchvision.transforms.ToTensor(),
        torchvision.transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    images = torchvision.datasets.ImageFolder(folder / "images", change)
    decoded = [images[i] for i in range(len(images))]  # in memory, decoded once
    x = torch.stack([image for image, _ in decoded]).contiguous(memory_format=torch.channels_last)
    y = torch.tensor([label for _, label in decoded])
    if kept:
        with torch.no_grad():
            x = torch.cat([below(part) for part in x.split(BATCH)])
    solver = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.001, momentum=0.9)
    for _ in range(EPOCHS):
        order = torch.randperm(len(y))
        for first in range(0, len(y) - BATCH + 1, BATCH):
            some = order[first:first + BATCH]
            solver.zero_grad()
            scores = rest(x[some]) if kept else network(x[some])
            torch.nn.functional.cross_entropy(scores, y[some]).backward()
            solver.step()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--images", type=int, default=500)
    chosen = parser.parse_args()
    command = str(pathlib.Path(chosen.command).resolve())
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        torch.manual_seed(1)
        save_file(torchvision.models.resnet18().state_dict(), folder / "resnet18.safetensors")
        write_images(folder / "images", chosen.images)
        (folder / "job.toml").write_text(job(chosen.threads), encoding="utf-8")
        digests = set()
        for keep in ("auto", "never"):
            start = time.perf_counter()
            done = subprocess.run([command, "train", "job.toml", "--out", keep, "--json", "--set",
                                   f"keep_features={keep}"], cwd=folder, check=True, capture_output=True, text=True)
            seconds = time.perf_counter() - start
            digests.add(json.loads(done.stdout)["digest"])
            told = [line for line in done.stderr.splitlines() if "frozen layers" in line]
            print(f"Lockstep, keep_features = {keep}: {seconds:.1f} s", *told, sep="; ", flush=True)
        print("the same digest" if len(digests) == 1 else "DIGESTS DIFFER")
        for kept in (True, False):
            print(f"PyTorch {torch.__version__}, {'results kept' if kept else 'frozen'}: "
                  f"{torch_seconds(folder, chosen.threads, kept):.1f} s", flush=True)


if __name__ == "__main__":
    main()
