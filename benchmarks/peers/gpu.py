#!/usr/bin/env python3
"""Training speed on a GPU beside PyTorch at its fastest, in images per second, and beside what the
GPU could do at most.

Lockstep: real trainings by the command, with augmentation, shuffling, metrics, digests and
receipts; the median of the iterations' seconds in its own log. PyTorch: its whole step (forward,
loss, backward, SGD with momentum) on random images that lie on the GPU, with channels last: as it
comes ("eager"), compiled with CUDA graphs ("compiled"), and compiled with the whole step, optimizer
included, captured in one CUDA graph ("captured"); its best counts for each precision. Each
measurement of PyTorch is a separate process (gpu_step.py). Runs alternate; the figures are medians
over the rounds. Networks and precisions are measured one after the other, and each row is printed
when it is known; with --json, each measurement is appended to a file at once.

The roofline: what the step multiplies is counted, and the fewest bytes that it can move; how fast
the GPU multiplies large matrices and copies large arrays is measured by PyTorch in the same call. A
step cannot be faster than the larger of the two times; the share of that in its own time is printed.
The fewest bytes are those of passes that are fused as far as the statistics of the mini-batch
permit. Of each block (convolution, batch normalization, ReLU) the forward pass reads its input and
writes the convolution's result, which the next block normalizes as it reads it; the backward pass
reads the output's gradient, the convolution's result and the input, and writes the input's gradient.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import lockstep_runs
from newest_step import channels_of

WARM_UP = 20  # iterations of every run that do not count
# Title, job, width, depth, mini-batch.
NETWORKS = {"s1": ("S1, depth 4, width 32", "cifar10_s1", 32, 4, 2048),
            "s3": ("S3, depth 1, width 16", "cifar10_s3", 16, 1, 128)}
BYTES = {"bf16": 2, "tf32": 4, "fp16": 2, "fp32": 4}  # of an element, by precision
WAYS = ("eager", "compiled", "captured")  # of PyTorch
HEADER = ["network, mini-batch", "precision", "Lockstep", *(f"PyTorch, {w}" for w in WAYS), "ratio",
          "of the roofline", "bound by"]


class Missing(Exception):
    """A measurement that could not be made."""


def last_line(text):
    lines = [line for line in (text or "").strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def of_torch(arguments, *numbers):
    """The result of gpu_step.py."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_step.py")
    try:
        done = subprocess.run([arguments.python, script, *map(str, numbers)], capture_output=True,
                              text=True, timeout=arguments.limit, check=False)
    except subprocess.TimeoutExpired:
        raise Missing(f"took over {arguments.limit:g} s") from None
    except OSError as error:
        raise Missing(str(error)) from None
    try:
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        pass
    raise Missing(f"exit {done.returncode}: {last_line(done.stderr)}")


def of_lockstep(arguments, job, width, depth, mini_batch, precision):
    """Seconds of an iteration."""
    settings = [f"width={width}", f"depth={depth}", f"mini_batch_size={mini_batch}",
                f"precision={precision}", f"max_time={arguments.seconds + 5}", "max_epochs=100000",
                f"device={arguments.device}", "validation_frequency=1000000",
                "checkpoint_frequency=1000000"]
    if not arguments.data:
        settings += [f"data.train={arguments.images}", 'data.test=""', 'data.validation=""']
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        try:
            lockstep_runs.train(arguments.command, lockstep_runs.job_path(job), out, settings,
                                data=arguments.data, limit=arguments.limit)
        except subprocess.TimeoutExpired:
            raise Missing(f"took over {arguments.limit:g} s") from None
        except SystemExit as error:
            raise Missing(str(error).strip().splitlines()[0]) from None
        iterations, _ = lockstep_runs.read_log(out)
    seconds = [e["seconds"] for e in iterations[WARM_UP:] if e["observations"] == mini_batch]
    if not seconds:
        raise Missing(f"{len(iterations)} iterations are too few, give --seconds more")
    return statistics.median(seconds)


def work_of(width, depth, mini_batch, size):
    """Multiplications and additions of a step, and the fewest bytes that it moves; see above."""
    operations = moved = 0
    for level, convolutions in enumerate(channels_of(width, depth)):
        pixels = mini_batch * (32 >> level) ** 2
        for before, after in convolutions:
            first = before == 3
            operations += 2 * pixels * before * after * 9 * (2 if first else 3)
            moved += size * pixels * (before * (2 if first else 3) + after * 3)
    return operations, moved


