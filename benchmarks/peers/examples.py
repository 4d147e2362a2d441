#!/usr/bin/python3
"""Speed and memory of the examples with several networks and own losses beside PyTorch.

Lockstep: the programs of examples/ as they are, two threads; the median duration of an iteration,
which they print. It includes the mini-batch, which PyTorch has ready. PyTorch: the same networks,
losses and updates (examples_step.py). Each way of running them has its own process. Short runs
alternate, and the figures are medians over the rounds. Memory is what a process has had resident at most; of
Lockstep it includes all that the example does besides (other networks, pictures, data), of PyTorch
the import, whose own share is told as well. Debian's PyTorch needs OpenBLAS (libopenblas0-pthread).

If PyTorch computed nothing but its products and convolutions, and Lockstep's took the same time, the
ratio would be "products allow".
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import lockstep_runs

THREADS = 2
# Iterations of a run of Lockstep; ways of PyTorch besides "eager".
EXAMPLES = {"gan": (200, ("fused", "channels-last", "compiled")),
            "variational_autoencoder": (800, ("fused", "compiled")),
            "teacher_and_student": (600, ("fused", "channels-last", "compiled")),
            "contrastive_pairs": (800, ("fused", "channels-last", "compiled")),
            "physics_informed": (3000, ("fused", "compiled"))}


def run_lockstep(folder, name):
    with tempfile.TemporaryDirectory() as work:
        out, peak = lockstep_runs.run_measured([os.path.join(folder, name), str(EXAMPLES[name][0])],
                                               cwd=work)
    step = float(re.search(r"an iteration: ([0-9.]+) ms", out).group(1)) / 1e3
    return {"Lockstep": {"step": step, "peak": peak}}


def run_torch(python, name, ways, seconds):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "examples_step.py")
    results = {}
    for way in ways:
        done = subprocess.run([python, script, name, way, str(THREADS), str(seconds)],
                              capture_output=True, text=True, check=False, timeout=600)
        if done.returncode != 0:
            raise SystemExit(f"error: {name}, {way}: {done.stderr[-2000:]}")
        result = json.loads(done.stdout.splitlines()[-1])
        results[f"PyTorch {result['version'].split('+')[0]}, {way}"] = result
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", metavar="FOLDER", help="where the examples are built",
                        default=os.path.join(lockstep_runs.TOP, "build", "release", "examples"))
    parser.add_argument("--example", choices=list(EXAMPLES), action="append",
                        help="only this one; repeat for more")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="of each run of PyTorch")
    parser.add_argument("--python", default="/usr/bin/python3", help="with Debian's PyTorch")
    parser.add_argument("--newest", metavar="PYTHON", help="a Python with the newest PyTorch")
    parser.add_argument("--json", metavar="FILE", help="where the figures go as JSON")
    arguments = parser.parse_args()
    report = {"machine": lockstep_runs.machine(), "examples": {}}
    print("{processor}, {cores} cores, load {load_before:.1f} before".format(**report["machine"]))
    for name in arguments.example or EXAMPLES:
        rounds = []
        for _ in range(arguments.rounds):
            results = run_lockstep(arguments.programs, name)
            results |= run_torch(arguments.python, name, ("eager",), arguments.seconds)
            if arguments.newest:
                results |= run_torch(arguments.newest, name, ("eager",) + EXAMPLES[name][1],
                                     arguments.seconds)
            rounds.append(results)
        report["examples"][name] = rounds
        print(f"\n{name}")
        lockstep_runs.print_table(["", "ms", "ratio", "lowest", "highest", "products, ms",
                                   "products allow", "peak MiB", "import MiB"],
                                  [row_of(way, rounds) for way in rounds[0]])
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)
    return 0


def row_of(way, rounds):
    def median(key):
        return statistics.median(r[way][key] for r in rounds)
    ratios = [r[way]["step"] / r["Lockstep"]["step"] for r in rounds]
    row = [way, f"{1e3 * median('step'):.2f}", f"{statistics.median(ratios):.2f}",
           f"{min(ratios):.2f}", f"{max(ratios):.2f}", "", "", f"{median('peak'):.0f}", ""]
    if way != "Lockstep":
        row[5] = f"{1e3 * median('products'):.2f}"
        row[6] = f"{median('step') / median('products'):.2f}"
        row[8] = f"{median('imported'):.0f}"
    return row


if __name__ == "__main__":
    sys.exit(main())
