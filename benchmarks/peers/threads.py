#!/usr/bin/python3
"""What threads bring: real trainings of one process with 1, 2, 4, ... threads, as many as there are
cores, by turns, with the same mini-batch for all.

Images per second, from the median of the iterations' seconds in the runs' own logs; medians over
the rounds. The efficiency of n threads is their speed over n times that of one, round by round.
Beside it stands the bound that the parts of a step set: `lockstep train --profile` with one thread
says how long they take, and of each part it is known whether threads share it by shards, share it
by parameters, or leave it to one of them. Nothing else is in that bound: neither the caches, the
memory and the clock that cores share, nor that threads wait for each other. It is printed for
threads that there are no cores for, too; their speed is not measured.

With --data the networks are those of examples/jobs; without, a small one that learns the digits.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile

import lockstep_runs

WARM_UP = 3  # iterations of every run that do not count
SHARD = 16
# Parts around the passes that are not shared by shards.
BY_PARAMETER = ("layouts of gradients", "gradient threshold", "solver", "layouts of parameters",
                "digests of parameters")
BY_ONE = ("records of the last iteration", "waiting for the mini-batch",
          "digest of the state", "plans of shards", "moving statistics")


def run(arguments, job, settings, threads, *more):
    """Seconds of an iteration by the median, and the profile where one was asked for."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        lockstep_runs.train(arguments.command, lockstep_runs.job_path(job), out, settings, threads,
                            arguments.data, more)
        iterations, _ = lockstep_runs.read_log(out)
        profile = None
        if "--profile" in more:
            with open(os.path.join(out, "profile.json")) as file:
                profile = json.load(file)
    full = max((e["observations"] for e in iterations), default=0)
    seconds = [e["seconds"] for e in iterations[WARM_UP:] if e["observations"] == full]
    if not seconds:
        sys.exit(f"{job} with {threads} threads: {len(iterations)} iterations are too few, "
                 "give --seconds more")
    return statistics.median(seconds), profile


def largest_share(arguments, job, settings):
    """The share of the layer with most parameters: no thread gets less than it, if it gets it."""
    command = [arguments.command, "summary", lockstep_runs.job_path(job)]
    for setting in settings:
        command += ["--set", setting]
    environment = dict(os.environ, **({"LOCKSTEP_DATA": arguments.data} if arguments.data else {}))
    text = subprocess.run(command, capture_output=True, text=True, check=True,
                          env=environment).stdout
    counts = [int(n) for n in re.findall(r"(?m)^\w\S* .* (\d+) +(?:-|\d+)$", text)]
    return max(counts) / sum(counts)


def bound(profile, threads, shards, largest):
    """The efficiency of n threads if every part took as long as it does for one thread."""
    parts = {"shards": 0, "parameters": 0, "one": 0}
    for account in profile["accounts"]:
        name = account["name"] if account["phase"] == "step" else ""
        kind = ("parameters" if name in BY_PARAMETER else "one" if name in BY_ONE else "shards")
        parts[kind] += account["seconds"]
    step = (parts["shards"] * math.ceil(shards / threads) / shards +
            parts["parameters"] * max(largest, 1 / threads) + parts["one"])
    return sum(parts.values()) / (threads * step)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"), metavar="FOLDER",
                        help="holds cifar10/ (default: $LOCKSTEP_TEST_DATA)")
    parser.add_argument("--mini-batch", type=int, default=512)
    parser.add_argument("--most", type=int, default=16, help="threads")
    parser.add_argument("--seconds", type=float, default=8, help="of each training")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    jobs = [("digits", "digits", [])]
    if arguments.data:
        few = ["train=cifar10/test", "validation_frequency=1000000"]
        jobs = [("S3, depth 1", "cifar10_s3", few), ("S1", "cifar10_s1", few)]
    always = [f"mini_batch_size={arguments.mini_batch}", f"shard_size={SHARD}",
              f"max_time={arguments.seconds}", "max_epochs=100000"]
    machine = lockstep_runs.machine()
    shards = math.ceil(arguments.mini_batch / SHARD)
    counts = [1 << k for k in range(arguments.most.bit_length()) if 1 << k <= arguments.most]
    measured = [n for n in counts if n <= machine["cores"]]
    print("{processor}, {cores} cores, load {load_before:.1f} before".format(**machine))
    print(f"mini-batch {arguments.mini_batch}, {shards} shards; medians of {arguments.rounds} "
          "rounds\n")
    rows = []
    for title, job, settings in jobs:
        settings = settings + always
        _, profile = run(arguments, job, settings, 1, "--profile")
        largest = largest_share(arguments, job, settings)
        seconds = {n: [] for n in measured}
        for _ in range(arguments.rounds):
            for n in measured:
                seconds[n].append(run(arguments, job, settings, n)[0])
        for n in counts:
            row = [title if n == 1 else "", str(n)]
            if n in seconds:
                gains = [one / (n * these) for one, these in zip(seconds[1], seconds[n])]
                speed = arguments.mini_batch / statistics.median(seconds[n])
                row += [f"{speed:,.0f}", f"{statistics.median(gains):.2f} "
                        f"({min(gains):.2f} to {max(gains):.2f})"]
            else:
                row += ["no cores", "-"]
            rows.append(row + [f"{bound(profile, n, shards, largest):.2f}"])
    lockstep_runs.print_table(["", "threads", "images per second", "efficiency", "bound"], rows)


if __name__ == "__main__":
    main()
