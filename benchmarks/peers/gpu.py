#!/usr/bin/env python3
"""Training speed on a GPU beside PyTorch at its fastest, in images per second, and beside what the
GPU could do at most.

Lockstep: real trainings by the command, with augmentation, shuffling, metrics, digests and
receipts; the median of the iterations' seconds in its own log, in every precision. PyTorch: its
whole step (forward, loss, backward, SGD with momentum) on random images that lie on the GPU, with
channels last, in TF32 and bf16, as it comes and compiled with CUDA graphs; its best counts for each
precision. Runs alternate; the figures are medians over the rounds.

The roofline: what the step multiplies and moves is counted, and how fast the GPU multiplies large
matrices and copies large arrays is measured in the same call. A step cannot be faster than the
larger of the two times; the share of that in its own time is printed. Of each block (convolution,
batch normalisation, ReLU) the forward pass moves its input once and its output four times, the
backward pass its input twice and its output seven times.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

import torch
from torch import nn

import lockstep_runs
from newest_step import MOMENTUM, RATE, channels_of
from speed import gather_images

WARM_UP = 20  # iterations of every run that do not count
# Title, job, width, depth, mini-batch.
NETWORKS = {"s1": ("S1, depth 4, width 32", "cifar10_s1", 32, 4, 2048),
            "s3": ("S3, depth 1, width 16", "cifar10_s3", 16, 1, 128)}
# Lockstep's precision: what PyTorch's autocast makes of fp32, and whether products may use TF32.
PRECISIONS = {"fp32": (None, False), "tf32": (None, True), "bf16": (torch.bfloat16, True),
              "fp16": (torch.float16, True)}
BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_of(step, device, seconds):
    """Of a step: the median of groups of steps that take some hundredths of a second."""
    for _ in range(WARM_UP if device == "cuda" else 2):
        step()
    wait(device)
    before = time.perf_counter()
    step()
    wait(device)
    group = max(1, int(0.05 / (time.perf_counter() - before)))
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        before = time.perf_counter()
        for _ in range(group):
            step()
        wait(device)
        times.append((time.perf_counter() - before) / group)
    return statistics.median(times)


def torch_step(width, depth, mini_batch, device, precision, compiled):
    narrow, tf32 = PRECISIONS[precision]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    layers = []
    for level, convolutions in enumerate(channels_of(width, depth)):
        for before, after in convolutions:
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after),
                       nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(2, 2) if level < 2 else nn.AvgPool2d(8)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * 4, 10)).train()
    model = model.to(device).to(memory_format=torch.channels_last)
    x = torch.randn(mini_batch, 3, 32, 32, device=device)
    x = x.contiguous(memory_format=torch.channels_last)
    y = torch.randint(10, (mini_batch,), device=device)
    fused = {"fused": True} if device == "cuda" else {}
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, **fused)
    loss = nn.CrossEntropyLoss()
    scaler = torch.cuda.amp.GradScaler(enabled=precision == "fp16")

    def value(x, y):
        with torch.autocast(device, dtype=narrow or torch.bfloat16, enabled=narrow is not None):
            return loss(model(x), y)
    if compiled:
        value = torch.compile(value, mode="max-autotune")  # with CUDA graphs

    def step():
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(value(x, y)).backward()
        scaler.step(optimizer)
        scaler.update()
    return step


def lockstep_seconds(arguments, job, width, depth, mini_batch, precision):
    settings = [f"width={width}", f"depth={depth}", f"mini_batch_size={mini_batch}",
                f"precision={precision}", f"max_time={arguments.seconds + 5}", "max_epochs=100000",
                f"device={arguments.device}", "validation_frequency=1000000",
                "checkpoint_frequency=1000000"]
    if not arguments.data:
        settings += [f"data.train={arguments.images}", 'data.test=""', 'data.validation=""']
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        lockstep_runs.train(arguments.command, lockstep_runs.job_path(job), out, settings,
                            data=arguments.data)
        iterations, _ = lockstep_runs.read_log(out)
    seconds = [e["seconds"] for e in iterations[WARM_UP:] if e["observations"] == mini_batch]
    if not seconds:
        sys.exit(f"{job}: {len(iterations)} iterations are too few, give --seconds more")
    return statistics.median(seconds)


def work_of(width, depth, mini_batch, size):
    """Multiplications and additions of a step, and bytes that it moves; see above."""
    operations = moved = 0
    for level, convolutions in enumerate(channels_of(width, depth)):
        pixels = mini_batch * (32 >> level) ** 2
        for before, after in convolutions:
            first = before == 3
            operations += 2 * pixels * before * after * 9 * (2 if first else 3)
            moved += size * pixels * (before * (2 if first else 3) + after * 11)
    return operations, moved


def ceilings(device, precision):
    """Operations and bytes a second."""
    narrow, tf32 = PRECISIONS[precision]
    torch.backends.cuda.matmul.allow_tf32 = tf32
    n, count = (8192, 1 << 28) if device == "cuda" else (1024, 1 << 24)
    a = torch.randn(n, n, device=device, dtype=narrow if device == "cuda" and narrow else None)
    x = torch.empty(count, device=device)
    y = torch.empty_like(x)
    return (2 * n ** 3 / seconds_of(lambda: a @ a, device, 0.5),
            2 * 4 * count / seconds_of(lambda: y.copy_(x), device, 0.5))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"), metavar="FOLDER",
                        help="holds cifar10/ (default: $LOCKSTEP_TEST_DATA)")
    parser.add_argument("--network", choices=list(NETWORKS), help="only this one")
    parser.add_argument("--precision", choices=list(PRECISIONS), action="append",
                        help="only this one; repeat for more")
    parser.add_argument("--mini-batch", type=int, help="another one for all networks")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"],
                        help="cpu: to try the benchmark out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of each run")
    arguments = parser.parse_args()
    device = arguments.device
    print(torch.cuda.get_device_name() if device == "cuda"
          else lockstep_runs.machine()["processor"], f"- PyTorch {torch.__version__}",
          f"- medians of {arguments.rounds} rounds\n")
    with tempfile.TemporaryDirectory() as arguments.images:
        if not arguments.data:
            gather_images(None, arguments.images)
        compare(arguments)


def compare(arguments):
    device = arguments.device
    rows, failed = [], set()
    for name in [arguments.network] if arguments.network else NETWORKS:
        title, job, width, depth, mini_batch = NETWORKS[name]
        mini_batch = arguments.mini_batch or mini_batch
        for precision in arguments.precision or PRECISIONS:
            ours, theirs = [], {}
            for _ in range(arguments.rounds):
                ours.append(lockstep_seconds(arguments, job, width, depth, mini_batch, precision))
                for way in ("eager", "compiled"):
                    try:
                        step = torch_step(width, depth, mini_batch, device, precision,
                                          way == "compiled")
                        theirs.setdefault(way, []).append(
                            seconds_of(step, device, arguments.seconds))
                    except Exception as error:  # pylint: disable=broad-except
                        failed.add(f"PyTorch, {way}, {precision}: {str(error).splitlines()[0]}")
            operations, moved = work_of(width, depth, mini_batch, BYTES[precision])
            most_operations, most_bytes = ceilings(device, precision)
            floor = max(operations / most_operations, moved / most_bytes)
            own = statistics.median(ours)
            peers = {way: statistics.median(times) for way, times in theirs.items()}
            best = min(peers.values(), default=float("nan"))
            rows.append([f"{title}, {mini_batch}", precision, f"{mini_batch / own:,.0f}"]
                        + [f"{mini_batch / peers[way]:,.0f}" if way in peers else "-"
                           for way in ("eager", "compiled")]
                        + [f"{best / own:.2f}", f"{floor / own:.2f}",
                           "operations" if operations / most_operations > moved / most_bytes
                           else "bytes"])
    lockstep_runs.print_table(["network, mini-batch", "precision", "Lockstep", "PyTorch, eager",
                               "PyTorch, compiled", "ratio", "of the roofline", "bound by"], rows)
    for why in sorted(failed):
        print(f"left out: {why}")


if __name__ == "__main__":
    main()
