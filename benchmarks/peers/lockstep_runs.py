
import json
import os
import platform
import random
import struct
import subprocess
import tempfile
import threading
import time
import zlib

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STOPPED = 130  # exit code of a training whose time is over
COMMAND = os.path.join(TOP, "build", "release", "bin", "lockstep")
IMAGES = 2_560  # of gather_images()
# Environments in which programs behave as on a processor without AVX-512: Lockstep, and PyTorch.
LIMITED = {"LOCKSTEP_MAX_CPU_ISA": "AVX2"}
# PyTorch's compiler keeps programs, which crash with other instructions: limited runs keep their own.
TORCH_LIMITED = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2",
                 "MKL_ENABLE_INSTRUCTIONS": "AVX2",
                 "TORCHINDUCTOR_CACHE_DIR": os.path.join(tempfile.gettempdir(), "torchinductor-avx2")}


def job_path(name):
    """A job file, or the name of one in examples/jobs."""
    return name if os.path.exists(name) else os.path.join(TOP, "examples", "jobs", name + ".toml")


def write_random_png(path, number):
    """32 x 32 pixels in RGB that depend on `number` alone (filter 0). Needs no numpy, which a machine
    with a GPU may lack."""
    rows = b"".join(b"\0" + random.Random(number * 32 + row).randbytes(96) for row in range(32))
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in ((b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)),
                           (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b"")):
            file.write(struct.pack(">I", len(data)) + kind + data +
                       struct.pack(">I", zlib.crc32(kind + data)))


def gather_images(data, folder, images=IMAGES):
    """Fills `folder` with images by class: links into CIFAR-10, or random ones. Says what it is."""
    train_folder = os.path.join(data, "cifar10", "train") if data else ""
    if os.path.isdir(train_folder):
        for name in sorted(os.listdir(train_folder)):
            place = os.path.join(folder, name)
            os.makedirs(place)
            for image in sorted(os.listdir(os.path.join(train_folder, name)))[:images // 10]:
                os.symlink(os.path.abspath(os.path.join(train_folder, name, image)),
                           os.path.join(place, image))
        return f"{images} images of {train_folder}"
    for number in range(images):
        place = os.path.join(folder, f"class{number % 10}")
        os.makedirs(place, exist_ok=True)
        write_random_png(os.path.join(place, f"{number}.png"), number)
    return f"{images} random PNG images (no CIFAR-10: give --data or set LOCKSTEP_TEST_DATA)"


def train(command, job, out, settings, threads=None, data=None, more=(), limit=None):
    """Runs `lockstep train` into the folder `out`; returns its result. max_time may end it. After
    `limit` seconds it is killed, and subprocess.TimeoutExpired raised."""
    arguments = [command, "train", job, "--out", out, "--json", "--quiet", *more]
    for setting in settings:
        arguments += ["--set", setting]
    if threads:
        arguments += ["--threads", str(threads)]
    environment = dict(os.environ, **({"LOCKSTEP_DATA": data} if data else {}))
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment,
                          timeout=limit)
    if done.returncode not in (0, STOPPED):
        raise SystemExit(f"{done.stderr}error: exit code {done.returncode} from: "
                         f"{' '.join(arguments)}")
    return json.loads(done.stdout.splitlines()[-1])


def run_measured(arguments, cwd=None, environment=None, limit=1800):
    """Runs a program for at most `limit` seconds. Returns what it has printed, and the MiB that it,
    or one of its processes, has had resident at most."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(arguments, stdout=out, stderr=errors, cwd=cwd,
                                   env={**os.environ, **(environment or {})})
        end = threading.Timer(limit, process.kill)
        end.start()
        _, status, used = os.wait4(process.pid, 0)
        end.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        if process.returncode not in (0, STOPPED):
            raise SystemExit(f"{errors.read()}error: exit code {process.returncode} from: "
                             f"{' '.join(arguments)}")
        return out.read(), used.ru_maxrss / 1024


def seconds_and_mib(arguments, environment=None):
    """Seconds of a program, and the MiB that it, or one of its processes, has had resident at most."""
    begin = time.perf_counter()
    mib = run_measured(arguments, environment=environment)[1]
    return time.perf_counter() - begin, mib


def read_log(out):
    """The lines of a run's log: those of iterations, those of validations."""
    with open(os.path.join(out, "log.jsonl")) as file:
        entries = [json.loads(line) for line in file]
    return ([e for e in entries if "seconds" in e],
            [e for e in entries if "validation_accuracy" in e])


def parse_with_data(parser, holds):
    """The arguments of a program that needs the folder of test data, which `holds` something."""
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"), metavar="FOLDER",
                        help=f"holds {holds} (default: $LOCKSTEP_TEST_DATA)")
    arguments = parser.parse_args()
    if not arguments.data:
        parser.error("no images: give --data or set LOCKSTEP_TEST_DATA")
    return arguments


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
