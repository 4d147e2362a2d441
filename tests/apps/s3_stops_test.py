#!/usr/bin/env python3
"""Tests of waiting for an S3 store: stop requests, the profiler, workers, progress.

usage: s3_stops_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import threading
import time
import unittest

import support
from s3_support import JOB, S3Test

STOPPED = 130


class Stops(S3Test):
    """Ctrl-C while the store does not answer ends a training at once: the limit of repetitions is far away."""

    def setUp(self):
        super().setUp()
        self.store.objects = {("data-1", "kept"): b"x"}
        done = self.s3("upload", "images", "s3://data-1/all of it/")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.failing = threading.Event()
        self.failed = threading.Event()

    def fail_after(self, images, how="error"):
        """The store fails from the given number of images on, until self.failing is cleared."""
        self.failing.set()

        def fault(method, path):
            read = len([1 for m, p in self.store.log if m == "GET" and ".png" in p])
            if read <= images or not self.failing.is_set():
                return None
            self.failed.set()
            return how

        self.store.fault = fault

    def fail_for(self, pattern):
        """The store fails for images whose path has the pattern, until self.failing is cleared."""
        self.failing.set()

        def fault(method, path):
            if method != "GET" or ".png" not in path or not re.search(pattern, path) or not self.failing.is_set():
                return None
            self.failed.set()
            return "error"

        self.store.fault = fault

    def start(self, out, *more):
        environment = {**os.environ, **self.store.environment(
            HOME=str(self.folder), LOCKSTEP_S3_CACHE_GB="0", LOCKSTEP_S3_RETRY_SECONDS="300",
            XDG_CACHE_HOME=str(self.folder / "cache"))}
        process = subprocess.Popen([support.COMMAND, "train", "job.toml", "--out", out, *more], cwd=self.folder,
                                   env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def stop(self, process, limit=6):
        self.assertTrue(self.failed.wait(60))
        time.sleep(1)  # some repetitions
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begun, limit, errors)
        self.assertEqual(process.returncode, STOPPED, errors)
        self.failing.clear()
        return errors

    def resumed_is_whole(self, out, *more):
        """Continues the run, and compares it with one from the local folder."""
        local = self.trained_locally()
        done = self.s3("train", "job.toml", "--quiet", "--out", out, "--resume", *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / out / "receipt.jsonl").read_bytes(), local)

    def test_while_the_next_mini_batch_is_awaited(self):
        # Images of the last classes are in the last mini-batches.
        job = JOB.replace("mini_batch_size = 20", 'mini_batch_size = 5\nshuffle = "never"')
        self.write(job.replace('"digits"', '"s3://data-1/all of it"'))
        self.local = job.replace('"digits"', '"images"')
        self.fail_for(r"/[89]/")
        process = self.start("runs/one")
        receipt = self.folder / "runs/one/receipt.jsonl"
        end = time.monotonic() + 60
        while not (receipt.exists() and receipt.stat().st_size > 0):
            self.assertLess(time.monotonic(), end, "no iteration was completed")
            time.sleep(0.05)
        errors = self.stop(process)
        self.assertRegex(errors, r"stopped after iteration \d+; checkpoint")
        self.resumed_is_whole("runs/one")

    def test_by_a_file_in_the_folder(self):
        """As the dashboard's button does."""
        self.fail_after(45)
        process = self.start("runs/file")
        self.assertTrue(self.failed.wait(60))
        time.sleep(1)
        (self.folder / "runs/file/stop").touch()
        begun = time.monotonic()
        _, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begun, 6, errors)
        self.assertEqual(process.returncode, STOPPED, errors)
        self.failing.clear()

    def test_with_workers(self):
        job = JOB.replace("mini_batch_size = 20", "mini_batch_size = 5")
        self.write(job.replace('"digits"', '"s3://data-1/all of it"'))
        self.local = job.replace('"digits"', '"images"')
        for part, images in {"training": 22, "validation": 41}.items():
            with self.subTest(part):
                self.store.log.clear()
                self.failed.clear()
                self.fail_after(images)
                errors = self.stop(self.start(f"runs/{part}", "--workers", "2"), limit=10)
                self.assertNotIn("worker lost", errors)
                self.resumed_is_whole(f"runs/{part}", "--workers", "2")
                shutil.rmtree(self.folder / "runs/local")

    def test_while_the_bucket_is_listed(self):
        self.store.fault = lambda method, path: self.failed.set() or "slow down"
        errors = self.stop(self.start("runs/three"))
        self.assertRegex(errors, "stopped: .*cannot list s3://data-1/all of it/: a stop was requested")

    def test_while_the_store_is_silent(self):
        gone = threading.Event()
        self.addCleanup(gone.set)

        def fault(method, path):
            if ".png" in path:
                self.failed.set()
                gone.wait(30)
            return None

        self.store.fault = fault
        self.store.lock = type("Unlocked", (), {"__enter__": lambda s: s, "__exit__": lambda s, *_: None})()
        errors = self.stop(self.start("runs/four"))
        self.assertIn("stopped", errors)


