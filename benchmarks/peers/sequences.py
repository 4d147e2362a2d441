#!/usr/bin/env python3
"""Whole training steps of networks of sequences beside PyTorch, two threads each, and texts that a GPT
generates.

Lockstep: trainings by benchmarks/train/sequences.cpp, with shuffling, metrics and receipts. PyTorch:
sequences_step.py, in each way that it has. Short runs alternate; the figures are medians over the
rounds: steps of sequences (tokens) a second, time / Lockstep's, processor milliseconds of an
iteration (other programs on the machine change them less), and the MiB that a process has had
resident at most. --python may be given several times: interpreters that have PyTorch, by default
this one. The last line of a network names the fastest of all ways, and its time / Lockstep's.

usage: sequences.py [NETWORK...] [--program P] [--python P]... [--without WAY]... [--seconds S] [--rounds N]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

import lockstep_runs

THREADS = 2
# Name: what sequences.cpp takes. Lengths are even between the two.
NETWORKS = {"small": ("lstm", 100, 2, 12, 7, 29, 27),
            "small-256": ("lstm", 100, 2, 12, 7, 29, 256),
            "lstm-256": ("lstm", 256, 1, 64, 50, 50, 256),
            "gru": ("gru", 256, 1, 64, 50, 50, 128),
            "ragged": ("lstm", 128, 1, 32, 5, 500, 64),
            "gpt": ("gpt", 384, 6, 96, 256, 256, 16),
            "generate": ("generate", 128, 4, 96, 64, 64, 1),
            "generate-384": ("generate", 384, 6, 96, 256, 256, 1)}


def title(name):
    kind, units, directions, channels, shortest, longest, rows = NETWORKS[name]
    if kind == "gpt":
        return f"{name}: {directions} blocks of {units} channels, context {longest}, mini-batch {rows}"
    if kind == "generate":
        return f"{name}: a text of {longest} tokens by {directions} blocks of {units} channels"
    lengths = f"{shortest} steps" if shortest == longest else f"{shortest} to {longest} steps"
    return (f"{name}: {'bidirectional ' if directions == 2 else ''}{kind.upper()} of {units} units, "
            f"{channels} channels, {lengths}, mini-batch {rows}")


def run(arguments):
    """What a program printed, or why it failed."""
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=900,
                          check=False)
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or ["?"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def measure(name, options):
    network = NETWORKS[name]
    peer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sequences_step.py")
    ways = ["eager", "compiled"] if network[0] in ("gpt", "generate") else ["packed", "padded", "compiled"]
    ways = [way for way in ways if way not in options.without]
    calls = {("Lockstep",): [options.program, *network, THREADS, options.seconds]}
    for python in options.python:
        for way in ways:
            calls[python, way] = [python, peer, *network, THREADS, options.seconds, way]
    results = {who: [] for who in calls}
    for _ in range(options.rounds):
        for who, call in calls.items():
            if not any("failed" in result for result in results[who]):
                results[who].append(run(call))
    rows, ours, best = [], None, None
    steps = network[6] * (network[4] + network[5]) / 2
    for who, runs in results.items():
        if "failed" in runs[-1]:
            rows.append([f"{', '.join(who)}: {runs[-1]['failed'][:60]}", "", "", "", ""])
            continue
        median = {key: statistics.median(r[key] for r in runs)
                  for key in ("seconds", "processor", "mib")}
        ours = median if len(who) == 1 else ours
        label = f"PyTorch {runs[0]['version'].split('+')[0]}, {who[1]}" if len(who) > 1 else who[0]
        if len(who) > 1 and (best is None or median["seconds"] < best[0]):
            best = median["seconds"], label
        rows.append([label, f"{steps / median['seconds']:,.0f}",
                     f"{median['seconds'] / ours['seconds']:.2f}" if ours else "",
                     f"{1e3 * median['processor']:.1f}", f"{median['mib']:.0f}"])
    print(f"\n{title(name)}")
    lockstep_runs.print_table(["", "steps/s", "time / ours", "processor ms", "MiB"], rows)
    if ours and best:
        print(f"the best: {best[1]}: {best[0] / ours['seconds']:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("networks", nargs="*", default=[], choices=[[], *NETWORKS])
    parser.add_argument("--program", default=os.path.join(lockstep_runs.TOP, "build", "release",
                                                          "benchmarks", "sequences"))
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--without", action="append", default=[], help="a way of PyTorch's to leave out")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.python = options.python or [sys.executable]
    machine = lockstep_runs.machine()
    print(f"{machine['processor']}, load {machine['load_before']:.1f}")
    for name in options.networks or NETWORKS:
        measure(name, options)


if __name__ == "__main__":
    main()
