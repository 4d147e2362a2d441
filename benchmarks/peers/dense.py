#!/usr/bin/python3
"""Training speed of networks of fully connected layers beside PyTorch, in observations per second.

Lockstep: real trainings by the command, with shuffling, metrics and receipts; the median of the
iterations' seconds in its own log. PyTorch: its whole step on random data (dense_step.py), by one
and two threads. Both in fp32, and in bf16 where the processor multiplies it. Debian's PyTorch needs OpenBLAS (libopenblas0-pthread), otherwise it multiplies by a
slow reference library. Short runs alternate; the figures are medians over the rounds. --newest adds
another Python's PyTorch, and --before another build of Lockstep. Processor milliseconds of a step
follow, because other programs on the machine change them less.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile

import lockstep_runs

THREADS = 2
WARM_UP = 3
# Title, layers, mini-batch; whether the inputs are the targets.
NETWORKS = {"mlp": ("4 x 1,024, mini-batch 128", [784] + [1024] * 4 + [10], 128, False),
            "mlp-1024": ("4 x 1,024, mini-batch 1,024", [784] + [1024] * 4 + [10], 1024, False),
            "wide": ("3 x 4,096, mini-batch 128", [784] + [4096] * 3 + [10], 128, False),
            "autoencoder": ("784-512-64-512-784", [784, 512, 64, 512, 784], 128, True),
            "small": ("200 features, 3 x 256, mini-batch 64", [200] + [256] * 3 + [10], 64, False)}
SOLVERS = ("sgdm", "adam")
# By precision: what follows the names of its rows. Times are divided by ours of the same precision.
PRECISIONS = {"fp32": ""}


def write_rows(path, features, rows=6_400):
    with open(path, "w") as file:
        file.write(",".join(f"x{i}" for i in range(features)) + ",label\n")
        for row in range(rows):
            numbers = (f"{(row * 31 + i * 17) % 97 / 97:.3f}" for i in range(features))
            file.write(",".join(numbers) + f",c{row % 10}\n")


def job_text(layers, mini_batch, image, solver, data):
    parts = []
    for units in layers[1:]:
        parts += [f'{{ type = "fully_connected", units = {units} }}', '{ type = "relu" }']
    parts.pop()
    if image:
        parts.append('{ type = "reshape", size = [1, 28, 28] }')
    else:
        parts.append('{ type = "softmax" }')
    if layers[0] == 784:
        shape = '{ type = "image_input", height = 28, width = 28, channels = 1 }'
    else:
        shape = f'{{ type = "feature_input", features = {layers[0]} }}'
    targets = 'targets = "inputs"' if image else ""
    loss = "mean_squared_error" if image else "cross_entropy"
    return f"""[data]
train = "{data}"
{targets}
[network]
layers = [ {shape}, {", ".join(parts)} ]
loss = "{loss}"
[training]
solver = "{solver}"
initial_learning_rate = 1e-5
mini_batch_size = {mini_batch}
max_epochs = 1000
"""


def has_bf16():
    with open("/proc/cpuinfo") as file:
        return "avx512_bf16" in file.read()


def run_of_lockstep(command, job, iterations, more):
    """Seconds of a step, and processor seconds of the whole run."""
    with tempfile.TemporaryDirectory() as folder:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        out = os.path.join(folder, "run")
        lockstep_runs.train(command, job, out, [f"max_iterations={iterations}", *more], THREADS)
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        log = lockstep_runs.read_log(out)[0][WARM_UP:]
    processor = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return statistics.median(entry["seconds"] for entry in log), processor


def time_lockstep(command, job, iterations, more):
    _, short = run_of_lockstep(command, job, iterations // 4 + WARM_UP, more)
    step, long = run_of_lockstep(command, job, iterations + WARM_UP, more)
    return {"step": step, "processor": (long - short) / (iterations - iterations // 4)}


def time_torch(python, job):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dense_step.py")
    done = subprocess.run([python, script, json.dumps(job)], capture_output=True, text=True,
                          check=True, timeout=900)
    result = json.loads(done.stdout.splitlines()[-1])
    threads = "1 thread" if job["threads"] == 1 else f"{job['threads']} threads"
    title = f"PyTorch {result['version'].split('+')[0]}, {threads}"
    return {f"{title}, {name}": times for name, times in result["ways"].items()}


def measure(name, solver, arguments, folder):
    title, layers, mini_batch, image = NETWORKS[name]
    data = "builtin:digits"
    if layers[0] != 784:
        data = os.path.join(folder, "rows.csv")
        if not os.path.exists(data):
            write_rows(data, layers[0])
    job = os.path.join(folder, "job.toml")
    with open(job, "w") as file:
        file.write(job_text(layers, mini_batch, image, solver, data))
    operations = 6 * mini_batch * sum(a * b for a, b in zip(layers, layers[1:]))
    iterations = max(20, min(2_000, int(arguments.seconds * 1e11 / operations)))
    peer = {"layers": layers, "image": image, "mini_batch": mini_batch, "solver": solver,
            "seconds": arguments.seconds}
    rounds = []
    for _ in range(arguments.rounds):
        times = {}
        for command, way in ((arguments.command, "Lockstep"),
                             (arguments.before, "Lockstep before")):
            for precision in PRECISIONS if command else ():
                times[way + PRECISIONS[precision]] = time_lockstep(
                    command, job, iterations, [f"precision={precision}", *arguments.set])
        for python in filter(None, [arguments.python, arguments.newest]):
            for threads in (1, THREADS):
                times |= time_torch(python, {**peer, "threads": threads})
        rounds.append(times)
    median = {way: {key: statistics.median(r[way][key] for r in rounds)
                    for key in ("step", "processor")} for way in rounds[0]}
    return title, mini_batch, median, rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--before", metavar="COMMAND", help="another build's command")
    parser.add_argument("--network", choices=list(NETWORKS), help="only this one")
    parser.add_argument("--solver", choices=SOLVERS, help="only this one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="of each short run, about")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="changes Lockstep's jobs, as shard_size=64; repeat for more")
    parser.add_argument("--python", default="/usr/bin/python3", help="with Debian's PyTorch")
    parser.add_argument("--newest", metavar="PYTHON", help="a Python with the newest PyTorch")
    parser.add_argument("--json", metavar="FILE", help="where the figures go as JSON")
    arguments = parser.parse_args()
    if has_bf16():
        PRECISIONS["bf16"] = ", bf16"
    report = {"machine": lockstep_runs.machine(), "rounds": arguments.rounds, "networks": {}}
    print("{processor}, {cores} cores, load {load_before:.1f} before".format(**report["machine"]))
    with tempfile.TemporaryDirectory() as folder:
        for name in [arguments.network] if arguments.network else NETWORKS:
            for solver in [arguments.solver] if arguments.solver else SOLVERS:
                title, mini_batch, median, rounds = measure(name, solver, arguments, folder)
                report["networks"][f"{title}, {solver}"] = {"median": median, "rounds": rounds}
                print(f"\n{title}, {solver}")
                rows = []
                for way, times in median.items():
                    ours = median["Lockstep, bf16" if way.endswith(", bf16") else "Lockstep"]
                    rows.append([way, f"{mini_batch / times['step']:,.0f}",
                                 f"{times['step'] / ours['step']:.2f}",
                                 f"{1e3 * times['processor']:.2f}",
                                 f"{times['processor'] / ours['processor']:.2f}"])
                lockstep_runs.print_table(["", "per second", "time / ours", "processor ms",
                                           "processor / ours"], rows)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
