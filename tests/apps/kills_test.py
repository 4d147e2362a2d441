#!/usr/bin/env python3
"""Trainings whose workers and clients get signals at random moments. No bit may change.

usage: kills_test.py PATH_OF_LOCKSTEP [--kills N] [--seed S] [--seconds T] [--vary] [unittest options]

With --vary the job is drawn from the seed, too: solver, frequencies, data order.

Signals go to random workers: SIGKILL, SIGSEGV, SIGSTOP with an early SIGCONT, SIGSTOP alone, SIGTERM
(which workers ignore). Sometimes the client is killed or stopped, and the training is resumed with
another number of workers or with threads. Receipts are compared, byte for byte, with that of an
undisturbed training by threads.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

from small_job import small_job


def option(name, otherwise):
    if name not in sys.argv:
        return otherwise
    at = sys.argv.index(name)
    value = sys.argv[at + 1]
    del sys.argv[at:at + 2]
    return int(value)


KILLS, SEED = option("--kills", 30), option("--seed", 1)
SECONDS = option("--seconds", 1000000)  # after this time no further training begins
VARY = "--vary" in sys.argv
if VARY:
    sys.argv.remove("--vary")
COMMAND = sys.argv.pop(1)
# Limits of one training, and the seconds after which it counts as hanging.
KILLS_EACH, LIMIT = 40, 300
STOPPED = 130  # the command's status when it is stopped


def job_of(chance):
    options = {"max_epochs": 6, "validation_frequency": "epoch", "checkpoint_frequency": 20,
               "checkpoints_kept": 3}
    if VARY:
        options |= {"solver": chance.choice(["sgdm", "adam", "adamw", "rmsprop"]),
                    "seed": chance.randrange(1000),
                    "validation_frequency": chance.choice([7, 30, "epoch"]),
                    "checkpoint_frequency": chance.choice([3, 20, 50]),
                    "checkpoints_kept": chance.choice([1, 3]),
                    "gradient_threshold": chance.choice([0.05, 1.0]),
                    "last_mini_batch": chance.choice(["keep", "drop"])}
    return small_job(dropout=not VARY or chance.random() < 0.5, **options)


JOB = job_of(random.Random(SEED))


def is_worker(pid):
    """Whether the worker has begun. A worker that is stopped before that would stop its client, which waits for it."""
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip() == "lockstep-worker"
    except (FileNotFoundError, ProcessLookupError):
        return False


def workers_of(pid):
    """Worker processes of a client, by process id."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(word) for word in file.read().split()]
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                children += [int(word) for word in file.read().split()]
        return sorted(child for child in set(children) if is_worker(child))
    except (FileNotFoundError, ProcessLookupError):
        return []


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


class Disturbed:
    """One training that gets signals until it has finished."""

    def __init__(self, job, folder, chance):
        self.job, self.folder, self.chance = job, folder, chance
        self.errors = tempfile.TemporaryFile()
        self.sent = {}  # by kind
        self.clients = 0  # clients that were ended

    def count(self, kind):
        self.sent[kind] = self.sent.get(kind, 0) + 1

    def start(self, resume):
        who = self.chance.choice([["--workers", "1"], ["--workers", "2"], ["--workers", "3"],
                                  ["--workers", "4"], ["--workers", "2", "--threads", "2"],
                                  ["--threads", "2"]])
        more = ["--resume"] if resume else []
        self.errors.seek(0)
        self.errors.truncate()
        return subprocess.Popen(
            [COMMAND, "train", self.job, "--out", self.folder, "--quiet", *who, *more],
            stdout=subprocess.DEVNULL, stderr=self.errors)

    def hit_worker(self, pid):
        kind = self.chance.choices(["SIGKILL", "SIGSEGV", "pause", "SIGSTOP", "SIGTERM"],
                                   [60, 15, 10, 2, 13])[0]
        if kind == "pause":
            if send(pid, signal.SIGSTOP):
                self.count(kind)
                time.sleep(self.chance.uniform(0, 0.3))
                send(pid, signal.SIGCONT)
        elif send(pid, getattr(signal, kind)):
            self.count(kind)

    def hit(self, child):
        if self.chance.random() < 0.02:
            kind = self.chance.choice(["SIGKILL", "SIGTERM", "SIGINT"])
            if send(child.pid, getattr(signal, kind)):
                self.count("client's " + kind)
            return
        workers = workers_of(child.pid)
        if not workers:
            return
        if self.chance.random() < 0.03:  # all at once
            for pid in workers:
                if send(pid, signal.SIGKILL):
                    self.count("SIGKILL")
        else:
            self.hit_worker(self.chance.choice(workers))

    def run(self, most):
        """Runs until the training has finished. Returns True, or a description of the failure."""
        end = time.monotonic() + LIMIT
        resume = False
        while True:
            child = self.start(resume)
            pause = 0.0
            while child.poll() is None:
                if time.monotonic() > end:
                    child.kill()
                    child.wait()
                    return f"it did not finish within {LIMIT} s"
                if sum(self.sent.values()) < most:
                    time.sleep(pause)
                    self.hit(child)
                    pause = self.chance.choice([0.002, 0.02, 0.1, 0.25])
                else:
                    time.sleep(0.02)
            code = child.returncode
            if code == 0:
                return True
            if code not in (STOPPED, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT):
                self.errors.seek(0)
                return f"status {code}: " + self.errors.read().decode()[-2000:]
            # A training that ended before it had a folder cannot be resumed.
            self.clients += 1
            resume = os.path.exists(os.path.join(self.folder, "job.json"))

    def events(self):
        with open(os.path.join(self.folder, "log.jsonl")) as file:
            return [json.loads(line) for line in file]


