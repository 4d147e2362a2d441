#!/usr/bin/env python3
"""What is to be found out on a GPU, in three commands of under ten minutes each.

usage: run correctness|law|speed|library [--device cuda:0|cpu] [--minutes N] [--data FOLDER]
           [--out FOLDER] [--precisions LIST] [--short]

correctness: `lockstep verify-device`, the tests of ops in parallel, a part of them under
compute-sanitizer. law: one digest for streams 1, 2 and 4, for repeats, and for a run that was stopped
and resumed, in each precision. speed: the benchmark beside PyTorch, one row after the other, and that
of threads. library: compiles the GPUs' library here from its sources, with nvcc, and puts it in the
place of the one in the bundle.

Every step has a time limit. When it ends, its row goes to rows.jsonl and table.md, and the archive
results.tar.gz is written anew, so a killed command leaves all that was known. --device cpu tries the
commands out. --data: a folder that holds cifar10/; without it images are random.
Exit code: 0 all passed, 1 something failed, 3 nothing was tested.
"""

import argparse
import ctypes
import glob
import json
import os
import shlex
import shutil
import signal
import site
import subprocess
import sys
import tarfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # of sources
BUNDLE = os.path.dirname(TOP)
# Needed by liblockstep_cuda.so, or loaded by it or by these.
CUDA_LIBRARIES = ("libcudnn.so.9", "libcublasLt.so.13", "libnvrtc.so.13", "libnccl.so.2",
                  "libcuda.so.1")
PASSED, FAILED, NOT_TESTED = "passed", "FAILED", "not tested"
# Tests of ops that run under compute-sanitizer, which makes them slower by a factor of some 50.
FEW_OPS = ("*GradientsMatch*/cuda*pooling2d*", "*GradientsMatch*/cuda*normalization*",
           "*GradientsMatch*/cuda*fully*", "*GradientsMatch*/cuda*conv3d*", "*/cuda*entropy*",
           "*/cuda*dropout*")
# Under racecheck, which is slower by another factor of ten: kernels whose threads share memory.
SHARED_OPS = ("*GradientsMatch*/cuda*normalization_image_of_16*bf16",
              "*GradientsMatch*/cuda*group_normalization*", "*/cuda*entropy*")


def library_folders():
    """Folders of the CUDA libraries here: the toolkit's, or those of Python packages."""
    roots = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":") + [
        "/usr/local/cuda/lib64", "/usr/local/nvidia/lib64"]
    for root in dict.fromkeys(roots):
        folders += sorted(glob.glob(os.path.join(root, "nvidia", "*", "lib")))
    return [f for f in dict.fromkeys(folders) if f and os.path.isdir(f) and any(
        os.path.exists(os.path.join(f, name)) for name in CUDA_LIBRARIES)]


