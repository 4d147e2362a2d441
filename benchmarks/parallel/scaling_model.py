#!/usr/bin/env python3
"""A model of a training step with up to 4,096 workers, from inputs that are measured on one machine.

usage: scaling_model.py [INPUTS.json]     prints the tables of docs/internals/scaling.md
       scaling_model.py --measure LOCKSTEP EXCHANGE > INPUTS.json
                                          measures the inputs, and steps with 1 to 4 workers

It is a model: no more than one machine has been measured.
"""

import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BYTES = 4  # of a parameter's gradient
DIRECT = 64  # members up to which all are connected (HostGroupOptions::most_direct)
BLOCK = 1024

JOB = """
[network]
input = {{ height = 28, width = 28, channels = 1 }}
layers = [ {layers} ]
[data]
train = "builtin:digits"
[training]
mini_batch_size = {batch}
shard_size = 16
max_iterations = {iterations}
max_epochs = 1000
threads = 1
initial_learning_rate = 0.0001
"""


def exchange(network, inputs, n, partials=1):
    """Seconds of the sum of all gradients over n workers on n hosts."""
    if n == 1:
        return 0.0
    gradient = network["parameters"] * BYTES
    latency, bandwidth = inputs["message_seconds"], inputs["bytes_per_second"]
    slices = math.ceil(network["parameters"] / BLOCK)
    with_slices = min(n, slices)  # beyond, members have no slice
    if n <= DIRECT:
        scatter = gather = with_slices - 1
        volume = partials * gradient * (n - 1) / n
    else:
        side = math.ceil(math.sqrt(n))
        scatter, gather = 3 * (side - 1), 2 * (side - 1)  # sizes and two steps; two steps
        volume = 2 * partials * gradient * (n - 1) / n
    moved = volume + gradient * (n - 1) / n
    return (scatter + gather) * latency + moved / bandwidth


def step(network, inputs, n, shards, cores=None):
    """Seconds of a step. `cores`: those that all workers share; without it each has its own."""
    most = math.ceil(shards / n)
    crowd = max(1.0, n / cores) if cores else 1.0
    compute = most * network["shard_seconds"] * crowd
    straggler = compute * inputs["spread"] * math.sqrt(2 * math.log(n)) if n > 1 else 0.0
    update = network["update_seconds"] * crowd
    move = exchange(network, inputs, n)
    return compute + straggler + update + (move * crowd if cores else move)


def availability(inputs, n, seconds):
    """The share of time that is not lost by failures."""
    rate = n / (inputs["hours_between_failures"] * 3600)
    recovery = inputs["recovery_seconds"] + inputs["recovery_seconds_each"] * n + seconds / 2
    return 1 / (1 + rate * (inputs["detection_seconds"] + recovery))


def efficiency(network, inputs, n, shards_of_one):
    """The efficiency of n workers that compute n times as many shards as one."""
    alone = step(network, inputs, 1, shards_of_one)
    seconds = step(network, inputs, n, shards_of_one * n)
    return alone / seconds * availability(inputs, n, seconds)


def print_tables(inputs):
    sizes = [1, 4, 16, 64, 256, 1024, 4096]
    networks = [{"name": "as measured here"},
                {"name": "10 Gbit/s, 50 us, spread 3 % (assumed)", "bytes_per_second": 1.1e9,
                 "message_seconds": 50e-6, "spread": 0.03},
                {"name": "100 Gbit/s, 20 us, spread 3 % (assumed)", "bytes_per_second": 11e9,
                 "message_seconds": 20e-6, "spread": 0.03}]
    for connection in networks:
        used = {**inputs, **{k: v for k, v in connection.items() if k != "name"}}
        print(f"\nEfficiency, {connection['name']}:\n")
        print("| network | shards of a worker | " + " | ".join(f"{n:,}" for n in sizes) + " |")
        print("| --- | --- | " + " | ".join("---" for _ in sizes) + " |")
        for network in inputs["networks"]:
            for shards in network["shards_of_a_worker"]:
                cells = [f"{100 * efficiency(network, used, n, shards):.0f} %" for n in sizes]
                print(f"| {network['name']} | {shards} | " + " | ".join(cells) + " |")
    print("\nThe model beside measurements, with hosts on the loopback of one machine:\n")
    print("| network | workers | measured, ms | model, ms | model / measured |")
    print("| --- | --- | --- | --- | --- |")
    for network in inputs["networks"]:
        for n, measured in network.get("measured_steps", {}).items():
            model = step(network, inputs, int(n), network["shards"], inputs["cores"])
            print(f"| {network['name']} | {n} | {1e3 * measured:.1f} | {1e3 * model:.1f} | "
                  f"{model / measured:.2f} |")