class Kills(unittest.TestCase):
    def test_none_changes_a_bit(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check_in(folder)

    def check_in(self, folder):
        job = os.path.join(folder, "small.toml")
        with open(job, "w") as file:
            file.write(JOB)
        calm = os.path.join(folder, "calm")
        subprocess.run([COMMAND, "train", job, "--out", calm, "--quiet", "--threads", "2"],
                       check=True, stdout=subprocess.DEVNULL, timeout=LIMIT)
        wanted = self.receipt(calm)
        chance = random.Random(SEED)
        sent, seconds, trainings, clients, failed, told = {}, [], 0, 0, [], 0
        begun = time.monotonic()
        while sum(sent.values()) < KILLS and time.monotonic() < begun + SECONDS:
            trainings += 1
            out = os.path.join(folder, f"run{trainings}")
            training = Disturbed(job, out, random.Random(chance.random()))
            with training.errors:
                done = training.run(min(KILLS_EACH, KILLS - sum(sent.values())))
            for kind, n in training.sent.items():
                sent[kind] = sent.get(kind, 0) + n
            clients += training.clients
            if done is not True:
                failed.append(f"training {trainings} ({training.sent}): {done}")
            elif self.receipt(out) != wanted:
                failed.append(f"training {trainings} ({training.sent}): another receipt")
            else:
                events = training.events()
                seconds += [e["seconds"] for e in events if e.get("event") == "worker lost"]
                # A worker that dies while it connects is not a stranger.
                alarms = [e["text"] for e in events if "without a key" in e.get("text", "")]
                failed += [f"training {trainings} ({training.sent}): {a}" for a in alarms]
            for what in failed[told:]:
                print(what, flush=True)
            told = len(failed)
            subprocess.run(["rm", "-rf", out], check=True)
            if trainings % 10 == 0:
                print(f"{sum(sent.values())} signals, {trainings} trainings, {len(failed)} failed",
                      flush=True)
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(sent.items()))
        print(f"{sum(sent.values())} signals ({kinds}) in {trainings} trainings, {clients} clients "
              f"ended and resumed, in {time.monotonic() - begun:.0f} s; {trainings - len(failed)} "
              f"receipts compared")
        if seconds:
            seconds.sort()
            print(f"{len(seconds)} losses; the others went on after {statistics.median(seconds):.3f}"
                  f" s (median), {seconds[-1]:.3f} s (longest)")
        self.assertEqual(failed, [])
        self.assertGreater(trainings, 0)
        self.assertTrue(seconds or sent.get("SIGKILL", 0) < 10, "no training told of a loss")

    @staticmethod
    def receipt(folder):
        with open(os.path.join(folder, "receipt.jsonl"), "rb") as file:
            return file.read()


if __name__ == "__main__":
    unittest.main()