def write_commands():
    """bin/NAME runs libexec/NAME with a library path of its own: one for all would break PyTorch,
    which brings other versions. The compiler's library is the bundle's only where this system's is
    older."""
    folder = os.path.join(BUNDLE, "bin")
    os.makedirs(folder, exist_ok=True)
    probe = os.path.join(BUNDLE, "libexec", "lockstep")
    own = os.path.join(BUNDLE, "lib")
    for more in ([], [os.path.join(own, "compiler")]):
        path = ":".join([*more, own, *library_folders()])
        done = subprocess.run([probe, "--version"], capture_output=True, text=True, timeout=60,
                              env=dict(os.environ, LD_LIBRARY_PATH=path), check=False)
        if done.returncode == 0:
            break
    else:
        sys.exit(f"the command does not start here: {done.stderr.strip()}")
    for name in os.listdir(os.path.join(BUNDLE, "libexec")):
        script = os.path.join(folder, name)
        with open(script, "w") as file:
            file.write(f"#!/bin/sh\nLD_LIBRARY_PATH={shlex.quote(path)}\n"
                       "export LD_LIBRARY_PATH\n"
                       f"exec {shlex.quote(os.path.join(BUNDLE, 'libexec', name))} \"$@\"\n")
        os.chmod(script, 0o755)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Record:
    """Runs steps and keeps what they gave."""

    def __init__(self, arguments):
        self.command, self.out = arguments.command, arguments.out
        self.end = time.monotonic() + 60 * arguments.minutes
        self.states = []
        self.number = 0
        os.makedirs(os.path.join(self.out, self.command), exist_ok=True)

    def left(self):
        return self.end - time.monotonic()

    def path(self, name):
        return os.path.join(self.out, self.command, name)

    def row(self, step, state, seconds=0.0, **more):
        """Notes a step's result, on the disk before it returns."""
        self.states.append(state)
        entry = {"command": self.command, "step": step, "state": state,
                 "seconds": round(seconds, 1), **more}
        words = " ".join(f"{k}={v}" for k, v in more.items())
        print(f"{state:>10}  {step}  {seconds:.1f} s  {words}", flush=True)
        for name, line in (("rows.jsonl", json.dumps(entry)),
                           ("table.md", f"| {step} | {state} | {seconds:.1f} | {words} |")):
            new = not os.path.exists(self.path(name))
            with open(self.path(name), "a") as file:
                if new and name == "table.md":
                    file.write("| step | result | seconds | |\n| --- | --- | --- | --- |\n")
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
        self.archive()

    def archive(self):
        """All results so far but models; an earlier archive is replaced at once or not at all."""
        def kept(member):
            large = member.isfile() and member.size > 4 << 20
            leave = large or member.name.endswith(("/images", "/build", ".safetensors")) or (
                "/checkpoint" in member.name)
            return None if leave else member
        target = os.path.join(self.out, "results.tar.gz")
        with tarfile.open(target + ".new", "w:gz", compresslevel=3) as file:
            for name in ("correctness", "law", "speed", "library"):
                if os.path.isdir(os.path.join(self.out, name)):
                    file.add(os.path.join(self.out, name), name, filter=kept)
        os.replace(target + ".new", target)

    def start(self, name, command, environment=None):
        """A process whose output goes to the log of the step, which ends with this one."""
        log = open(self.path(name + ".log"), "ab")  # pylint: disable=consider-using-with
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                stdin=subprocess.DEVNULL, start_new_session=True,
                                preexec_fn=die_with_parent,  # pylint: disable=subprocess-popen-preexec-fn
                                env=dict(os.environ, **(environment or {})))

    def finish(self, process, limit):
        """The exit code; None: over the limit, and killed with its children."""
        try:
            return process.wait(max(0.1, min(limit, self.left())))
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()

    def step(self, step, command, limit, environment=None, good=(0,), untested=(), quiet=False):
        """Runs a command as a step of its own, with a row; whether it passed."""
        if self.left() < 5:
            self.row(step, NOT_TESTED, why="no time is left")
            return False
        before = time.monotonic()
        code = self.finish(self.start(name_of(step), command, environment), limit)
        return self.ended(step, code, before, good, untested, quiet)

    def ended(self, step, code, before, good=(0,), untested=(), quiet=False):
        """The row of a command that began at `before` and has ended; whether it passed. The seconds
        are those until now: of commands side by side, until the one before was seen to end."""
        state = PASSED if code in good else NOT_TESTED if code in untested else FAILED
        if not quiet or state != PASSED:
            self.row(step, state, time.monotonic() - before, **({} if code in good else {
                "exit": "over its limit" if code is None else code,
                "log": name_of(step) + ".log"}))
        return state == PASSED


def name_of(step):
    """Of the step's log, without its ending."""
    return step.replace(" ", "-").replace("/", "-")


def tool(name):
    return os.path.join(BUNDLE, "bin", name)


def lockstep():
    return tool("lockstep")


def device_name(device):
    return "cuda" if device.startswith("cuda") else "cpu"


def correctness(record, arguments):
    record.step("info", [lockstep(), "info"], 60)
    if shutil.which("nvidia-smi"):
        record.step("nvidia-smi", ["nvidia-smi", "-q"], 60)
    known = subprocess.run([lockstep(), "verify-device", "--help"], capture_output=True, timeout=60,
                           check=False).returncode == 0
    if known and not (arguments.short and arguments.device == "cpu"):
        record.step("self-test", [lockstep(), "verify-device", arguments.device, "--json",
                                  record.path("verdict.json")], 150, untested=(3,))
    else:
        record.row("self-test", NOT_TESTED, why="left out when short" if known else "no such command")
    tests_of_ops(record, arguments)
    sanitizer = shutil.which("compute-sanitizer") or next(
        iter(glob.glob("/usr/local/cuda*/bin/compute-sanitizer")), None)
    if arguments.device == "cpu":
        record.row("compute-sanitizer", NOT_TESTED, why="for GPUs")
    elif sanitizer is None:
        record.row("compute-sanitizer", NOT_TESTED, why="not installed")
    else:
        # Side by side: each takes the time of one core.
        before = time.monotonic()
        started = {}
        for kind in ("memcheck", "racecheck", "initcheck", "synccheck"):
            ops = SHARED_OPS if kind == "racecheck" else FEW_OPS
            started[f"compute-sanitizer {kind}"] = record.start(
                name_of(f"compute-sanitizer {kind}"),
                [sanitizer, "--tool", kind, "--error-exitcode", "9", tool("engine_test"),
                 "--gtest_filter=" + ":".join(ops), "--gtest_brief=1"])
        for step, process in started.items():
            code = record.finish(process, before + 120 - time.monotonic())
            record.ended(step, code, before)


