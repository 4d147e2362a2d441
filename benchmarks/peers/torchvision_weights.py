#!/usr/bin/env python3
"""Scores of torchvision's networks, and of Lockstep's with the same tensors.

usage: torchvision_weights.py PATH_OF_LOCKSTEP [ARCHITECTURE...]

Needs torchvision and safetensors. All tensors are random, also those of batch normalization.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file

CLASSES = 4
NAMES = {"resnet18": "resnet18", "resnet34": "resnet34", "resnet50": "resnet50", "mobilenetv2": "mobilenet_v2",
         "efficientnet_b0": "efficientnet_b0", "convnext_tiny": "convnext_tiny"}


def random_network(architecture):
    torch.manual_seed(1)
    network = getattr(torchvision.models, NAMES[architecture])(num_classes=CLASSES)
    for name, values in [*network.named_buffers(), *network.named_parameters()]:
        if name.endswith("running_mean"):
            values.normal_(0, 0.1)
        elif name.endswith("running_var"):
            values.uniform_(0.5, 1.5)
        elif values.dim() == 1:  # scales and shifts of batch normalization, and the last bias
            values.data.uniform_(0.5, 1.5) if name.endswith("weight") else values.data.normal_(0, 0.1)
    return network.eval()


def compare(command, architecture):
    network = random_network(architecture)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        save_file(network.state_dict(), folder / "torch.safetensors")
        images = numpy.random.RandomState(0).randint(0, 256, (CLASSES, 224, 224, 3)).astype("uint8")
        for i, pixels in enumerate(images):
            (folder / f"images/{i}").mkdir(parents=True)
            Image.fromarray(pixels).save(folder / f"images/{i}/{i}.png")

        def run(*arguments):
            return subprocess.run([command, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout

        job = run("architecture", architecture, "--classes", str(CLASSES))
        described = job[job.index("[network]"):job.index("[training]")]
        described = described.replace("[network]", '[network]\nfrom = "torch.safetensors"\nkeep_statistics = ["*"]')
        # A step of this size changes no value.
        (folder / "job.toml").write_text('[data]\ntrain = "images"\n' + described +
                                         "[training]\nmini_batch_size = 4\ninitial_learning_rate = 1e-30\n")
        run("train", "job.toml", "--out", "run", "--quiet", "--set", "max_iterations=1")
        run("predict", "run", *(f"images/{i}/{i}.png" for i in range(CLASSES)), "--arrays", "--out", "scores")
        got = numpy.stack([numpy.load(folder / f"scores/{i}.npy").ravel() for i in range(CLASSES)])
    x = torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255
    mean, deviation = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    x = (x - torch.tensor(mean)[:, None, None]) / torch.tensor(deviation)[:, None, None]
    with torch.no_grad():
        right = torch.softmax(network.double()(x), 1).numpy()
    print(f"{architecture}: error of {CLASSES} images by norm: {numpy.linalg.norm(got - right) / numpy.linalg.norm(right):.2g}")


def main():
    command = str(pathlib.Path(sys.argv[1]).resolve())
    for architecture in sys.argv[2:] or NAMES:
        compare(command, architecture)


if __name__ == "__main__":
    main()
