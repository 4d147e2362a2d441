#!/usr/bin/env python3
"""Accuracy of a small ResNet on images of CIFAR-10 in Lockstep and PyTorch, with the same recipe.

Cases:
  scratch-32   from nothing, all ten classes
  scratch-64   the same with images enlarged to 64 x 64, by a first convolution of stride 2
  frozen       PyTorch trains a network on five of the classes and writes its tensors as safetensors;
               both fine-tune it to the other five, with a new head, frozen up to the last stage
  small-rates  the same with all layers, of which those below the head have a tenth of the rate

SGD with momentum and a rate that falls along a cosine, mirrored and shifted images, He's initial
values. Batch normalization of Lockstep runs over shards of 16, PyTorch's over the mini-batch of 64,
or over groups of `--group`. Needs PyTorch and safetensors.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time

import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import lockstep_runs
import torch_accuracy

sys.path.append(os.path.join(lockstep_runs.TOP, "tests", "peers"))
from job_network import JobNetwork  # noqa: E402

CASES = ("scratch-32", "scratch-64", "frozen", "small-rates")
BATCH, MOMENTUM, L2 = 64, 0.9, 5e-4
RATE, TUNING_RATE, BELOW = 0.05, 0.02, 0.1
FROZEN = ["stem*", "stage1*", "stage2*"]
JOB = """
[data]
train = "{train}"
test = "{test}"
resize = true
[augmentation]
reflect_x = true
translate_x = [-{shift}, {shift}]
translate_y = [-{shift}, {shift}]
[network]
{start}
input = {{ height = {size}, width = {size}, channels = 3, normalization = "z-score" }}
layers = [
{layers}]
loss = "cross_entropy"
[training]
solver = "sgdm"
initial_learning_rate = {rate}
learning_rate_schedule = "cosine"
momentum = {momentum}
l2 = {l2}
mini_batch_size = {batch}
max_epochs = {epochs}
shuffle = "every-epoch"
device = "cpu"
{more}
"""


def layers(stride, classes, head):
    """ResNet-8: a convolution and three blocks, as the layers of a job."""
    lines = []

    def normalized(name, before, filters, kernel, stride):
        lines.append(f'{{ type = "convolution2d", name = "{name}_conv", inputs = ["{before}"], '
                     f'filters = {filters}, kernel = {kernel}, stride = {stride}, padding = {kernel // 2}, '
                     'bias = false, weights_initializer = "he" }')
        lines.append(f'{{ type = "batch_normalization", name = "{name}_norm" }}')

    normalized("stem", "input", 16, 3, stride)
    lines.append('{ type = "relu", name = "stem" }')
    before = "stem"
    for stage in (1, 2, 3):
        name, filters, stride = f"stage{stage}", 8 << stage, 1 if stage == 1 else 2
        normalized(name + "_first", before, filters, 3, stride)
        lines.append(f'{{ type = "relu", name = "{name}_first" }}')
        normalized(name + "_second", name + "_first", filters, 3, 1)
        shortcut = before
        if stride == 2:
            normalized(name + "_shortcut", before, filters, 1, 2)
            shortcut = name + "_shortcut_norm"
        lines.append(f'{{ type = "addition", name = "{name}_sum", '
                     f'inputs = ["{name}_second_norm", "{shortcut}"] }}')
        lines.append(f'{{ type = "relu", name = "{name}" }}')
        before = name
    lines += ['{ type = "global_average_pooling2d" }',
              f'{{ type = "fully_connected", name = "{head}", units = {classes} }}', '{ type = "softmax" }']
    return "".join(f"  {line},\n" for line in lines)


class Images:
    """Links to images of some classes, and what PyTorch reads of them."""

    def __init__(self, source, folder, classes, per_class):
        self.folder = folder
        for name in sorted(os.listdir(source))[classes]:
            os.makedirs(os.path.join(folder, name))
            for image in sorted(os.listdir(os.path.join(source, name)))[:per_class]:
                os.symlink(os.path.abspath(os.path.join(source, name, image)), os.path.join(folder, name, image))

    def tensors(self, size):
        pixels, labels = torch_accuracy.read_folder(self.folder)
        if pixels.shape[2] == size:
            return pixels, labels
        larger = torch.empty((len(pixels), 3, size, size), dtype=torch.uint8)
        for i, image in enumerate(pixels):
            resized = Image.fromarray(image.permute(1, 2, 0).numpy()).resize((size, size), Image.BILINEAR)
            larger[i] = torch.frombuffer(bytearray(resized.tobytes()), dtype=torch.uint8).view(
                size, size, 3).permute(2, 0, 1)
        return larger, labels


def matches(name, patterns):
    return any(name.startswith(pattern.rstrip("*")) for pattern in patterns)


def initialize(model):
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


def groups_of(model, rate, head, small_rates):
    """Parameters by their rate and decay; those of two and more dimensions decay."""
    for name, values in model.named_parameters():
        if values.requires_grad:
            yield {"params": [values], "weight_decay": L2 if values.dim() > 1 else 0,
                   "lr": rate * (BELOW if small_rates and not name.startswith(head) else 1)}


def train_torch(network, images, test, options, start=None, tuning=None):
    """The trained model and its accuracy on the test images."""
    torch.manual_seed(options["seed"])
    generator = torch.Generator().manual_seed(options["seed"])

    def norm(channels, eps, momentum):
        made = torch_accuracy.GroupedNormalization(channels, eps=eps, momentum=momentum)
        made.group = options["group"]
        return made

    model = JobNetwork(network, norm)
    initialize(model)
    if start:
        model.load_state_dict({k: v for k, v in start.items() if k in model.state_dict()}, strict=False)
    frozen = FROZEN if tuning == "frozen" else []
    for name, values in model.named_parameters():
        values.requires_grad_(not matches(name, frozen))
    model = model.to(memory_format=torch.channels_last)
    x, y = images
    mean, deviation = (getattr(x.double(), what)((0, 2, 3), keepdim=True).float() for what in ("mean", "std"))
    solver = torch.optim.SGD(groups_of(model, options["rate"], "head", tuning == "small-rates"), momentum=MOMENTUM)
    per_epoch = len(x) // BATCH
    schedule = torch.optim.lr_scheduler.LambdaLR(
        solver, lambda done: (1 + math.cos(math.pi * done / (per_epoch * options["epochs"]))) / 2)
    for _ in range(options["epochs"]):
        model.train()
        for name, layer in model.named_modules():
            if matches(name, frozen):
                layer.eval()
        order = torch.randperm(len(x), generator=generator)
        for some in order[:per_epoch * BATCH].split(BATCH):
            batch = torch_accuracy.augment(x[some], generator, options["shift"]).float()
            batch = ((batch - mean) / deviation).contiguous(memory_format=torch.channels_last)
            solver.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(batch), y[some]).backward()
            solver.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        right = sum((model((a.float() - mean) / deviation).argmax(1) == b).sum().item()
                    for a, b in zip(test[0].split(500), test[1].split(500)))
    return model, right / len(test[1])


class Case:
    """The images, the job and the runs of a case."""

    def __init__(self, name, arguments, folder):
        self.name, self.arguments, self.folder = name, arguments, folder
        self.tunes = not name.startswith("scratch")
        self.size = 64 if name == "scratch-64" else 32
        self.epochs = arguments.tuning_epochs if self.tunes else arguments.epochs
        count = arguments.images // 10 if not self.tunes else arguments.tuning_images // 5
        data = os.path.join(arguments.data, "cifar10")
        classes = slice(5, 10) if self.tunes else slice(0, 10)
        self.train = Images(os.path.join(data, "train"), os.path.join(folder, "train"), classes, count)
        self.test = Images(os.path.join(data, "test"), os.path.join(folder, "test"), classes,
                           arguments.test_images // 10)
        self.start = self.begin() if self.tunes else None
        self.tensors = None

    def options(self, seed, rate, epochs):
        return {"seed": seed, "rate": rate, "epochs": epochs, "group": self.arguments.group, "shift": self.size // 8}

    def begin(self):
        """A network trained on the other five classes, in a file with PyTorch's names."""
        data = os.path.join(self.arguments.data, "cifar10")
        train, test = (Images(os.path.join(data, part), os.path.join(self.folder, "before", part), slice(0, 5), most)
                       for part, most in (("train", self.arguments.images // 5),
                                                         ("test", self.arguments.test_images // 10)))
        network = self.described("classifier", train, test)
        model, accuracy = train_torch(network, train.tensors(32), test.tensors(32),
                                      self.options(0, RATE, self.arguments.epochs))
        print(f"the first network: test accuracy {100 * accuracy:.1f} % on its five classes", file=sys.stderr)
        values = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        save_file(values, os.path.join(self.folder, "begin.safetensors"))
        return values

    def job(self, head, train, test):
        start, more = "", ""
        if head == "head":
            start = 'from = "begin.safetensors"\n'
            if self.name == "frozen":
                start += f"keep_statistics = {json.dumps(FROZEN)}"
                more = f"freeze = {json.dumps(FROZEN)}"
            else:
                factors = ", ".join(f'"{p}*" = {BELOW}' for p in ("stem_", "stage*_"))
                start += f"learning_rate_factors = {{ {factors} }}"
        path = os.path.join(self.folder, head + ".toml")
        with open(path, "w") as file:
            file.write(JOB.format(
                train=train.folder, test=test.folder, shift=self.size // 8, start=start, size=self.size,
                layers=layers(self.size // 32, 10 if not self.tunes else 5, head),
                rate=TUNING_RATE if head == "head" else RATE, momentum=MOMENTUM, l2=L2, batch=BATCH,
                epochs=self.epochs, more=more))
        return path

    def described(self, head, train, test):
        """The network as a run describes it."""
        out = os.path.join(self.folder, "described-" + head)
        lockstep_runs.train(self.arguments.command, self.job(head, train, test), out, ["training.max_iterations=1"])
        with open(os.path.join(out, "job.json")) as file:
            return json.load(file)["network"]

    def of_lockstep(self, seed):
        job = self.job("head" if self.tunes else "classifier", self.train, self.test)
        result = lockstep_runs.train(self.arguments.command, job, os.path.join(self.folder, f"run{seed}"),
                                     [f"training.seed={seed}", *self.arguments.set], self.arguments.threads)
        return result["test_accuracy"]

    def of_torch(self, seed):
        if not self.tensors:
            head = "head" if self.tunes else "classifier"
            self.tensors = (self.described(head, self.train, self.test), self.train.tensors(self.size),
                            self.test.tensors(self.size))
        return train_torch(*self.tensors, self.options(seed, TUNING_RATE if self.tunes else RATE, self.epochs),
                           self.start, self.name)[1]


def measure(case, arguments):
    """Accuracies in percent by program, and seconds."""
    found = {}
    for what, run in (("Lockstep", case.of_lockstep), ("PyTorch", case.of_torch)):
        if arguments.only not in (None, what):
            continue
        begun = time.monotonic()
        found[what] = []
        for seed in arguments.seeds:
            found[what].append(100 * run(seed))
            print(f"{case.name}, {what}, seed {seed}: {found[what][-1]:.2f} %", file=sys.stderr, flush=True)
        print(f"{case.name}, {what}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return found


def row_of(name, found):
    """Means, their difference, and its standard error."""
    cells = [name] + [f"{statistics.mean(v):.2f} ({', '.join(f'{x:.1f}' for x in v)})" for v in found.values()]
    if len(found) == 2:
        means = [statistics.mean(v) for v in found.values()]
        error = math.sqrt(sum(statistics.variance(v) / len(v) for v in found.values() if len(v) > 1))
        cells += [f"{means[0] - means[1]:+.2f}", f"{error:.2f}"]
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--case", choices=CASES, action="append", help="only this one; repeat for several")
    parser.add_argument("--only", choices=("Lockstep", "PyTorch"), help="one program alone")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--images", type=int, default=5000, help="for training, of all classes or of the first five")
    parser.add_argument("--test-images", type=int, default=10000, help="of all classes; of five, half as many")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--tuning-images", type=int, default=2000)
    parser.add_argument("--tuning-epochs", type=int, default=8)
    parser.add_argument("--group", type=int, default=0,
                        help="observations that PyTorch normalizes together (0: the whole mini-batch)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change Lockstep's jobs")
    parser.add_argument("--threads", type=int, default=2)
    arguments = lockstep_runs.parse_with_data(parser, "cifar10/")
    torch.set_num_threads(arguments.threads)
    print("{processor}, {cores} cores; ".format(**lockstep_runs.machine()) + f"PyTorch {torch.__version__}")
    rows = []
    for name in arguments.case or CASES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row_of(name, measure(Case(name, arguments, folder), arguments)))
    programs = [arguments.only] if arguments.only else ["Lockstep", "PyTorch", "difference", "its error"]
    lockstep_runs.print_table(["test accuracy, %"] + programs, rows)


if __name__ == "__main__":
    main()