def tests_of_ops(record, arguments):
    """By as many processes as there are cores; every test's line stands in their logs at once."""
    # Central differences check the references alone, not the device.
    pattern = (f"*/{device_name(arguments.device)}*" + ("pooling*" if arguments.short else "") +
               "-*CentralDifferences*")
    listed = subprocess.run([tool("engine_test"), "--gtest_list_tests", "--gtest_filter=" + pattern],
                            capture_output=True, text=True, timeout=120, check=False).stdout
    tests = sum(line.startswith("  ") for line in listed.splitlines())
    if tests == 0:
        record.row("tests of ops", FAILED, why="there are none for this device")
        return
    shards = max(1, min(8, len(os.sched_getaffinity(0)), tests))
    before = time.monotonic()
    processes = [record.start(f"ops-{i}", [tool("engine_test"), "--gtest_filter=" + pattern],
                              {"GTEST_TOTAL_SHARDS": str(shards),
                               "GTEST_SHARD_INDEX": str(i)}) for i in range(shards)]
    # On a GPU compute-sanitizer needs time, too.
    limit = before + (240 if arguments.device != "cpu" else record.left() - 10)
    for i, process in enumerate(processes):
        code = record.finish(process, limit - time.monotonic())
        with open(record.path(f"ops-{i}.log"), errors="replace") as file:
            lines = file.read().splitlines()
        failed = [line.split()[3].rstrip(",") for line in lines
                  if line.startswith("[  FAILED  ]") and "ms)" in line]
        passed = sum(line.startswith("[       OK ]") for line in lines)
        # The process that ended early names the test in which it did so.
        unfinished = [line.split()[-1] for line in lines if line.startswith("[ RUN ")][-1:]
        more = {"failed_tests": ",".join(failed)} if failed else {}
        if code not in (0, 1):
            more["ended_in"] = (unfinished or ["its start"])[0]
        good = code == 0 and passed > 0
        record.row(f"tests of ops {i + 1} of {shards}", PASSED if good else FAILED,
                   time.monotonic() - before, tests=passed, **more)


def images(record, arguments):
    """Options that name the data of the networks for CIFAR-10."""
    sys.path.insert(0, os.path.join(TOP, "benchmarks", "peers"))
    import lockstep_runs  # pylint: disable=import-outside-toplevel
    folder = record.path("images")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    lockstep_runs.gather_images(arguments.data, folder)
    return ["--set", f"data.train={folder}", "--set", 'data.test=""', "--set",
            'data.validation=""', "--set", "data.validation_fraction=0"]


def law(record, arguments):
    """The receipts of runs that must agree are compared as bytes."""
    device = device_name(arguments.device)
    # Several shards, without which streams would have nothing to share.
    networks = [("digits", 4, ["--set", "shard_size=32"])]
    if not arguments.short:
        data = images(record, arguments)
        for job in ("cifar10_s3", "cifar10_s1"):
            networks.append((job, 2, ["--set", "shard_size=32", "--set", "mini_batch_size=128",
                                      "--set", "max_iterations=20", *data]))
    for precision in ["fp32"] if device == "cpu" else arguments.precisions:
        for job, epochs, settings in networks:
            laws_of(record, device, job, precision, [*settings, "--set", f"max_epochs={epochs}"],
                    arguments)
    custom_loop(record, arguments)
    shutil.rmtree(record.path("images"), ignore_errors=True)


