#!/usr/bin/env python3
"""Batch jobs of every kind on a real Slurm of two nodes: trainings from S3, sweeps, functions. Nothing
that was fixed at submission changes, keys stay secret, and strangers cannot join.

usage: slurm_batch_test.py PATH_OF_LOCKSTEP PATH_OF_BATCH_PROGRAM [unittest options]

Exit code 77 if Slurm is not installed.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from fake_s3 import Store
from join_test import family_of, listening
from slurm_cluster import SlurmCluster, missing_tools
from support import COMMAND, CommandTest

PROGRAM = os.path.abspath(sys.argv.pop(1))
SECRET = "secret-5d0e77a1"
LIMIT = 240
LONG = ("--set", "max_epochs=20000", "--set", "checkpoint_frequency=50")
SWEEP = """
validation_frequency = "epoch"

[sweep]
method = "successive-halving"
trials = 3
seed = 5

[sweep.parameters]
initial_learning_rate = { low = 0.001, high = 1.0, scale = "log" }
"""
# The network of examples/jobs/cifar10_s3.toml, on digits.
S3_NETWORK = """
[data]
train = "s3://data-1/digits"
validation_fraction = 0.1

[augmentation]
translate_x = [-4, 4]
translate_y = [-4, 4]

[variables]
depth = 2
width = "round(16 / sqrt(depth))"

[network]
input = { height = 28, width = 28, channels = 1, normalization = "zero-center" }
layers = [
  { repeat = "depth", layers = [
    { type = "convolution2d", filters = "width", kernel = 3, padding = "same" },
    { type = "batch_normalization" },
    { type = "relu" } ] },
  { type = "max_pooling2d", pool = 2, stride = 2 },
  { repeat = "depth", layers = [
    { type = "convolution2d", filters = "2 * width", kernel = 3, padding = "same" },
    { type = "batch_normalization" },
    { type = "relu" } ] },
  { type = "max_pooling2d", pool = 2, stride = 2 },
  { repeat = "depth", layers = [
    { type = "convolution2d", filters = "4 * width", kernel = 3, padding = "same" },
    { type = "batch_normalization" },
    { type = "relu" } ] },
  { type = "average_pooling2d", pool = 7 },
  { type = "fully_connected", units = 10 },
  { type = "softmax" },
]

