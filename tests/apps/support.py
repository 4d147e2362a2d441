"""Helpers for the tests of the command."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

COMMAND = os.path.abspath(sys.argv.pop(1))

JOB = """
[data]
train = "digits"
validation_fraction = 0.2
test_fraction = 0.1

[augmentation]
translate_x = 1

[variables]
width = 4

[network]
input = { height = 28, width = 28, channels = 1 }
layers = [
  { type = "convolution2d", filters = "width", kernel = 5, stride = 2 },
  { type = "batch_normalization" },
  { type = "relu" },
  { type = "dropout", probability = 0.1 },
  { type = "fully_connected", units = 10 },
  { type = "softmax" },
]

[training]
mini_batch_size = 50
shard_size = 7
max_epochs = 3
verbose_frequency = 2
"""


def processor_ticks():
    """Clock ticks of this machine's processors since its start: idle ones, and all."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(number) for number in file.readline().split()[1:9]]
    return ticks[3], sum(ticks)

# What a training from an initial model says whose input statistics are computed anew.
ANEW = ("note: the inputs are normalized by statistics of this training's data, not by those of the initial model "
        "(layers: `input`)\n")


class Stopwatch:
    """Seconds since its start, and whether the machine had processors left meanwhile."""

    def __init__(self):
        self.begun = time.monotonic()
        self.idle, self.all = processor_ticks()
        self.seconds = self.quiet = None

    def stop(self):
        self.seconds = time.monotonic() - self.begun
        idle, every = processor_ticks()
        self.quiet = idle - self.idle >= (every - self.all) / 4
        return self

    def limit(self, seconds):
        """What is promised on a machine that is free. Beside other work it takes longer, but not without end."""
        return seconds if self.quiet else 10 * seconds


class DigitsTest(unittest.TestCase):
    """A folder for each test, digits that all tests share, and a way to run the command there."""

    PER_CLASS = 20
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_"))
        done = subprocess.run([COMMAND, "export-digits", cls.shared / "digits", "--per-class", str(cls.PER_CLASS)],
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def write(self, text):
        (self.folder / "job.toml").write_text(text, encoding="utf-8")

    def put(self, name, data):
        """Writes a file, and makes its folders."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())

    def run_command(self, *arguments, preexec_fn=None, **environment):
        return subprocess.run([COMMAND, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                              timeout=300, preexec_fn=preexec_fn, env={**os.environ, **environment})


class CommandTest(DigitsTest):
    """With a job on 20 digits of each class."""

    def setUp(self):
        super().setUp()
        (self.folder / "digits").symlink_to(self.shared / "digits")
        self.write(JOB)

    def works(self, *arguments, **environment):
        done = self.run_command(*arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def succeed(self, *arguments):
        """What the command prints."""
        return self.works(*arguments).stdout

    def refuse(self, *arguments):
        """The error of a command that fails."""
        done = self.run_command(*arguments)
        self.assertIn(done.returncode, (1, 2), done.stdout)
        return done.stderr

    def fails(self, code, error, *arguments):
        """The exit code, and standard error exactly."""
        done = self.run_command(*arguments)
        self.assertEqual((done.returncode, done.stderr, done.stdout), (code, error, ""))

    def result(self, *arguments, said=""):
        done = self.works("train", "job.toml", "--json", "--quiet", *arguments)
        self.assertEqual(done.stderr, said)
        self.assertEqual(done.stdout.count("\n"), 1)
        return json.loads(done.stdout)
