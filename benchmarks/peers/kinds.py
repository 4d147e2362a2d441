#!/usr/bin/python3
"""Speed of training networks of many kinds beside PyTorch, in images per second of whole steps.

Lockstep: real trainings by the command on images in memory, with shuffling, metrics and receipts;
the median of the iterations' seconds in its own log. PyTorch: forward, loss, backward and SGD with
momentum on random data in memory; the best of NCHW, channels-last and, from version 2 on, compiled.
Short runs of both alternate; the figures are medians over the rounds. Both use two threads. MiB:
what a process has had resident at most, with NCHW alone in PyTorch's.

With --avx2 both are limited to AVX2: by LOCKSTEP_MAX_CPU_ISA, and by ONEDNN_MAX_CPU_ISA,
ATEN_CPU_CAPABILITY and MKL_ENABLE_INSTRUCTIONS for PyTorch. Lockstep's loops of single elements
(activations, pooling, normalization of groups, updates) keep AVX-512. --beside COMMAND runs another
build of Lockstep in between.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import lockstep_runs

sys.path.append(os.path.join(lockstep_runs.TOP, "tests", "peers"))

THREADS = 2
WARM_UP = 3  # iterations of every run that do not count


class Layers(list):
    """Layers of a job; each call appends one and returns its name."""

    def add(self, kind, *inputs, **fields):
        layer = {"name": f"{kind}_{len(self)}", "type": kind, **fields}
        if inputs:
            layer["inputs"] = list(inputs)
        self.append(layer)
        return layer["name"]

    def convolution(self, filters, kernel, after=(), **fields):
        inputs = [after] if after else []
        if kernel > 1 and "stride" not in fields:
            fields["padding"] = "same"
        return self.add("convolution2d", *inputs, filters=filters, kernel=kernel, **fields)

    def normalize_and_rectify(self):
        self.add("batch_normalization")
        self.add("relu")

    def classes(self, count=10):
        self.add("fully_connected", units=count)
        self.add("softmax")
        return list(self)


def plain(width, depth):
    n = Layers()
    for level in range(3):
        for _ in range(depth):
            n.convolution(width << level, 3)
            n.normalize_and_rectify()
        if level < 2:
            n.add("max_pooling2d", pool=2, stride=2)
        else:
            n.add("average_pooling2d", pool=8, stride=8)
    return n.classes()


def depthwise():
    n = Layers()
    n.convolution(32, 3)
    channels = 32
    for filters, stride in ((64, 1), (128, 2), (128, 1), (256, 2)):
        n.add("convolution2d", filters=channels, kernel=3, groups=channels, padding=1, stride=stride)
        n.normalize_and_rectify()
        n.convolution(filters, 1)
        n.normalize_and_rectify()
        channels = filters
    n.add("global_average_pooling2d")
    return n.classes()


def dense(width, depth):
    n = Layers()
    for _ in range(depth):
        n.add("fully_connected", units=width)
        n.add("relu")
    return n.classes()


def lenet():
    n = Layers()
    n.convolution(6, 5)
    n.add("tanh")
    n.add("average_pooling2d", pool=2, stride=2)
    n.add("convolution2d", filters=16, kernel=5)
    n.add("tanh")
    n.add("average_pooling2d", pool=2, stride=2)
    for units in (120, 84):
        n.add("fully_connected", units=units)
        n.add("tanh")
    return n.classes()


def inception():
    n = Layers()
    n.convolution(32, 3)
    before = n.add("relu")
    for block in range(2):
        ends = [n.convolution(32, 1, before)]
        for narrow, wide, kernel in ((32, 64, 3), (16, 32, 5)):
            n.convolution(narrow, 1, before)
            n.add("relu")
            ends.append(n.convolution(wide, kernel))
        n.add("max_pooling2d", before, pool=3, stride=1, padding=1)
        ends.append(n.convolution(32, 1))
        n.add("concatenation", *ends)
        before = n.add("relu")
        if block == 0:
            before = n.add("max_pooling2d", pool=2, stride=2)
    n.add("global_average_pooling2d")
    return n.classes()


def unet():
    n = Layers()

    def two(filters):
        for _ in range(2):
            n.convolution(filters, 3)
            end = n.add("relu")
        return end

    kept = []
    for filters in (16, 32):
        kept.append(two(filters))
        n.add("max_pooling2d", pool=2, stride=2)
    two(64)
    for filters in (32, 16):
        up = n.add("transposed_convolution2d", filters=filters, kernel=2, stride=2)
        n.add("concatenation", up, kept.pop())
        two(filters)
    n.convolution(3, 1)
    return list(n)


def convnext():
    n = Layers()
    before = n.convolution(64, 4, stride=4)
    for _ in range(3):
        n.add("convolution2d", filters=64, kernel=7, groups=64, padding=3)
        n.add("layer_normalization")
        n.convolution(256, 1)
        n.add("gelu")
        end = n.convolution(64, 1)
        before = n.add("addition", end, before)
    n.add("global_average_pooling2d")
    return n.classes()


# Title, height and width of images, channels, mini-batch, iterations of a run, layers.
NETWORKS = {
    "s3": ("S3 depth 1", 32, 3, 128, 60, plain(16, 1)),
    "s3-depth4": ("S3 depth 4", 32, 3, 128, 40, plain(8, 4)),
    "s1": ("S1", 32, 3, 128, 12, plain(32, 4)),
    "depthwise": ("depthwise + 1x1", 32, 3, 128, 20, depthwise()),
    "dense": ("four dense layers of 1,024", 32, 1, 128, 60, dense(1024, 4)),
    "small-dense": ("two dense layers of 64", 8, 1, 64, 400, dense(64, 2)),
    "lenet": ("LeNet: 5x5, tanh", 32, 1, 128, 60, lenet()),
    "inception": ("inception: 1x1, 3x3, 5x5, concatenation", 32, 3, 128, 14, inception()),
    "unet": ("U-Net at 64", 64, 3, 16, 14, unet()),
    "unet-huber": ("U-Net at 64, Huber loss", 64, 3, 16, 14, unet()),
    "unet-own": ("U-Net at 64, loss of ops", 64, 3, 16, 14, unet()),
    "convnext": ("ConvNeXt blocks at 64", 64, 3, 64, 14, convnext()),
}


# Losses of images, of Lockstep and PyTorch; all others are of classes.
LOSSES = {
    "unet": ("mean_squared_error", "MSELoss"),
    "unet-huber": ("huber(output, target, delta=0.1)", "HuberLoss"),
    "unet-own": ("mean(square(output - target))", "MSELoss"),
}


def job_of(name, images, iterations):
    _, size, channels, batch, _, layers = NETWORKS[name]
    image = {"height": size, "width": size, "channels": channels, "normalization": "zero-center"}
    job = {"data": {"train": images, "resize": True},
           "network": {"input": image, "layers": layers},
           "training": {"mini_batch_size": batch, "max_iterations": iterations, "max_epochs": 10000,
                        "initial_learning_rate": 0.001, "validation_frequency": 10**6}}
    if name in LOSSES:
        job["training"]["shard_size"] = 8  # two shards for two threads
        job["data"]["targets"] = "inputs"
        job["network"]["loss"] = LOSSES[name][0]
        job["training"]["initial_learning_rate"] = 1e-6  # the loss adds up all pixels
    return job


def speed_of_lockstep(command, name, images, environment, more):
    """Images per second, the network as its run describes it, and the peak memory in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        job, out = os.path.join(folder, "job.json"), os.path.join(folder, "run")
        with open(job, "w") as file:
            json.dump(job_of(name, images, NETWORKS[name][4] + WARM_UP), file)
        settings = [word for setting in more for word in ("--set", setting)]
        _, peak = lockstep_runs.run_measured(
            [command, "train", job, "--out", out, "--quiet", "--threads", str(THREADS), *settings],
            environment=environment)
        log = lockstep_runs.read_log(out)[0][WARM_UP:]
        with open(os.path.join(out, "job.json")) as file:
            network = json.load(file)["network"]
    rate = NETWORKS[name][3] / statistics.median(entry["seconds"] for entry in log)
    return rate, network, peak


