#!/usr/bin/env python3
"""A model of a training step with up to 4,096 workers, from inputs that are measured on one machine.

usage: scaling_model.py [INPUTS.json]     prints the tables of docs/internals/scaling.md
       scaling_model.py --measure LOCKSTEP EXCHANGE > INPUTS.json
                                          measures the inputs, and steps with 1 to 4 workers

It is a model: nothing here has run on more than this machine.
"""

import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

BYTES = 4  # of a parameter's gradient
DIRECT = 64  # members up to which all are connected (HostGroupOptions::most_direct)
BLOCK = 1024

JOB = """
[network]
input = {{ type = "image_input", height = 28, width = 28, channels = 1 }}
layers = [{layers}]

[data]
source = "digits"

[training]
mini_batch_size = {batch}
shard_size = {shard}
max_iterations = {iterations}
max_epochs = 1000
threads = 1
seed = 1
check_frequency = 0
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
    added = partials * gradient / inputs["added_bytes_per_second"]
    return (scatter + gather) * latency + moved / bandwidth + added


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
    """Of n workers that compute n times as many shards as one."""
    alone = step(network, inputs, 1, shards_of_one)
    seconds = step(network, inputs, n, shards_of_one * n)
    return alone / seconds * availability(inputs, n, seconds)


def print_tables(inputs):
    sizes = [1, 4, 16, 64, 256, 1024, 4096]
    networks = [{"bytes_per_second": b, "message_seconds": m, "name": name} for name, b, m in
                [("as measured here", inputs["bytes_per_second"], inputs["message_seconds"]),
                 ("10 Gbit/s, 50 us (assumed)", 1.1e9, 50e-6),
                 ("100 Gbit/s, 20 us (assumed)", 11e9, 20e-6)]]
    for connection in networks:
        used = {**inputs, **{k: v for k, v in connection.items() if k != "name"}}
        print(f"\nEfficiency, {connection['name']}:\n")
        print("| network | shards of a worker | " + " | ".join(f"{n:,}" for n in sizes) + " |")
        print("| --- | --- | " + " | ".join("---" for _ in sizes) + " |")
        for network in inputs["networks"]:
            for shards in network["shards_of_a_worker"]:
                cells = [f"{100 * efficiency(network, used, n, shards):.0f} %" for n in sizes]
                print(f"| {network['name']} | {shards} | " + " | ".join(cells) + " |")
    print("\nThe model beside measurements, hosts on the loopback of one machine:\n")
    print("| network | workers | measured, ms | model, ms | model / measured |")
    print("| --- | --- | --- | --- | --- |")
    for network in inputs["networks"]:
        for n, measured in network.get("measured_steps", {}).items():
            model = step(network, inputs, int(n), network["shards"], inputs["cores"])
            print(f"| {network['name']} | {n} | {1e3 * measured:.1f} | {1e3 * model:.1f} | "
                  f"{model / measured:.2f} |")


# ---- Measurements ----

MEASURED = [
    {"name": "small", "parameters": 0, "batch": 64, "shard": 16, "iterations": 200,
     "layers": "{ type = 'fully_connected', units = 32 }, { type = 'relu' }, "
               "{ type = 'fully_connected', units = 10 }, { type = 'softmax' }"},
    {"name": "dense 3 x 4096", "parameters": 0, "batch": 128, "shard": 16, "iterations": 12,
     "layers": "{ type = 'fully_connected', units = 4096 }, { type = 'relu' }, "
               "{ type = 'fully_connected', units = 4096 }, { type = 'relu' }, "
               "{ type = 'fully_connected', units = 4096 }, { type = 'relu' }, "
               "{ type = 'fully_connected', units = 10 }, { type = 'softmax' }"},
]


def train(lockstep, settings, workers, batch):
    """Median seconds of an iteration."""
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        (here / "job.toml").write_text(JOB.format(**{**settings, "batch": batch}))
        line = [lockstep, "train", "job.toml", "--out", "out", "--quiet"]
        if workers > 0:
            line += ["--hosts", ",".join(f"h{i}:1" for i in range(workers)), "--host-launch",
                     "env LOCKSTEP_SCALING={host}"]
        environment = {**os.environ, "LOCKSTEP_HOME": str(here / "home")}
        subprocess.run(line, cwd=here, check=True, env=environment, stdout=subprocess.DEVNULL)
        seconds = [record["seconds"] for record in map(json.loads, (here / "out/log.jsonl").open())
                   if record.get("event", record.get("type")) == "iteration"]
    return statistics.median(seconds[len(seconds) // 4:])


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--measure":
        measure(sys.argv[2], sys.argv[3])
    else:
        default = pathlib.Path(__file__).parent / "scaling_inputs.json"
        print_tables(json.loads(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else default)
                                .read_text(encoding="utf-8")))