def custom_loop(record, arguments):
    """The example's digest over repeats; it ends with 1 below 98 % of the test digits."""
    program = tool("custom_loop")
    if not os.path.exists(program):
        record.row("custom loop", NOT_TESTED, why="the bundle has none")
        return
    ends = []
    for run in ("first", "repeated"):
        if not record.step(f"custom loop {run}", [program, "--device", arguments.device], 120):
            return
        with open(record.path(f"custom-loop-{run}.log")) as file:
            ends.append(file.read().splitlines()[-1])
    record.row("custom loop digest", PASSED if ends[0] == ends[1] else FAILED, digest=ends[0])


def laws_of(record, device, job, precision, settings, arguments):
    iterations = 12 if arguments.short or device == "cpu" else 20
    settings = [s if not s.startswith("max_iterations=") else f"max_iterations={iterations}"
                for s in settings]
    if not any(s.startswith("max_iterations=") for s in settings):
        settings += ["--set", f"max_iterations={iterations}"]
    base = [lockstep(), "train", os.path.join(TOP, "examples", "jobs", job + ".toml"), "--quiet",
            "--not-recorded", "--device", device, "--set", f"precision={precision}", *settings]
    label = f"{job} {precision}"

    def run(kind, more, good=(0,), resumes=False):
        out = record.path(f"{job}-{precision}-{kind}")
        if not resumes:
            shutil.rmtree(out, ignore_errors=True)
        log = {"LOCKSTEP_DEVICE_LOG": record.path("device-log.jsonl")}
        if not record.step(f"{label} train {kind}", [*base, "--out", out, *more], 120,
                           log, good, quiet=True):
            return None
        return os.path.join(out, "receipt.jsonl")

    def compare(kind, receipt):
        if receipt is None or first is None:
            record.row(f"{label} {kind}", NOT_TESTED, why="a training failed")
            return
        with open(first, "rb") as a, open(receipt, "rb") as b:
            ours, theirs = a.read(), b.read()
        lines = ours.count(b"\n")
        same = ours == theirs and lines >= iterations
        record.row(f"{label} {kind}", PASSED if same else FAILED, lines=lines)
        if not same:
            record.step(f"{label} {kind} diff", [lockstep(), "diff", os.path.dirname(first),
                                                 os.path.dirname(receipt)], 60)

    what, counts = ("threads", (1, 2)) if device == "cpu" else ("streams", (1, 2, 4))
    shares = [(n, ["--threads", str(n)] if device == "cpu" else ["--set", f"streams={n}"])
              for n in counts]
    first = run("first", shares[0][1])
    compare("repeated", run("repeated", shares[0][1]))
    for count, more in shares[1:]:
        compare(f"{what} {count}", run(f"{what}-{count}", more))
    half = ["--set", f"max_iterations={iterations // 2}"]
    if run("resumed", half, good=(0, 130)):
        compare("stopped and resumed", run("resumed", ["--resume"], resumes=True))
    if arguments.short:
        return
    compare("two workers", run("workers", ["--workers", "2", "--threads", "1"]))
    if first:
        record.step(f"{label} verify", [lockstep(), "verify", os.path.dirname(first), "--iteration",
                                        "5"], 60)


def algorithms(record):
    """What the device log of the trainings says: recordings, and each convolution's algorithms."""
    counts, lines = {"made": 0, "failed": 0}, {}
    reasons = set()
    try:
        with open(record.path("device-log.jsonl"), errors="replace") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # cut off by a kill
                if "recording" in entry:
                    counts[entry["recording"]] += 1
                    reasons.add(entry.get("why", ""))
                else:
                    lines[line] = lines.get(line, 0) + 1
    except OSError:
        pass
    with open(record.path("algorithms.jsonl"), "w") as file:
        file.writelines(lines)
    if sum(counts.values()) == 0:
        record.row("recordings", NOT_TESTED, why="none were made", kernels=len(lines))
    else:
        why = {"why": "; ".join(sorted(reasons - {""}))} if counts["failed"] else {}
        record.row("recordings", FAILED if counts["failed"] else PASSED, made=counts["made"],
                   failed=counts["failed"], kernels=len(lines), **why)


