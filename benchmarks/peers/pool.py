#!/usr/bin/python3
"""What a task costs in a pool of worker processes: Lockstep's (benchmarks/parallel/pool.cpp, with a
bare encrypted ZeroMQ message beside it) and Python's concurrent.futures.ProcessPoolExecutor, by
turns; medians over the rounds."""

import argparse
import concurrent.futures
import re
import statistics
import subprocess
import time

import lockstep_runs

TASKS = 20000


def nothing():
    pass


def python_pool(workers):
    """Seconds of an empty task there and back, and tasks in a second."""
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        for _ in range(200):
            pool.submit(nothing).result()
        trips = []
        for _ in range(1000):
            before = time.perf_counter()
            pool.submit(nothing).result()
            trips.append(time.perf_counter() - before)
        before = time.perf_counter()
        futures = [pool.submit(nothing) for _ in range(TASKS)]
        for future in futures:
            future.result()
        return statistics.median(trips), TASKS / (time.perf_counter() - before)


def lockstep_pool(program, workers):
    """The same, and seconds of a bare message there and back."""
    done = subprocess.run([program, "--workers", str(workers), "--rounds", "1"], check=True, text=True,
                          capture_output=True, timeout=300)
    bare, task, _, rate = map(float, re.findall(r"([\d.]+)(?: us| a second)?\n", done.stdout))
    return task / 1e6, rate, bare / 1e6


def median(figures, i):
    return statistics.median(f[i] for f in figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="build/release/benchmarks/pool", metavar="PROGRAM",
                        help="the benchmark of Lockstep's (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, metavar="ROUNDS")
    arguments = parser.parse_args()
    rows = []
    for workers in (1, 2):
        own, python = [], []
        for _ in range(arguments.rounds):
            own.append(lockstep_pool(arguments.program, workers))
            python.append(python_pool(workers))
        rows.append([str(workers), f"{1e6 * median(own, 2):.0f}", f"{1e6 * median(own, 0):.0f}",
                     f"{median(own, 0) / median(own, 2):.2f}", f"{1e6 * median(python, 0):.0f}",
                     f"{median(own, 1):,.0f}", f"{median(python, 1):,.0f}"])
    lockstep_runs.print_table(["workers", "message, us", "task, us", "ratio", "Python's task, us",
                               "tasks a second", "Python's"], rows)


if __name__ == "__main__":
    main()