def torch_step(name, network, seconds):
    """Measures PyTorch in this process. Prints the images per second of each way so far as JSON."""
    import torch
    from torch import nn

    from job_network import JobNetwork

    torch.set_num_threads(THREADS)
    _, size, channels, batch, _, _ = NETWORKS[name]
    torch.manual_seed(0)
    of_images = name in LOSSES
    loss = getattr(nn, LOSSES[name][1] if of_images else "CrossEntropyLoss")(
        **({"delta": 0.1} if name == "unet-huber" else {}))
    ways = {"NCHW": (torch.contiguous_format, False), "channels-last": (torch.channels_last, False)}
    if hasattr(torch, "compile"):
        ways["compiled"] = (torch.channels_last, True)
    rates, peaks = {}, []
    for way, (layout, compiled) in ways.items():
        model = JobNetwork(network).to(memory_format=layout).train()
        if compiled:
            model, loss = torch.compile(model), torch.compile(loss)
        x = torch.randn(batch, channels, size, size)
        y = x.clone() if of_images else torch.randint(10, (batch,))
        x = x.contiguous(memory_format=layout)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
        times, begin = [], None
        while begin is None or len(times) < WARM_UP + 3 or time.perf_counter() - begin < seconds:
            before = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            loss(model(x), y).backward()
            optimizer.step()
            times.append(time.perf_counter() - before)
            if len(times) == WARM_UP:
                begin = time.perf_counter()
        rates[way] = batch / statistics.median(times[WARM_UP:])
        # Of this way and those before it.
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        # After each way, because a later one may end this process.
        print(json.dumps({"version": torch.__version__, "rates": rates, "peak": peaks[0]}),
              flush=True)


