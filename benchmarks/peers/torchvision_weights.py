#!/usr/bin/env python3
"""Scores of networks of torchvision and timm, and of Lockstep's with the same tensors.

usage: torchvision_weights.py PATH_OF_LOCKSTEP [ARCHITECTURE...]

Needs torchvision, timm and safetensors. All tensors are random, also those of batch normalization.
The last layer is scaled so that scores differ and none is nearly 1. Lockstep reads torchvision's
tensors with their names. The transformer has timm's tensors under Lockstep's names, and averages its
patches instead of having a class token. The error is the distance from the scores in fp64, by norm.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import timm
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file

CLASSES = 4
NAMES = {"resnet18": "resnet18", "resnet34": "resnet34", "resnet50": "resnet50", "mobilenetv2": "mobilenet_v2",
         "efficientnet_b0": "efficientnet_b0", "convnext_tiny": "convnext_tiny", "vit_tiny": "vit_tiny_patch16_224"}
MEAN, DEVIATION = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
# Of timm's block, and of the layer transformer_block.
IN_BLOCK = {"norm1.weight": "attention_norm_scale", "norm1.bias": "attention_norm_shift",
            "attn.qkv.weight": "attention_in_weights", "attn.qkv.bias": "attention_in_bias",
            "attn.proj.weight": "attention_out_weights", "attn.proj.bias": "attention_out_bias",
            "norm2.weight": "feed_forward_norm_scale", "norm2.bias": "feed_forward_norm_shift",
            "mlp.fc1.weight": "expand_weights", "mlp.fc1.bias": "expand_bias",
            "mlp.fc2.weight": "contract_weights", "mlp.fc2.bias": "contract_bias"}
AROUND_BLOCKS = {"patch_embed.proj.weight": ("convolution2d", "weights"),
                 "patch_embed.proj.bias": ("convolution2d", "bias"), "pos_embed": ("position_embedding", "weights"),
                 "fc_norm.weight": ("layer_normalization", "scale"), "fc_norm.bias": ("layer_normalization", "shift"),
                 "head.weight": ("fully_connected", "weights"), "head.bias": ("fully_connected", "bias")}


def random_network(architecture):
    torch.manual_seed(1)
    if architecture == "vit_tiny":
        network = timm.create_model(NAMES[architecture], num_classes=CLASSES, class_token=False, global_pool="avg")
    else:
        network = getattr(torchvision.models, NAMES[architecture])(num_classes=CLASSES)
    for name, values in [*network.named_buffers(), *network.named_parameters()]:
        if name.endswith("running_mean"):
            values.normal_(0, 0.1)
        elif name.endswith("running_var"):
            values.uniform_(0.5, 1.5)
        elif name.endswith("layer_scale"):  # a millionth otherwise, which would hide the block
            values.data.uniform_(0.1, 0.5)
        elif values.dim() == 1:  # scales and shifts of normalizations, and the last bias
            values.data.uniform_(0.5, 1.5) if name.endswith("weight") else values.data.normal_(0, 0.1)
    return network.eval()


def make_images():
    """N x 224 x 224 x 3 bytes: squares of 28 x 28 in random colors, with noise."""
    draw = numpy.random.RandomState(0)
    squares = draw.randint(30, 226, (CLASSES, 8, 8, 3)).repeat(28, 1).repeat(28, 2)
    return (squares + draw.randint(-30, 30, squares.shape)).astype("uint8")


def scale_last_layer(network, x):
    """Gives the network's results, without the last bias, a deviation of 1."""
    last = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)][-1]
    with torch.no_grad():
        last.weight /= (network(x) - last.bias).std()


def transformer_values(values, layers):
    """timm's tensors under the names of Lockstep's layers, in their order."""
    of_kind = {}
    for layer in layers:
        of_kind.setdefault(layer["type"], []).append(layer["name"])
    named = {"input.offset": 255 * torch.tensor(MEAN), "input.factor": 1 / (255 * torch.tensor(DEVIATION))}
    for name, tensor in values.items():
        if name.startswith("blocks."):
            _, number, rest = name.split(".", 2)
            named[of_kind["transformer_block"][int(number)] + "." + IN_BLOCK[rest]] = tensor
        else:
            kind, value = AROUND_BLOCKS[name]
            named[of_kind[kind][0] + "." + value] = tensor[0] if name == "pos_embed" else tensor
    return {name: tensor.contiguous() for name, tensor in named.items()}


def compare(command, architecture):
    network, images = random_network(architecture), make_images()
    x = torch.from_numpy(images).permute(0, 3, 1, 2)
    x = (x.double() / 255 - torch.tensor(MEAN)[:, None, None]) / torch.tensor(DEVIATION)[:, None, None]
    scale_last_layer(network, x.float())
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for i, pixels in enumerate(images):
            (folder / f"images/{i}").mkdir(parents=True)
            Image.fromarray(pixels).save(folder / f"images/{i}/{i}.png")

        def run(*arguments):
            done = subprocess.run([command, *arguments], cwd=folder, check=False, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(done.stderr)
            return done

        job = run("architecture", architecture, "--classes", str(CLASSES)).stdout
        described = job[job.index("[network]"):job.index("[training]")]

        def train(out, start):
            # A step of this size changes no value.
            (folder / "job.toml").write_text(
                '[data]\ntrain = "images"\n' + described.replace("[network]", "[network]\n" + start) +
                "[training]\nmini_batch_size = 4\ninitial_learning_rate = 1e-30\n")
            return run("train", "job.toml", "--out", out, "--set", "max_iterations=1").stderr

        values = network.state_dict()
        if architecture == "vit_tiny":
            train("own", "")
            layers = json.loads((folder / "own/job.json").read_text())["network"]["layers"]
            values = transformer_values(values, layers)
        save_file(values, folder / "torch.safetensors")
        told = train("run", 'from = "torch.safetensors"\nkeep_statistics = ["*"]')
        if "; new: " in told or "; not taken: " in told:
            sys.exit(f"{architecture}: not all tensors are taken\n{told}")
        run("predict", "run", *(f"images/{i}/{i}.png" for i in range(CLASSES)), "--arrays", "--out", "scores")
        got = numpy.stack([numpy.load(folder / f"scores/{i}.npy").ravel() for i in range(CLASSES)])

    def scores(network, x):
        with torch.no_grad():
            return torch.softmax(network(x), 1).double().numpy()

    def error(found):
        return numpy.linalg.norm(found - right) / numpy.linalg.norm(right)

    single = scores(network, x.float())
    right = scores(network.double(), x)
    print(f"{architecture}: error of {CLASSES} images by norm: Lockstep {error(got):.2g}, PyTorch in fp32 "
          f"{error(single):.2g}; scores from {right.min():.3f} to {right.max():.3f}", flush=True)


def main():
    command = str(pathlib.Path(sys.argv[1]).resolve())
    for architecture in sys.argv[2:] or NAMES:
        compare(command, architecture)


if __name__ == "__main__":
    main()
