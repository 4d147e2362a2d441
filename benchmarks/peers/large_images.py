#!/usr/bin/python3
"""Training speed on images of 224 x 224 beside PyTorch, in images per second.

Lockstep: a real training of a known architecture by the command, with shuffling, metrics and
receipts; the median of the iterations' seconds in its own log. PyTorch: its whole step (forward,
loss, backward, SGD with momentum) of the same network, made from the run's own description, on
random images that are in memory already: NCHW, channels-last, and compiled with channels last. Each
measurement is a process of its own, and all take turns; the figures are medians over the rounds.
Both in fp32, and in bf16 (PyTorch: by autocast) where the processor multiplies it. With --avx2 both
are limited to AVX2, as in kinds.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import lockstep_runs

THREADS = 2
WARM_UP = 2  # steps that do not count
WAYS = ("NCHW", "channels-last", "compiled")


def seconds_of_lockstep(command, architecture, images, mini_batch, steps, precision, folder,
                        options=(), settings=()):
    """Seconds of a step; leaves the network's description in `folder`. `options`: of the
    architecture; `settings`: of the job."""
    job = os.path.join(folder, "job.toml")
    with open(job, "w") as file:
        subprocess.run([command, "architecture", architecture, "--classes", "10", *options],
                       stdout=file, check=True)
    with tempfile.TemporaryDirectory() as own:
        run = os.path.join(own, "run")
        lockstep_runs.train(command, job, run, [
            f"data.train={images}", "data.validation_fraction=0", f"mini_batch_size={mini_batch}",
            f"max_iterations={WARM_UP + steps}", f"precision={precision}", *settings],
                            THREADS)
        log = lockstep_runs.read_log(run)[0][WARM_UP:]
        with open(os.path.join(run, "job.json")) as file:
            network = json.load(file)["network"]
    with open(os.path.join(folder, "network.json"), "w") as file:
        json.dump(network, file)
    return statistics.median(entry["seconds"] for entry in log)


def torch_step(network, way, mini_batch, steps, precision):
    """In a process with PyTorch: prints its version and the seconds of a step."""
    import contextlib
    import torch
    from torch import nn

    sys.path.append(os.path.join(lockstep_runs.TOP, "tests", "peers"))
    from job_network import JobNetwork

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    layout = torch.contiguous_format if way == "NCHW" else torch.channels_last
    with open(network) as file:
        model = JobNetwork(json.load(file)).to(memory_format=layout).train()
    first = model.layers[0]
    x = torch.randn(mini_batch, first["channels"], first["height"], first["width"])
    x, y = x.contiguous(memory_format=layout), torch.randint(10, (mini_batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss = nn.CrossEntropyLoss()

    def value():
        narrow = torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else None
        with narrow or contextlib.nullcontext():
            return loss(model(x), y)
    if way == "compiled":
        value = torch.compile(value)
    times = []
    while len(times) < WARM_UP + steps:
        before = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        value().backward()
        optimizer.step()
        times.append(time.perf_counter() - before)
    print(json.dumps([torch.__version__, statistics.median(times[WARM_UP:])]))


def seconds_of_torch(python, script, way, arguments, environment):
    """PyTorch's version with the way, and the seconds of a step, from a process of the script. None
    if it fails, which is told."""
    done = subprocess.run([python, script, "--torch-step", way, *map(str, arguments)],
                          capture_output=True, text=True, timeout=900,
                          env={**os.environ, **environment})
    if done.returncode != 0:
        print(f"PyTorch, {way} is left out: {done.stderr.strip().splitlines()[-1]}")
        return None
    version, seconds = json.loads(done.stdout.splitlines()[-1])
    return f"PyTorch {version.split('+')[0]}, {way}", seconds


def main():
    if sys.argv[1:2] == ["--torch-step"]:
        way, network, mini_batch, steps, precision = sys.argv[2:]
        return torch_step(network, way, int(mini_batch), int(steps), precision)
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--python", default=sys.executable, help="a Python with PyTorch")
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument("--precision", choices=("fp32", "bf16"), action="append",
                        help="only this one; repeat for both")
    parser.add_argument("--way", choices=WAYS, action="append", help="only this way of PyTorch")
    parser.add_argument("--mini-batch", type=int, default=32)
    parser.add_argument("--avx2", action="store_true", help="as on a processor without AVX-512")
    parser.add_argument("--steps", type=int, default=5, help="of each run that count")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.avx2:
        os.environ.update(lockstep_runs.LIMITED)
    limits = lockstep_runs.TORCH_LIMITED if arguments.avx2 else {}
    with open("/proc/cpuinfo") as file:
        narrow = "avx512_bf16" in file.read()
    print("{processor}, {cores} cores, load {load_before:.1f} before".format(
        **lockstep_runs.machine()))
    size, steps = arguments.mini_batch, arguments.steps
    for precision in arguments.precision or (["fp32", "bf16"] if narrow else ["fp32"]):
        times = {}
        with tempfile.TemporaryDirectory() as folder:
            images = os.path.join(folder, "images")
            os.mkdir(images)
            lockstep_runs.gather_images(None, images, images=10 * size)
            for _ in range(arguments.rounds):
                seconds = seconds_of_lockstep(arguments.command, arguments.architecture, images,
                                              size, steps, precision, folder)
                times.setdefault("Lockstep", []).append(seconds)
                for way in arguments.way or WAYS:
                    network = os.path.join(folder, "network.json")
                    found = seconds_of_torch(arguments.python, os.path.abspath(__file__), way,
                                             [network, size, steps, precision], limits)
                    if found:
                        times.setdefault(found[0], []).append(found[1])
        median = {way: statistics.median(all_of) for way, all_of in times.items()}
        print(f"\n{arguments.architecture}, mini-batch {size}, {precision}")
        lockstep_runs.print_table(
            ["", "images per second", "time / ours"],
            [[way, f"{size / seconds:,.1f}", f"{seconds / median['Lockstep']:.2f}"]
             for way, seconds in median.items()])


if __name__ == "__main__":
    main()