def speed_of_torch(python, name, network, environment, seconds):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(network, file)
        file.flush()
        done = subprocess.run([python, os.path.abspath(__file__), "--torch-step", name, file.name,
                               "--seconds", str(seconds)], capture_output=True, text=True,
                              env={**os.environ, **environment}, check=False)
    lines = done.stdout.splitlines()
    if not lines:
        raise SystemExit(f"error: {name}: {done.stderr[-2000:]}")
    result = json.loads(lines[-1])
    if done.returncode != 0:
        print(f"{name}: PyTorch {result['version']} ended with {done.returncode} after "
              f"{', '.join(result['rates'])}: {done.stderr.splitlines()[-1]}", file=sys.stderr)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--beside", metavar="COMMAND", help="another build of it")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"), metavar="FOLDER",
                        help="holds cifar10/train/<class>/ (default: $LOCKSTEP_TEST_DATA)")
    parser.add_argument("--network", choices=list(NETWORKS), action="append",
                        help="only this one; repeat for more")
    parser.add_argument("--avx2", action="store_true", help="as on a processor without AVX-512")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="of each short run of PyTorch")
    parser.add_argument("--python", default="/usr/bin/python3", help="a Python that has PyTorch")
    parser.add_argument("--no-torch", action="store_true", help="Lockstep alone")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="changes Lockstep's jobs, as precision=bf16; repeat for more")
    parser.add_argument("--json", metavar="FILE", help="where the figures go as JSON")
    parser.add_argument("--torch-step", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.torch_step:
        name, file = arguments.torch_step
        with open(file) as network:
            return torch_step(name, json.load(network), arguments.seconds)

    ours_environment = lockstep_runs.LIMITED if arguments.avx2 else {}
    theirs_environment = lockstep_runs.TORCH_LIMITED if arguments.avx2 else {}
    machine = lockstep_runs.machine()
    report = {"machine": machine, "avx2": arguments.avx2, "networks": {}}
    rows, ratios = [], []
    with tempfile.TemporaryDirectory() as images:
        report["data"] = lockstep_runs.gather_images(arguments.data, images)
        print(f"{machine['processor']}, {machine['cores']} cores, load {machine['load_before']:.1f} "
              f"before{', limited to AVX2' if arguments.avx2 else ''}; {report['data']}")
        for name in arguments.network or NETWORKS:
            ours, beside, theirs, version, memory = [], [], {}, "", {}
            for _ in range(arguments.rounds):
                speed, network, peak = speed_of_lockstep(arguments.command, name, images,
                                                         ours_environment, arguments.set)
                ours.append(speed)
                memory.setdefault("MiB", []).append(peak)
                if arguments.beside:
                    beside.append(speed_of_lockstep(arguments.beside, name, images,
                                                    ours_environment, arguments.set)[0])
                if not arguments.no_torch:
                    done = speed_of_torch(arguments.python, name, network, theirs_environment,
                                          arguments.seconds)
                    version = done["version"]
                    memory.setdefault("its MiB", []).append(done["peak"])
                    for way, rate in done["rates"].items():
                        theirs.setdefault(way, []).append(rate)
            row = {"network": NETWORKS[name][0], "Lockstep": statistics.median(ours)}
            if beside:
                row["the other build"] = statistics.median(beside)
                row["Lockstep / other"] = statistics.median(a / b for a, b in zip(ours, beside))
            if theirs:
                best = max(theirs, key=lambda way: statistics.median(theirs[way]))
                row[f"PyTorch {version.split('+')[0]}"] = statistics.median(theirs[best])
                row["its way"] = best
                row["ratio"] = statistics.median(a / b for a, b in zip(ours, theirs[best]))
                ratios.append(row["ratio"])
            row |= {of: statistics.median(peaks) for of, peaks in memory.items()}
            report["networks"][name] = {**row, "ours": ours, "beside": beside, "theirs": theirs}
            rows.append(row)
            print(f"{name}: {row}", file=sys.stderr, flush=True)
    header = list(rows[0])
    lockstep_runs.print_table(header, [[text_of(row.get(key, "")) for key in header] for row in rows])
    if ratios:
        report["geometric_mean"] = statistics.geometric_mean(ratios)
        print(f"geometric mean {report['geometric_mean']:.2f}, least {min(ratios):.2f}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=2)
            file.write("\n")
    return 0


def text_of(value):
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value >= 50 else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