# ---- Measurements ----

MEASURED = [
    {"name": "small, 784-32-10", "units": [32], "batch": 64, "iterations": 400},
    {"name": "dense 3 x 4096", "units": [4096, 4096, 4096], "batch": 128, "iterations": 10},
]
SHARD = 16  # observations
RESNET50 = {"name": "like ResNet-50 (computed)", "parameters": 25_600_000,
            "operations": 12.3e9}  # of one observation, forward and backward


def layers_of(units):
    words = []
    for n in units:
        words += [f'{{ type = "fully_connected", units = {n} }}', '{ type = "relu" }']
    return ", ".join(words + ['{ type = "fully_connected", units = 10 }', '{ type = "softmax" }'])


def parameters_of(units):
    sizes = [784, *units, 10]
    return sum((a + 1) * b for a, b in zip(sizes, sizes[1:]))


def train(lockstep, settings, workers, batch):
    """Seconds of the iterations, without the first ones."""
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        (here / "job.toml").write_text(JOB.format(layers=layers_of(settings["units"]), batch=batch,
                                                  iterations=settings["iterations"]))
        line = [lockstep, "train", "job.toml", "--out", "out", "--quiet"]
        if workers > 0:
            line += ["--hosts", ",".join(f"127.0.0.{i + 1}:1" for i in range(workers)), "--host-launch",
                     "env LOCKSTEP_SCALING={host}"]
        environment = {**os.environ, "LOCKSTEP_HOME": str(here / "home")}
        subprocess.run(line, cwd=here, check=True, env=environment, stdout=subprocess.DEVNULL)
        seconds = [record["seconds"] for record in map(json.loads, (here / "out/log.jsonl").open())
                   if "iteration" in record and "seconds" in record]
    return seconds[len(seconds) // 4:]


def sums(exchange_command, floats, count):
    """Seconds of a sum of two members by messages."""
    printed = subprocess.run([exchange_command, "--members", "2", "--floats", str(floats), "--sums",
                              str(count)], check=True, capture_output=True, text=True).stdout
    return 1e-6 * float(printed.splitlines()[-1].split()[-1])


def measure(lockstep, exchange_command):
    floats = 8_000_000
    short, long = sums(exchange_command, 2048, 200), sums(exchange_command, floats, 10)
    inputs = {
        # By membership_scale, from the median of 4,096 members; the others are assumed.
        "recovery_seconds": 0.0, "recovery_seconds_each": 0.0005,
        "detection_seconds": 1.5, "hours_between_failures": 5000,
        "message_seconds": short / 2,
        "bytes_per_second": floats * BYTES / (long - short),
        "cores": len(os.sched_getaffinity(0)),
        "networks": [],
    }
    for settings in MEASURED:
        batch, shards = settings["batch"], settings["batch"] // SHARD
        print(settings["name"], file=sys.stderr, flush=True)
        one, two = train(lockstep, settings, 0, batch), train(lockstep, settings, 0, 2 * batch)
        shard = max((statistics.median(two) - statistics.median(one)) / shards, 1e-9)
        network = {
            "name": settings["name"], "parameters": parameters_of(settings["units"]),
            "shards": shards, "shard_seconds": shard,
            "update_seconds": max(statistics.median(one) - shards * shard, 0.0),
            "shards_of_a_worker": [8, 64],
            "measured_steps": {str(n): statistics.median(train(lockstep, settings, n, batch))
                               for n in (1, 2, 3, 4)},
        }
        inputs["networks"].append(network)
        inputs["spread"] = statistics.pstdev(one) / statistics.mean(one)
    dense = inputs["networks"][-1]
    rate = 6 * dense["parameters"] * SHARD / dense["shard_seconds"]  # operations a second
    inputs["operations_per_second"] = rate
    inputs["networks"].append({
        "name": RESNET50["name"], "parameters": RESNET50["parameters"], "shards": 8,
        "shard_seconds": SHARD * RESNET50["operations"] / rate,
        "update_seconds": dense["update_seconds"] * RESNET50["parameters"] / dense["parameters"],
        "shards_of_a_worker": [2, 8],
    })
    json.dump(inputs, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--measure":
        measure(os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3]))
    else:
        default = pathlib.Path(__file__).parent / "scaling_inputs.json"
        print_tables(json.loads(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else default)
                                .read_text(encoding="utf-8")))
