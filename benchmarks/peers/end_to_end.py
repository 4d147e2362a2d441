#!/usr/bin/python3
"""A whole training from a folder of JPEG images, beside PyTorch: images per second with start,
decoding, augmentation, validation and test included, and the most memory that it took.

Both train examples/jobs/cifar10_s3.toml for a few epochs, as processes of their own: `lockstep
train`, and torch_accuracy.py, which decodes the images once, by as many processes as are fastest in trials
before, keeps them as bytes and augments whole mini-batches. Files were read before, so that they
come from the system's memory. The two by turns; medians over the rounds.
"""

import argparse
import os
import statistics
import sys
import tempfile

import lockstep_runs
from lockstep_runs import seconds_and_mib

WORKERS = (0, 1, 2, 4)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"), metavar="FOLDER",
                        help="holds cifar10/train and cifar10/test (default: $LOCKSTEP_TEST_DATA)")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="compute threads of both")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    train = os.path.join(arguments.data or "", "cifar10", "train")
    if not arguments.data or not os.path.isdir(train):
        parser.error("needs CIFAR-10: --data, or LOCKSTEP_TEST_DATA")
    images = sum(len(files) for _, _, files in os.walk(train)) * 9 // 10 * arguments.epochs
    here = os.path.dirname(os.path.abspath(__file__))

    def torch(*more):
        return [sys.executable, os.path.join(here, "torch_accuracy.py"), "--augment", "--data",
                arguments.data, "--threads", str(arguments.threads), "--seeds", "0",
                *map(str, more)]

    seconds_and_mib(torch("--epochs", 0))  # reads the files
    trials = {}
    for workers in WORKERS:
        trials[workers] = seconds_and_mib(torch("--epochs", 0, "--workers", workers))[0]
    best = min(trials, key=trials.get)
    machine = lockstep_runs.machine()
    print(f"{machine['processor']}, {machine['cores']} cores; {images:,} images in "
          f"{arguments.epochs} epochs, {arguments.threads} threads; medians of {arguments.rounds}")
    print("PyTorch starts, decodes and tests in " +
          ", ".join(f"{seconds:.1f} s by {workers}" for workers, seconds in trials.items()) +
          " processes\n")

    figures = {"Lockstep": [], "PyTorch": []}
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as out:
            figures["Lockstep"].append(seconds_and_mib(
                [arguments.command, "train", lockstep_runs.job_path("cifar10_s3"), "--quiet",
                 "--out", os.path.join(out, "run"), "--threads", str(arguments.threads), "--set",
                 f"max_epochs={arguments.epochs}"],
                {"LOCKSTEP_DATA": arguments.data}))
        figures["PyTorch"].append(
            seconds_and_mib(torch("--epochs", arguments.epochs, "--workers", best)))
    rows, rates = [], {}
    for name, runs in figures.items():
        seconds, memory = (statistics.median(column) for column in zip(*runs))
        rates[name] = images / seconds
        rows.append([name, f"{seconds:.1f}", f"{rates[name]:,.0f}", f"{memory:,.0f}"])
    lockstep_runs.print_table(["", "seconds", "images/s", "peak MiB"], rows)
    print(f"\nratio {rates['Lockstep'] / rates['PyTorch']:.2f}")


if __name__ == "__main__":
    sys.exit(main())