def speed(record, arguments):
    device = device_name(arguments.device)
    python = python_with_torch()
    if python is None:
        record.row("PyTorch", NOT_TESTED, why="no Python here has it: Lockstep is measured alone")
    peers = os.path.join(TOP, "benchmarks", "peers")
    seconds, networks, batch = ("4", ("s1", "s3"), [])
    precisions = arguments.precisions
    if device == "cpu":
        seconds, networks, precisions, batch = "0.5", ("s3",), ["fp32"], ["--mini-batch", "16"]
    data = ["--data", arguments.data] if arguments.data else []
    environment = {"LOCKSTEP_TEST_DATA": "", "LOCKSTEP_DEVICE_LOG": record.path("device-log.jsonl")}
    for precision in precisions:
        for name in networks:
            step = f"speed of {name} {precision}"
            record.step(step, [
                sys.executable, os.path.join(peers, "gpu.py"), "--command", lockstep(), "--device",
                device, "--network", name, "--precision", precision, "--rounds", "1", "--seconds",
                seconds, "--limit", "120", "--json", record.path("measurements.jsonl"),
                *(["--python", python] if python else ["--no-peer"]), *batch, *data], 400, environment)
            show_last(record, step, "| S")
    if not arguments.short:
        record.step("speed by threads", [
            sys.executable, os.path.join(peers, "threads.py"), "--command", lockstep(), "--rounds",
            "1", "--seconds", "4", *data], 120, environment)


def show_last(record, step, begin):
    """Adds the row of a step's log to one table of all."""
    with open(record.path(name_of(step) + ".log"), errors="replace") as file:
        rows = [line for line in file if line.startswith(begin)]
    with open(record.path("speed.md"), "a") as file:
        file.writelines(rows)
    sys.stdout.write("".join(rows))
    record.archive()


def python_with_torch():
    for python in (os.environ.get("PEER_PYTHON"), "python3", sys.executable, "/usr/bin/python3"):
        if python and subprocess.run(
                [python, "-c", "import importlib.util as u; exit(u.find_spec('torch') is None)"],
                capture_output=True, timeout=60, check=False).returncode == 0:
            return python
    return None


def library(record, arguments):
    """liblockstep_cuda.so for this GPU alone, from the sources in the bundle."""
    capability = "90"
    asked = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
                           capture_output=True, text=True, check=False) \
        if shutil.which("nvidia-smi") else None
    if asked and asked.returncode == 0:
        capability = asked.stdout.split()[0].replace(".", "")
    folders = library_folders()
    headers = [os.path.join(os.path.dirname(folder), "include") for folder in folders]
    if record.step("library", ["bash", os.path.join(TOP, "tests", "hardware", "build_library.sh"),
                               TOP, record.path("build"), capability], 570,
                   {"LIBRARY_PATH": ":".join(folders), "CPATH": ":".join(headers)}):
        shutil.copy(record.path("build/liblockstep_cuda.so"), os.path.join(BUNDLE, "lib"))
    shutil.rmtree(record.path("build"), ignore_errors=True)
    del arguments


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {"correctness": correctness, "law": law, "speed": speed, "library": library}
    parser.add_argument("command", choices=list(commands))
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu to try this out")
    parser.add_argument("--minutes", type=float, default=9.5, help="after which the command ends")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA") or None)
    parser.add_argument("--out", default=os.environ.get("OUT") or "results", help="for results")
    parser.add_argument("--precisions", type=lambda text: text.split(","),
                        default=["bf16", "fp32", "tf32", "fp16"], help="for law and speed")
    parser.add_argument("--short", action="store_true", help="few cases: to test this program")
    arguments = parser.parse_args()
    arguments.out = os.path.abspath(arguments.out)
    write_commands()
    os.environ["LOCKSTEP_CUDA_LIBRARY"] = os.path.join(BUNDLE, "lib", "liblockstep_cuda.so")
    # Verdicts of the self-test are kept between the commands.
    os.environ.setdefault("LOCKSTEP_HOME", os.path.join(BUNDLE, "home"))
    if arguments.device == "cpu":
        del os.environ["LOCKSTEP_CUDA_LIBRARY"]  # it would be loaded without a driver, too
    record = Record(arguments)
    commands[arguments.command](record, arguments)
    if arguments.command in ("law", "speed"):
        algorithms(record)
    counts = {state: record.states.count(state) for state in (PASSED, FAILED, NOT_TESTED)}
    record.archive()
    print(", ".join(f"{count} {state}" for state, count in counts.items()),
          f"- {os.path.join(arguments.out, 'results.tar.gz')}")
    return 1 if counts[FAILED] else 0 if counts[PASSED] else 3


if __name__ == "__main__":
    sys.exit(main())
