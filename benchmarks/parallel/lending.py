#!/usr/bin/env python3
"""What idle workers save that lend their threads: seconds of a sweep with and without --no-lending.

Sweeps with and without lending alternate, so that a change of the machine's load meets both. All
must write the same trials.csv.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent


def seconds_of(arguments, out, lends):
    """Seconds of a sweep, and its table."""
    line = [arguments.command, "sweep", arguments.job, "--workers", str(arguments.workers), "--quiet",
            "--not-recorded", "--out", out]
    for setting in arguments.set:
        line += ["--set", setting]
    begin = time.perf_counter()
    subprocess.run(line + ([] if lends else ["--no-lending"]), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin, (pathlib.Path(out) / "trials.csv").read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=str(TOP / "build" / "release" / "bin" / "lockstep"))
    parser.add_argument("--job", default=str(TOP / "examples" / "jobs" / "digits_sweep.toml"))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    times, tables = {True: [], False: []}, set()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before; {arguments.workers} workers")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            # Who is first changes, too.
            for lends in ((True, False) if number % 2 == 0 else (False, True)):
                took, table = seconds_of(arguments, os.path.join(folder, f"{number}{lends}"), lends)
                times[lends].append(took)
                tables.add(table)
    with_lending, without = (statistics.median(times[lends]) for lends in (True, False))
    for lends, name in ((True, "with lending"), (False, "without")):
        print(f"{name:<14} {statistics.median(times[lends]):7.2f} s   "
              + " ".join(f"{took:.2f}" for took in times[lends]))
    print(f"without / with  {without / with_lending:6.2f}")
    if len(tables) != 1:
        sys.exit("the tables of trials differ")
    print("one table of trials")


if __name__ == "__main__":
    main()