class Waiting(S3Test):
    def test_the_profile_shows_it(self):
        self.store.objects = {("data-1", "kept"): b"x"}
        self.s3("upload", "images", "s3://data-1/all of it/")
        self.store.lock = type("Unlocked", (), {"__enter__": lambda s: s, "__exit__": lambda s, *_: None})()
        self.store.fault = lambda method, path: time.sleep(0.3) if ".png" in path else None
        done = self.s3("train", "job.toml", "--profile", "--out", "runs/run", LOCKSTEP_S3_CACHE_GB="0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"step +waiting for the network ")
        profile = json.loads((self.folder / "runs/run/profile.json").read_text())
        waited = next(a for a in profile["accounts"] if a["name"] == "waiting for the network")
        self.assertGreater(waited["seconds"], 0.1)
        self.assertLess(waited["seconds"], profile["wall"])
        self.store.fault = lambda method, path: None
        done = self.run_command("train", "job.toml", "--set", 'data.train="images"', "--profile", "--out", "runs/here")
        self.assertNotIn("waiting for the network", done.stdout)

    def test_workers_that_wait_do_not_hang(self):
        """The store is away for longer than a worker may make no progress."""
        local = self.trained_locally()
        self.store.objects = {("data-1", "kept"): b"x"}
        self.s3("upload", "images", "s3://data-1/all of it/")
        begun = []

        def fault(method, path):
            if ".png" not in path or len([1 for m, p in self.store.log if ".png" in p]) < 25:
                return None
            begun.append(time.monotonic())
            return "error" if begun[-1] < begun[0] + 4 else None

        self.store.fault = fault
        done = self.s3("train", "job.toml", "--out", "runs/run", "--workers", "2", "--set", "training.worker_limit=1.5",
                       LOCKSTEP_S3_CACHE_GB="0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("lost", done.stderr)
        self.assertEqual((self.folder / "runs/run/receipt.jsonl").read_bytes(), local)

    def told(self, *arguments):
        """What a command writes to a terminal as standard error."""
        there, here = pty.openpty()
        done = subprocess.run([support.COMMAND, *arguments], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=here,
                              env={**os.environ, **self.store.environment(HOME=str(self.folder))})
        os.close(here)
        text = b""
        try:
            while part := os.read(there, 65536):
                text += part
        except OSError:  # the other end is closed
            pass
        os.close(there)
        self.assertEqual(done.returncode, 0, text)
        return text.decode()

    def test_progress_while_everything_is_read(self):
        """A full pass over objects, and over archives, without an index."""
        self.assertEqual(self.s3("shard", "images", "s3://data-1/shards").returncode, 0)
        self.assertEqual(self.s3("shard", "images", "shards").returncode, 0)
        del self.store.objects["data-1", "shards/lockstep-index"]
        (self.folder / "shards/lockstep-index").unlink()
        for data, shown in {"s3://data-1/shards": r"Reading archives without an index: 0 of 1 MB",
                            "shards": r"Reading archives without an index: 0 of 1 MB",
                            "s3://data-1/all of it": r"Reading images: \d+ of \d+"}.items():
            self.write(JOB.replace('"digits"', f'"{data}"'))
            self.assertRegex(self.told("train", "job.toml"), shown)
            for command in ("evaluate", "predict"):
                text = self.told(command, "runs/job-1", data)
                self.assertRegex(text, shown)
                # Nothing of the line stays.
                self.assertRegex(text, r"Reading images: \d+ of 60[^\n]*\x1b\[K\Z")


if __name__ == "__main__":
    unittest.main()
