#!/usr/bin/env python3
"""Trainings with few descriptors, little memory or few processes. They finish, or report the missing
resource within seconds.

usage: resources_test.py PATH_OF_LOCKSTEP [--steps N] [unittest options]

`--steps`: number of limits that are tested of each kind; 0: all of a range.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
import unittest

from sanitized import SANITIZED
from small_job import small_job

STEPS = 8
if "--steps" in sys.argv:
    at = sys.argv.index("--steps")
    STEPS = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]
COMMAND = sys.argv.pop(1)
# Limits in seconds: until an error, and until a training has finished.
SOON, LIMIT = 10, 120
JOB = small_job(max_epochs=1, max_time=60 if SANITIZED else 2)
# Messages of the program loader when it cannot begin.
LOADER = "error while loading shared libraries"


def some(values):
    values = list(values)
    if STEPS == 0 or len(values) <= STEPS:
        return values
    return [values[i * (len(values) - 1) // (STEPS - 1)] for i in range(STEPS)]


class Resources(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        os.chmod(self.folder.name, 0o777)
        self.job = os.path.join(self.folder.name, "small.toml")
        with open(self.job, "w") as file:
            file.write(JOB)
        self.runs = 0

    def tearDown(self):
        self.folder.cleanup()

    def train(self, *more, limits=(), user=None):
        """The status, the output and the time of the command."""
        self.runs += 1
        out = os.path.join(self.folder.name, f"run{self.runs}")

        def limit():
            for which, value in limits:
                resource.setrlimit(which, (value, value))
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)

        begun = time.monotonic()
        done = subprocess.run([COMMAND, "train", self.job, "--out", out, "--quiet", *more],
                              capture_output=True, text=True, timeout=LIMIT, preexec_fn=limit)
        return done.returncode, done.stderr, time.monotonic() - begun

    def check(self, what, words, result):
        """Whether it finished. Otherwise it must have reported the missing resource soon."""
        code, errors, seconds = result
        if code in (0, 130):
            return True
        text = f"{what}: status {code} after {seconds:.1f} s: {errors}"
        if os.environ.get("RESOURCES_VERBOSE"):
            print(text.strip(), flush=True)
        self.assertLess(seconds, SOON, text)
        if LOADER in errors and code == 127:
            return False
        self.assertEqual(code, 1, text)
        self.assertIn("error: ", errors, text)
        self.assertNotIn("this is a bug", errors, text)
        self.assertTrue(any(word in errors for word in words), text)
        return False

    def sweep(self, what, values, words, run, rising=True):
        """With enough of the resource it finishes; if `rising`, with every larger amount, too."""
        finished = [self.check(f"{what} {value}", words, run(value)) for value in values]
        self.assertTrue(finished[-1], f"{what} {values[-1]}")
        if rising:
            self.assertEqual(finished, sorted(finished), f"{what}: {list(zip(values, finished))}")

    def test_descriptors(self):
        words = ["ulimit -n", "Too many open files"]
        self.sweep("threads, ulimit -n", some(range(3, 65)), words,
                   lambda n: self.train("--threads", "2",
                                        limits=[(resource.RLIMIT_NOFILE, n)]))

    def test_descriptors_of_workers(self):
        words = ["ulimit -n", "Too many open files"]
        self.sweep("workers, ulimit -n", some(range(3, 129)), words,
                   lambda n: self.train("--workers", "2", limits=[(resource.RLIMIT_NOFILE, n)]))

    def test_the_soft_limit_is_raised(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (16, 4096))
        out = os.path.join(self.folder.name, "raised")
        done = subprocess.run([COMMAND, "train", self.job, "--out", out, "--workers", "2"],
                              capture_output=True, text=True, timeout=LIMIT, preexec_fn=limit)
        self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipIf(SANITIZED, "sanitizers need additional memory")
    def test_address_space(self):
        for who in (["--threads", "2"], ["--workers", "2"]):
            top = 2000 if who[0] == "--workers" else 600
            self.sweep(f"{who[0]}, ulimit -v MiB", some(range(20, top, 20)) + [4000],
                       ["there is not enough memory", "ulimit -v"],
                       lambda n: self.train(*who, limits=[(resource.RLIMIT_AS, n << 20)]),
                       # The allocator reserves address space for threads if there is enough.
                       rising=False)

    @unittest.skipIf(SANITIZED, "sanitizers need additional memory")
    def test_memory_of_workers(self):
        words = ["worker_memory_mib"]
        self.sweep("worker_memory_mib", some([1, 2, 4, 8] + list(range(16, 257, 8))) + [1024],
                   words, lambda n: self.train("--workers", "2", "--set",
                                               f"training.worker_memory_mib={n}"))

    @unittest.skipIf(SANITIZED, "sanitizers start additional threads")
    @unittest.skipUnless(os.getuid() == 0, "another user's limit takes root to try")
    def test_processes(self):
        user = 65533  # has no processes
        if subprocess.run(["test", "-x", COMMAND], user=user).returncode != 0:
            self.skipTest("another user cannot come to the command here")
        for who in (["--threads", "2"], ["--workers", "2"]):
            self.sweep(f"{who[0]}, ulimit -u", some(range(1, 80)) + [200],
                       ["ulimit -u", "[threads]"],
                       lambda n: self.train(*who, limits=[(resource.RLIMIT_NPROC, n)], user=user))


if __name__ == "__main__":
    unittest.main()
