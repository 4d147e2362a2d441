#!/usr/bin/python3
"""What worker processes cost: two workers of one thread that train one network together, beside two
trainings of one thread each that know nothing of each other and run at the same time; and beside
one process of two threads.

Images per second of all, from the runs' own logs, between the first third of the time and its end;
by turns; medians over the rounds. With --data the networks are those of examples/jobs, S1 with
mini-batches of 128; without, a small one that learns the built-in digits.
"""

import argparse
import os
import statistics
import subprocess
import tempfile

import lockstep_runs

LIMIT = 600


def start(arguments, job, out, settings, more):
    command = [arguments.command, "train", lockstep_runs.job_path(job), "--out", out, "--quiet",
               "--json", "--set", f"training.max_time={arguments.seconds}",
               "--set", "max_epochs=100000"]
    for setting in settings:
        command += ["--set", setting]
    environment = dict(os.environ, **({"LOCKSTEP_DATA": arguments.data} if arguments.data else {}))
    return subprocess.Popen(command + more, env=environment, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def rate(out, seconds):
    """Images per second of iterations, validations excluded."""
    iterations, _ = lockstep_runs.read_log(out)
    middle = [e for e in iterations if seconds / 3 < e["elapsed"] < seconds]
    return sum(e["observations"] for e in middle) / sum(e["seconds"] for e in middle)


def together(arguments, job, settings, runs):
    """The sum over runs that go on at the same time, each with arguments of its own."""
    with tempfile.TemporaryDirectory() as folder:
        outs = [os.path.join(folder, str(n)) for n in range(len(runs))]
        children = [start(arguments, job, out, settings, more) for out, more in zip(outs, runs)]
        for child in children:
            if child.wait(timeout=LIMIT) not in (0, lockstep_runs.STOPPED):
                raise SystemExit(f"error: exit code {child.returncode} from: {child.args}")
        return sum(rate(out, arguments.seconds) for out in outs)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"), metavar="FOLDER",
                        help="holds cifar10/ (default: $LOCKSTEP_TEST_DATA)")
    parser.add_argument("--seconds", type=float, default=15, help="of each training")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    jobs = [("digits", "digits", [])]
    if arguments.data:
        jobs = [("S1, mini-batch 128", "cifar10_s1", ["mini_batch_size=128"]),
                ("S3, depth 1", "cifar10_s3", [])]
    rows = []
    for name, job, settings in jobs:
        one = ["--threads", "1"]
        apart, workers, threads = [], [], []
        for _ in range(arguments.rounds):
            apart.append(together(arguments, job, settings, [one, one]))
            workers.append(together(arguments, job, settings, [["--workers", "2"] + one]))
            threads.append(together(arguments, job, settings, [["--threads", "2"]]))
        row = [name, f"{statistics.median(apart):,.0f}"]
        for figures in (workers, threads):
            ratios = [figure / reference for figure, reference in zip(figures, apart)]
            row += [f"{statistics.median(figures):,.0f}",
                    f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"]
        rows.append(row)
    lockstep_runs.print_table(["images per second", "two trainings", "two workers", "ratio",
                               "two threads", "ratio"], rows)


if __name__ == "__main__":
    main()
