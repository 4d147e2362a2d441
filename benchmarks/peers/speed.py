#!/usr/bin/python3
"""Training speed beside PyTorch, in images per second.

Lockstep: real trainings by the command, with augmentation, shuffling, metrics and receipts; the
median of the iterations' seconds in its own log. PyTorch: its whole step (forward, loss, backward,
SGD with momentum) on random data that is in memory already, with 1 and 2 threads, NCHW and
channels-last; its best counts. Short runs of all alternate; the figures are medians over the
rounds. Lockstep runs several times each round: without the law, shards' gradients are added as they
arrive; and in bf16, where the processor has instructions for it.
With --newest, so do the newest PyTorch, JAX and TensorFlow that another Python has
(newest_step.py), on the networks without branches.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn

import lockstep_runs

sys.path.append(os.path.join(lockstep_runs.TOP, "tests", "peers"))
from job_network import JobNetwork  # noqa: E402

MINI_BATCH = 128
THREADS = 2
WARM_UP = 3  # iterations of every run that do not count
# Title, job (or a named architecture), width, depth, epochs of a run.
NETWORKS = {"s3": ("S3, depth 1, width 16", "cifar10_s3", 16, 1, 20),
            "s3-depth2": ("S3, depth 2, width 11", "cifar10_s3", 11, 2, 12),
            "s3-depth3": ("S3, depth 3, width 9", "cifar10_s3", 9, 3, 8),
            "s3-depth4": ("S3, depth 4, width 8", "cifar10_s3", 8, 4, 6),
            "s1": ("S1, depth 4, width 32", "cifar10_s1", 32, 4, 1),
            "resnet20": ("ResNet-20", "resnet20", None, None, 2)}


# What Lockstep's runs of a round change.
WAYS = {"lockstep_2_threads": "deterministic=true",
        "lockstep_without_the_law": "deterministic=false",
        "lockstep_bf16": "precision=bf16"}


def ways():
    with open("/proc/cpuinfo") as file:
        narrow = "avx512_bf16" in file.read()
    return [way for way in WAYS if narrow or way != "lockstep_bf16"]


def speed_of_lockstep(command, images, job, width, depth, epochs, more):
    """Images per second, and the network as its run describes it."""
    settings = [f"data.train={images}", 'data.test=""', 'data.validation=""',
                "data.validation_fraction=0", "augmentation.reflect_x=true",
                "augmentation.translate_x=[-4, 4]", "augmentation.translate_y=[-4, 4]",
                f"mini_batch_size={MINI_BATCH}", f"max_epochs={epochs}", *more]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        if width:
            path = lockstep_runs.job_path(job)
            settings += [f"width={width}", f"depth={depth}"]
        else:
            path = os.path.join(folder, job + ".toml")
            with open(path, "w") as file:
                subprocess.run([command, "architecture", job], stdout=file, check=True)
            settings += ["data.resize=false"]
        lockstep_runs.train(command, path, out, settings, THREADS)
        log = lockstep_runs.read_log(out)[0][WARM_UP:]
        with open(os.path.join(out, "job.json")) as file:
            network = json.load(file)["network"]
    return MINI_BATCH / statistics.median(entry["seconds"] for entry in log), network


def torch_network(width, depth):
    layers, channels = [], 3
    for level in range(3):
        for _ in range(depth):
            filters = width << level
            layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.BatchNorm2d(filters),
                       nn.ReLU(inplace=True)]
            channels = filters
        layers += [nn.MaxPool2d(2, 2) if level < 2 else nn.AvgPool2d(8)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, 10))


def speed_of_torch(make, threads, layout, seconds):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = make().to(memory_format=layout).train()
    x = torch.randn(MINI_BATCH, 3, 32, 32).contiguous(memory_format=layout)
    y = torch.randint(10, (MINI_BATCH,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    times, begin = [], time.perf_counter()
    while len(times) < WARM_UP + 3 or time.perf_counter() - begin < seconds:
        before = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss(model(x), y).backward()
        optimizer.step()
        times.append(time.perf_counter() - before)
    return MINI_BATCH / statistics.median(times[WARM_UP:])


FRAMEWORKS = {"torch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow"}


def speeds_of_newest(python, framework, width, depth, seconds):
    """Images per second of each way to write it that works, by a title."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "newest_step.py")
    numbers = map(str, (width, depth, MINI_BATCH, THREADS, seconds))
    try:
        done = subprocess.run([python, script, framework, *numbers], capture_output=True, text=True,
                              check=True, timeout=900)
    except (OSError, subprocess.SubprocessError) as error:
        why = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
        print(f"{FRAMEWORKS[framework]} is left out: {why}")
        return {}
    result = json.loads(done.stdout.splitlines()[-1])
    title = f"{FRAMEWORKS[framework]} {result['version'].split('+')[0]}"
    for name, why in result["failed"].items():
        print(f"{title}, {name} is left out: {why}")
    return {f"{title}, {name}": rate for name, rate in result["rates"].items()}


LAYOUTS = {"NCHW": torch.contiguous_format, "channels-last": torch.channels_last}


