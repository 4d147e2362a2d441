
import json
import os
import platform
import subprocess

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STOPPED = 130  # exit code of a training whose time is over
COMMAND = os.path.join(TOP, "build", "release", "bin", "lockstep")


def job_path(name):
    """A job file, or the name of one in examples/jobs."""
    return name if os.path.exists(name) else os.path.join(TOP, "examples", "jobs", name + ".toml")


def train(command, job, out, settings, threads=None, data=None, more=()):
    """Runs `lockstep train` into the folder `out`; returns its result. max_time may end it."""
    arguments = [command, "train", job, "--out", out, "--json", "--quiet", *more]
    for setting in settings:
        arguments += ["--set", setting]
    if threads:
        arguments += ["--threads", str(threads)]
    environment = dict(os.environ, **({"LOCKSTEP_DATA": data} if data else {}))
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
    if done.returncode not in (0, STOPPED):
        raise SystemExit(f"{done.stderr}error: exit code {done.returncode} from: "
                         f"{' '.join(arguments)}")
    return json.loads(done.stdout.splitlines()[-1])


def read_log(out):
    """The lines of a run's log: those of iterations, those of validations."""
    with open(os.path.join(out, "log.jsonl")) as file:
        entries = [json.loads(line) for line in file]
    return ([e for e in entries if "seconds" in e],
            [e for e in entries if "validation_accuracy" in e])


def machine():
    """The processor, the cores this process may use, and how busy they are already."""
    model = platform.machine()
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"processor": model, "cores": len(os.sched_getaffinity(0)),
            "load_before": os.getloadavg()[0]}


def print_table(header, rows):
    """Lines up columns: the first to the left, the others to the right."""
    table = [header] + rows
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    for row in table:
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("  ".join(cells).rstrip(), flush=True)