class Journal:
    """Appends each measurement to a file, so that it is there if this process is killed."""

    def __init__(self, path):
        self.path = path

    def add(self, **entry):
        if self.path:
            with open(self.path, "a") as file:
                file.write(json.dumps(entry) + "\n")
                file.flush()
                os.fsync(file.fileno())


def median_of(values):
    return statistics.median(values) if values else float("nan")


def measure(arguments, journal, name, precision):
    """The row of one network and precision."""
    title, job, width, depth, mini_batch = NETWORKS[name]
    mini_batch = arguments.mini_batch or mini_batch
    times, failed = {way: [] for way in ("Lockstep", *WAYS)}, set()

    def take(way, seconds_of):
        if any(why.startswith(way + ":") for why in failed):
            return
        entry = {"network": name, "mini_batch": mini_batch, "precision": precision, "way": way}
        try:
            times[way].append(seconds_of())
            journal.add(**entry, seconds=times[way][-1])
        except Missing as why:
            failed.add(f"{way}: {why}")
            journal.add(**entry, missing=str(why))
    for _ in range(arguments.rounds):
        take("Lockstep", lambda: of_lockstep(arguments, job, width, depth, mini_batch, precision))
        for way in WAYS if arguments.peer else ():
            take(way, lambda way=way: of_torch(  # pylint: disable=cell-var-from-loop
                arguments, "step", arguments.device, width, depth, mini_batch, precision, way,
                arguments.seconds)["seconds"])
    own = median_of(times["Lockstep"])
    peers = [median_of(times[way]) for way in WAYS if times[way]]
    floor, bound = float("nan"), "-"
    if arguments.peer:
        try:
            most = of_torch(arguments, "ceilings", arguments.device, precision)
            journal.add(network=name, precision=precision, ceilings=most)
            operations, moved = work_of(width, depth, mini_batch, BYTES[precision])
            by_each = {"operations": operations / most["operations"], "bytes": moved / most["bytes"]}
            bound = max(by_each, key=by_each.get)
            floor = by_each[bound]
        except Missing as why:
            failed.add(f"roofline: {why}")

    def shown(number, text):
        return format(number, text) if number == number else "-"
    row = [f"{title}, {mini_batch}", precision]
    row += [shown(mini_batch / median_of(times[way]), ",.0f") for way in ("Lockstep", *WAYS)]
    row += [shown(min(peers, default=float("nan")) / own, ".2f"), shown(floor / own, ".2f"), bound]
    return row, [f"{title}, {precision}, {why}" for why in sorted(failed)]


def print_row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"), metavar="FOLDER",
                        help="holds cifar10/ (default: $LOCKSTEP_TEST_DATA; else random images)")
    parser.add_argument("--network", choices=list(NETWORKS), help="only this one")
    parser.add_argument("--precision", choices=list(BYTES), action="append",
                        help="only this one; repeat for more")
    parser.add_argument("--mini-batch", type=int, help="another one for all networks")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"],
                        help="cpu: to try the benchmark out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of each run")
    parser.add_argument("--limit", type=float, default=300,
                        help="seconds after which a run is given up, with its start and compiling")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--no-peer", dest="peer", action="store_false", help="Lockstep alone")
    parser.add_argument("--json", metavar="FILE", help="each measurement is appended to this file")
    arguments = parser.parse_args()
    journal = Journal(arguments.json)
    print(f"{arguments.device}, images per second, medians of {arguments.rounds} rounds\n")
    print_row(HEADER)
    print_row(["---"] * len(HEADER))
    without_lockstep = []
    with tempfile.TemporaryDirectory() as arguments.images:
        if not arguments.data:
            lockstep_runs.gather_images(None, arguments.images)
        for precision in arguments.precision or BYTES:
            for name in [arguments.network] if arguments.network else NETWORKS:
                row, missing = measure(arguments, journal, name, precision)
                print_row(row)
                for why in missing:
                    print(f"left out: {why}", flush=True)
                without_lockstep += [why for why in missing if " Lockstep: " in why]
    return 1 if without_lockstep else 0


if __name__ == "__main__":
    sys.exit(main())
