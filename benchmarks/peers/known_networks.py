#!/usr/bin/python3
"""Training speed of known networks beside torchvision's, in images per second.

large_images.py explains how both are measured. Here PyTorch trains torchvision's network of the same
name, in fp32. The sizes of images and mini-batches depend on the network. The U-Net, which
torchvision does not have, is made from the run's description, and learns classes of pixels.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import large_images
import lockstep_runs

sys.path.append(os.path.join(lockstep_runs.TOP, "tests", "apps"))
import label_images  # noqa: E402

# Rows and columns of the images, and the mini-batch, which Lockstep cuts into a shard for each thread
# at least.
NETWORKS = {
    "resnet18": (224, 32),
    "resnet50": (224, 16),
    "mobilenetv2": (128, 32),
    "efficientnet_b0": (128, 32),
    "convnext_tiny": (64, 32),
    "unet": (128, 16),
}
TORCHVISION = {"mobilenetv2": "mobilenet_v2"}
OF_PIXELS = ("unet",)  # networks that give a class to each pixel


def torch_network(name, described):
    if name not in OF_PIXELS:
        import torchvision
        return getattr(torchvision.models, TORCHVISION.get(name, name))(num_classes=10)
    sys.path.append(os.path.join(lockstep_runs.TOP, "tests", "peers"))
    from job_network import JobNetwork
    with open(described) as file:
        return JobNetwork(json.load(file))


def torch_step(name, way, mini_batch, size, steps, described):
    """In a process with PyTorch: prints its version and the seconds of a step."""
    import torch
    from torch import nn

    torch.set_num_threads(large_images.THREADS)
    torch.manual_seed(0)
    layout = torch.contiguous_format if way == "NCHW" else torch.channels_last
    model = torch_network(name, described).to(memory_format=layout).train()
    x = torch.randn(mini_batch, 3, size, size).contiguous(memory_format=layout)
    y = torch.randint(10, (mini_batch, size, size) if name in OF_PIXELS else (mini_batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()

    def value():
        return loss(model(x), y)
    if way == "compiled":
        value = torch.compile(value)
    times = []
    while len(times) < large_images.WARM_UP + steps:
        before = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        value().backward()
        optimizer.step()
        times.append(time.perf_counter() - before)
    print(json.dumps([torch.__version__, statistics.median(times[large_images.WARM_UP:])]))


def write_masks(images, masks):
    """A class from 0 to 9 for each pixel of each image, as a PNG file of the same name."""
    for folder, _, names in os.walk(images):
        place = os.path.join(masks, os.path.relpath(folder, images))
        os.makedirs(place, exist_ok=True)
        for name in names:
            dice = random.Random(name)
            rows = [[dice.randrange(10) for _ in range(32)] for _ in range(32)]
            with open(os.path.join(place, os.path.splitext(name)[0] + ".png"), "wb") as file:
                file.write(label_images.png(rows))


def measure(arguments, name):
    """Images per second, by way."""
    size, mini_batch = NETWORKS[name]
    limits = lockstep_runs.TORCH_LIMITED if arguments.avx2 else {}
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        images = os.path.join(folder, "images")
        os.mkdir(images)
        lockstep_runs.gather_images(None, images, images=10 * mini_batch)
        # PyTorch's solver, whatever the job has.
        settings = [f"shard_size={min(16, mini_batch // large_images.THREADS)}", "solver=sgdm",
                    "momentum=0.9", "average_decay=0"]
        if name in OF_PIXELS:
            masks = os.path.join(folder, "masks")
            write_masks(images, masks)
            settings.append(f"data.targets={masks}")
        for _ in range(arguments.rounds):
            seconds = large_images.seconds_of_lockstep(
                arguments.command, name, images, mini_batch, arguments.steps, "fp32", folder,
                ["--height", str(size), "--width", str(size)], settings)
            times.setdefault("Lockstep", []).append(seconds)
            for way in arguments.way or large_images.WAYS:
                found = large_images.seconds_of_torch(
                    arguments.python, os.path.abspath(__file__), way,
                    [name, mini_batch, size, arguments.steps,
                     os.path.join(folder, "network.json")], limits)
                if found:
                    times.setdefault(way, []).append(found[1])
    return {way: mini_batch / statistics.median(all_of) for way, all_of in times.items()}


def main():
    if sys.argv[1:2] == ["--torch-step"]:
        way, name, mini_batch, size, steps, described = sys.argv[2:]
        return torch_step(name, way, int(mini_batch), int(size), int(steps), described)
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--python", default=sys.executable,
                        help="a Python with PyTorch and torchvision")
    parser.add_argument("--network", choices=NETWORKS, action="append", help="only this one; "
                        "repeat for several")
    parser.add_argument("--way", choices=large_images.WAYS, action="append",
                        help="only this way of PyTorch")
    parser.add_argument("--avx2", action="store_true", help="as on a processor without AVX-512")
    parser.add_argument("--steps", type=int, default=5, help="of each run that count")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.avx2:
        os.environ.update(lockstep_runs.LIMITED)
    print("{processor}, {cores} cores, load {load_before:.1f} before; PyTorch, torchvision: ".format(
        **lockstep_runs.machine()) + subprocess.run(
            [arguments.python, "-c", "import torch, torchvision as v; "
             "print(torch.__version__, v.__version__)"],
            capture_output=True, text=True, check=True).stdout.strip())
    rows, ratios = [], []
    for name in arguments.network or NETWORKS:
        rates = measure(arguments, name)
        best = max(rate for way, rate in rates.items() if way != "Lockstep")
        ratios.append(rates["Lockstep"] / best)
        size, mini_batch = NETWORKS[name]
        rows.append([f"{name} at {size}, mini-batch {mini_batch}"] +
                    [f"{rates[way]:,.1f}" if way in rates else "-"
                     for way in ("Lockstep", *large_images.WAYS)] + [f"{ratios[-1]:.2f}"])
        print(f"{name}: {ratios[-1]:.2f}", file=sys.stderr)
    lockstep_runs.print_table(["images per second", "Lockstep", *large_images.WAYS, "ratio to the best"],
                              rows)
    print(f"geometric mean of the ratios: {math.exp(statistics.fmean(map(math.log, ratios))):.2f}")


if __name__ == "__main__":
    main()