[training]
initial_learning_rate = 0.05
l2 = 1e-10
mini_batch_size = 64
shard_size = 8
max_epochs = 2
shuffle = "every-epoch"
"""


def process_files(pid):
    """The parts of a process that other users could read."""
    for name in ("cmdline", "environ"):
        try:
            yield f"{name} of {pid}", pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
        except OSError:
            continue


class KeyCatcher(threading.Thread):
    """Reads the key files that appear in the folders of jobs, before they are removed."""

    def __init__(self, home):
        super().__init__(daemon=True)
        self.home, self.found, self.modes, self.ended = home, {}, set(), False
        self.start()

    def run(self):
        while not self.ended:
            for path in self.home.glob("jobs/[0-9]*/lockstep-key-*"):
                try:
                    self.modes.add(path.stat().st_mode & 0o777)
                    self.found[path.name] = path.read_text()
                except OSError:
                    continue
            time.sleep(0.001)

    def stop(self):
        self.ended = True
        self.join()


class SlurmBatch(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.slurm_folder = tempfile.mkdtemp(prefix="lockstep_slurm_")
        cls.slurm = SlurmCluster(cls.slurm_folder, nodes=2, cpus=4)

    @classmethod
    def tearDownClass(cls):
        cls.slurm.stop()
        shutil.rmtree(cls.slurm_folder, ignore_errors=True)
        super().tearDownClass()

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_home_"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        self.addCleanup(self.end_jobs)
        self.works("cluster", "add", "lab", "--workers", "4", "--nodes", "2", "--address", "127.0.0.1")

    def end_jobs(self):
        self.slurm.run("scancel", "--full", "--state=RUNNING", check=False)
        self.slurm.run("scancel", "--state=PENDING", check=False)
        self.slurm.wait_until_idle()

    def environment(self, **more):
        return {**self.slurm.environment, "LOCKSTEP_HOME": str(self.home), "HOME": str(self.folder),
                "AWS_SECRET_ACCESS_KEY": SECRET, **more}

    def run_command(self, *arguments, **more):
        return super().run_command(*arguments, **self.environment(**more))

    def program(self, *arguments):
        done = subprocess.run([self.folder / "program", *arguments], cwd=self.folder,
                              capture_output=True, text=True, timeout=LIMIT, env=self.environment())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout.strip()

    def state(self, number):
        return json.loads(self.works("jobs", "show", number, "--json").stdout)

    def finishes(self, number):
        done = self.run_command("jobs", "wait", number, "--timeout", str(LIMIT))
        diary = self.works("jobs", "diary", number).stdout
        self.assertEqual((done.returncode, done.stdout), (0, "finished\n"), done.stderr + diary)

    def until(self, holds, what):
        for _ in range(LIMIT * 20):
            if holds():
                return
            time.sleep(0.05)
        self.fail(what)

    def lines_of(self, number, name="log.jsonl"):
        path = self.home / "jobs" / number / "run" / name
        return path.read_text().count("\n") if path.exists() else 0

    def slurm_job(self, number):
        return (self.home / "jobs" / number / "slurm_job").read_text()

    def receipt(self, folder):
        return (self.folder / folder / "receipt.jsonl").read_bytes()

    def files_with(self, *secrets):
        """The files of the user's jobs and of Slurm that contain one of these."""
        found = []
        for place in (self.home, pathlib.Path(self.slurm_folder)):
            for file in place.rglob("*"):
                try:
                    content = file.read_bytes() if file.is_file() else b""
                except OSError:
                    continue
                if any(secret in content for secret in secrets):
                    found.append(str(file))
        return found

    # ---- submit, leave, come back ----

    def test_data_in_s3_and_a_client_that_goes_away(self):
        """Keys lie in the nodes' ~/.aws, and the client's session is killed after the submission."""
        store = Store()
        self.addCleanup(store.close)
        store.put_folder("data-1", "digits/", self.shared / "digits")
        keys = store.environment()
        (self.folder / ".aws").mkdir()
        (self.folder / ".aws" / "credentials").write_text(
            f"[default]\naws_access_key_id = {keys['AWS_ACCESS_KEY_ID']}\n"
            f"aws_secret_access_key = {keys['AWS_SECRET_ACCESS_KEY']}\n")
        places = {name: keys[name] for name in ("AWS_ENDPOINT_URL", "AWS_REGION",
                                                "AWS_EC2_METADATA_DISABLED")}
        with open(self.home / "clusters" / "lab.toml", "a", encoding="utf-8") as profile:
            profile.write(f"environment = {json.dumps([f'{k}={v}' for k, v in places.items()])}\n")
        self.write(S3_NETWORK)
        environment = self.environment(**places)
        del environment["AWS_SECRET_ACCESS_KEY"]
        usual = subprocess.run([COMMAND, "train", "job.toml", "--out", "usual", "--quiet"],
                               cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual(usual.returncode, 0, usual.stderr)
        laptop = subprocess.Popen(["sh", "-c", f"{COMMAND} submit job.toml --cluster lab; sleep 600"],
                                  cwd=self.folder, start_new_session=True, stdout=subprocess.PIPE,
                                  env=environment, text=True)
        number = laptop.stdout.readline().strip()
        os.killpg(laptop.pid, signal.SIGKILL)
        laptop.wait()
        laptop.stdout.close()
        self.assertRegex(number, r"\A\d+\Z")
        self.finishes(number)
        self.assertIn("4 workers on 2 hosts", self.works("jobs", "diary", number).stdout)
        self.assertIn("2 of 2", self.works("jobs", "progress", number).stdout)
        self.works("jobs", "fetch", number, "--out", "fetched")
        self.assertEqual(self.receipt("fetched"), self.receipt("usual"))
        self.assertEqual(self.files_with(keys["AWS_SECRET_ACCESS_KEY"].encode()), [])

    # ---- other kinds of jobs, and what is fixed ----

    def test_a_sweep(self):
        with open(self.folder / "job.toml", "a", encoding="utf-8") as job:
            job.write(SWEEP)
        self.works("sweep", "job.toml", "--out", "usual", "--quiet", "--workers", "2")
        number = self.works("submit", "job.toml", "--cluster", "lab").stdout.strip()
        self.until(lambda: self.lines_of(number, "sweep.jsonl") >= 4, "the sweep does not begin")
        self.slurm.run("scontrol", "requeue", self.slurm_job(number), check=False)
        self.finishes(number)
        self.works("jobs", "fetch", number, "--out", "fetched")
        self.assertEqual((self.folder / "fetched" / "trials.csv").read_bytes(),
                         (self.folder / "usual" / "trials.csv").read_bytes())

    def test_a_function_and_the_executable_of_its_submission(self):
        shutil.copy(PROGRAM, self.folder / "program")
        (self.folder / "notes.txt").write_text("before\n")
        attached = self.program("submit", "surroundings", "--cluster", "lab", "--attach", "notes.txt")
        (self.folder / "notes.txt").write_text("after\n")
        counting = self.program("submit", "count", "60", "--cluster", "lab")
        count = self.home / "jobs" / counting / "run" / "count"
        # The program is replaced while one job may wait and one runs, which is then requeued.
        with open(self.folder / "program", "r+b") as program:
            program.write(b"another program")
        self.until(lambda: count.exists() and int(count.read_text() or "0") >= 3, "nothing is counted")
        self.slurm.run("scontrol", "requeue", self.slurm_job(counting))
        self.finishes(attached)
        self.finishes(counting)
        self.assertEqual(count.read_text(), "60")
        shutil.copy(PROGRAM, self.folder / "program")
        self.assertEqual(self.program("text", attached), "before -")
        self.assertEqual(self.program("int", counting), "60")
        # One question to Slurm for the whole list.
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "squeue").write_text(f'#!/bin/sh\necho x >> {tools}/asked\nexec '
                                      f'{shutil.which("squeue")} "$@"\n')
        (tools / "squeue").chmod(0o755)
        held = [self.works("submit", "job.toml", "--cluster", "lab", *LONG).stdout.strip()
                for _ in range(3)]
        path = f"{tools}:{self.slurm.environment['PATH']}"
        listed = json.loads(self.works("jobs", "list", "--json", PATH=path).stdout)
        self.assertEqual(len(listed), 5)
        self.assertEqual((tools / "asked").read_text(), "x\n")
        self.works("jobs", "cancel", *reversed(held))
        self.works("jobs", "rm", attached, counting)

    # ---- keys, strangers ----

    def test_keys_and_strangers(self):
        catcher = KeyCatcher(self.home)
        self.addCleanup(catcher.stop)
        number = self.works("submit", "job.toml", "--cluster", "lab", *LONG).stdout.strip()
        self.until(lambda: self.lines_of(number) >= 3, "the training does not begin")
        catcher.stop()
        self.assertEqual(len(catcher.found), 1, "there is one other node")
        self.assertEqual(catcher.modes, {0o600})
        key = catcher.found.popitem()[1]
        secrets = [line.split()[1].encode() for line in key.splitlines() if "secret" in line]
        self.assertTrue(secrets)
        # The job's processes, on both nodes, and all of Slurm's.
        ours = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                if any(str(self.home).encode() in text or self.slurm_folder.encode() in text
                       for _, text in process_files(pid))]
        workers = [pid for pid in ours
                   if any(b"--lockstep-worker" in text for _, text in process_files(pid))]
        self.assertEqual(len(workers), 4)
        for pid in ours:
            for where, text in process_files(pid):
                for secret in (*secrets, SECRET.encode()):
                    if secret in text and pid != os.getpid():
                        self.fail(f"{where} has a secret: {text[:200]!r}")
        self.assertEqual(self.files_with(*secrets, SECRET.encode()), [])
        # Garbage at every port, all on the loopback.
        family = {p for pid in ours for p in family_of(pid)
                  if str(self.home).encode() in b"".join(text for _, text in process_files(p))}
        members = [pid for pid in family if any(b"lockstep" in text.split(b"\0")[0] or
                                                b"/executable" in text.split(b"\0")[0]
                                                for where, text in process_files(pid)
                                                if where.startswith("cmdline"))]
        places = listening(members)
        self.assertTrue(places)
        for address, port in places:
            self.assertEqual(address, "0100007F")
            for garbage in (b"\0" * 100, b"GET / HTTP/1.0\r\n\r\n", os.urandom(5000)):
                with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
                    try:
                        stranger.sendall(garbage)
                    except OSError:
                        pass
        # The key again, at every port, and a foreign one. It was for one process.
        self.works("worker", "--new-key", "foreign")
        (self.folder / "replayed").write_text(key)
        (self.folder / "replayed").chmod(0o600)
        strangers = []
        for _, port in places:
            for file in ("replayed", "foreign"):
                strangers.append(subprocess.Popen(
                    [COMMAND, "worker", "--join", f"127.0.0.1:{port}", "--key-file", file, "--index",
                     "1", "--patience", "2"], cwd=self.folder, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, text=True, env=self.environment()))
        said = [stranger.communicate(timeout=LIMIT)[0] for stranger in strangers]
        self.assertTrue(all(stranger.returncode == 1 for stranger in strangers), said)
        self.assertTrue(any("refuses the key" in text for text in said), said)
        before = self.lines_of(number)
        self.until(lambda: self.lines_of(number) >= before + 3, "the training does not go on")
        self.assertEqual(self.state(number)["state"], "running")
        self.assertEqual({pid for pid in workers if os.path.exists(f"/proc/{pid}")}, set(workers))
        self.works("jobs", "cancel", number)


if __name__ == "__main__":
    if missing_tools():
        print("Slurm is not installed: " + ", ".join(missing_tools()), file=sys.stderr)
        sys.exit(77)
    unittest.main()