def measure(command, images, job, width, depth, epochs, more, rounds, seconds, newest):
    """Images per second of each round, by what ran: Lockstep, Debian's PyTorch, the newest."""
    ours, figures, others = {way: [] for way in ways()}, {}, {}
    for _ in range(rounds):
        for way, speeds in ours.items():
            speed, network = speed_of_lockstep(command, images, job, width, depth, epochs,
                                               [*more, WAYS[way]])
            speeds.append(speed)
        make = (lambda: torch_network(width, depth)) if width else (lambda: JobNetwork(network))
        for threads in (1, THREADS):
            for name, layout in LAYOUTS.items():
                figures.setdefault((threads, name), []).append(
                    speed_of_torch(make, threads, layout, seconds))
        for framework in FRAMEWORKS if newest and width else []:
            speeds = speeds_of_newest(newest, framework, width, depth, seconds)
            for title, speed in speeds.items():
                others.setdefault(title, []).append(speed)
    return ours, figures, others


def judge(ours, figures, others):
    """Medians over the rounds, their ratio, and whether the machine was free enough to compare."""
    median = {key: statistics.median(values) for key, values in figures.items()}
    best = {threads: max(median[threads, layout] for layout in LAYOUTS) for threads in (1, THREADS)}
    speeds = {way: statistics.median(values) for way, values in ours.items()}
    ratios = [speed / max(values[i] for values in figures.values())
              for i, speed in enumerate(ours["lockstep_2_threads"])]
    gain = best[THREADS] / best[1]
    return {
        **speeds,
        "by_round": ours,
        "pytorch": {f"{t} thread{'s' if t > 1 else ''}, {name}": median[t, name]
                    for t in (1, THREADS) for name in LAYOUTS},
        "ratio": speeds["lockstep_2_threads"] / max(best.values()),
        "ratio_by_round": ratios,
        "newest": {title: statistics.median(values) for title, values in others.items()},
        "pytorch_gain_of_second_thread": gain,
        "verdict": "valid" if gain >= 1.2 else "void",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"), metavar="FOLDER",
                        help="holds cifar10/train/<class>/ (default: $LOCKSTEP_TEST_DATA)")
    parser.add_argument("--network", choices=list(NETWORKS), action="append",
                        help="only this one; repeat for more")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of each short run of PyTorch")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="changes Lockstep's jobs, as precision=bf16; repeat for more")
    parser.add_argument("--newest", metavar="PYTHON",
                        help="a Python with the newest PyTorch, JAX or TensorFlow")
    parser.add_argument("--json", metavar="FILE", help="where the figures go as JSON")
    arguments = parser.parse_args()

    report = {"machine": lockstep_runs.machine(), "pytorch_version": torch.__version__,
              "mini_batch": MINI_BATCH, "rounds": arguments.rounds, "networks": {}}
    rows = []
    with tempfile.TemporaryDirectory() as images:
        report["data"] = lockstep_runs.gather_images(arguments.data, images)
        print("{processor}, {cores} cores, load {load_before:.1f} before".format(
            **report["machine"]))
        print(f"PyTorch {torch.__version__}; {report['data']}; mini-batch {MINI_BATCH}; "
              f"images per second, medians of {arguments.rounds}\n")
        for name in arguments.network or NETWORKS:
            title, *settings = NETWORKS[name]
            figures = measure(arguments.command, images, *settings, arguments.set, arguments.rounds,
                              arguments.seconds, arguments.newest)
            result = report["networks"][title] = judge(*figures)
            row = {"network": title, "Lockstep, 2 threads": f"{result['lockstep_2_threads']:,.0f}"}
            row["the same without the law"] = f"{result['lockstep_without_the_law']:,.0f}"
            if "lockstep_bf16" in result:
                row["the same in bf16"] = f"{result['lockstep_bf16']:,.0f}"
                row["bf16 / fp32"] = f"{of_rounds(result['by_round']):.2f}"
            row |= {f"PyTorch, {key}": f"{value:,.0f}" for key, value in result["pytorch"].items()}
            row |= {"ratio": f"{result['ratio']:.2f}", "verdict": result["verdict"]}
            if result["newest"]:
                row |= {key: f"{value:,.0f}" for key, value in result["newest"].items()}
                best = max(result["newest"].values())
                row["ratio to the best of these"] = f"{result['lockstep_2_threads'] / best:.2f}"
            rows.append(row)
    header = list(dict.fromkeys(key for row in rows for key in row))
    lockstep_runs.print_table(*turned(header, [[row.get(key, "") for key in header] for row in rows]))
    depths = [report["networks"][NETWORKS[name][0]] for name in NETWORKS
              if name.startswith("s3") and NETWORKS[name][0] in report["networks"]]
    if len(depths) == 4:
        ours = sum(1 / d["lockstep_2_threads"] for d in depths)
        peers = sum(1 / max(d["pytorch"].values()) for d in depths)
        report["s3_four_depths"] = peers / ours
        print(f"\nS3, the four depths together (sum of times): {peers / ours:.2f}")
    if any(r["verdict"] == "void" for r in report["networks"].values()):
        print(f"\nvoid: PyTorch's {THREADS} threads were under 1.2 times as fast as its one: "
              "the machine was not free")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=2)
            file.write("\n")


def of_rounds(by_round):
    """bf16 beside fp32: the median over the rounds, of runs one after the other."""
    return statistics.median(narrow / wide for narrow, wide in
                             zip(by_round["lockstep_bf16"], by_round["lockstep_2_threads"]))


def turned(header, rows):
    """Networks as columns: few of them, and many figures."""
    table = list(zip(header, *rows))
    return list(table[0]), [list(row) for row in table[1:]]


if __name__ == "__main__":
    sys.exit(main())
