#!/usr/bin/env python3
"""Trainings by worker processes from the user's view: killed, stopped, resumed, compared.

usage: workers_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from small_job import small_job

COMMAND = sys.argv.pop(1)
LIMIT = 120
ENDLESS = ("--set", "max_epochs=100000")
ITERATIONS_OF_AN_EPOCH = 90
JOB = small_job(dropout=True, max_epochs=3, validation_frequency="epoch", checkpoint_frequency=20,
                checkpoints_kept=3)


def children_of(pid):
    """Worker processes of a client, by process id."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == pid:
            found.append(int(entry))
    return sorted(found)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Workers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.job = os.path.join(self.folder.name, "small.toml")
        with open(self.job, "w") as file:
            file.write(JOB)

    def tearDown(self):
        self.folder.cleanup()

    def out(self, name):
        return os.path.join(self.folder.name, name)

    def start(self, name, *more):
        return subprocess.Popen([COMMAND, "train", self.job, "--out", self.out(name), *more],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def train(self, name, *more, code=0):
        child = self.start(name, *more)
        out, errors = child.communicate(timeout=LIMIT)
        self.assertEqual(child.returncode, code, errors)
        return out, errors

    def command(self, *arguments, code=0):
        done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done.stdout + done.stderr

    def receipt(self, name):
        with open(os.path.join(self.out(name), "receipt.jsonl"), "rb") as file:
            return file.read()

    def log(self, name):
        with open(os.path.join(self.out(name), "log.jsonl")) as file:
            return [json.loads(line) for line in file]

    def checkpoints(self, name):
        try:
            return len(os.listdir(os.path.join(self.out(name), "checkpoints")))
        except FileNotFoundError:
            return 0

    def until(self, holds, child):
        """Waits for what a training that has no end of its own will do."""
        end = time.monotonic() + LIMIT
        while not holds():
            if child.poll() is not None or time.monotonic() > end:
                child.kill()
                self.fail(f"status {child.returncode}: {child.communicate()[1]}")
            time.sleep(0.005)

    def await_checkpoint(self, name, child):
        self.until(lambda: self.checkpoints(name) > 0, child)

    def events(self, name, kind):
        with open(os.path.join(self.out(name), "log.jsonl")) as file:
            lines = [line for line in file if '"event"' in line and line.endswith("\n")]
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def is_that_of_one(self, name):
        """Continues a training to the end of an epoch, and compares it with one in one process."""
        epochs = f"max_epochs={self.receipt(name).count(b'{') // ITERATIONS_OF_AN_EPOCH + 1}"
        self.train(name, "--resume", "--set", epochs)
        self.train("one", "--set", epochs)
        self.assertEqual(self.receipt(name), self.receipt("one"))

    def test_receipts_are_the_same_however_many_there_are(self):
        self.train("one")
        for workers, more in ((1, []), (2, []), (3, ["--threads", "2"]),
                              (5, ["--worker-load", "1,1,1,0,1"])):
            name = f"by{workers}"
            out, errors = self.train(name, "--workers", str(workers), "--json", *more)
            result = json.loads(out.splitlines()[-1])
            self.assertEqual(self.receipt(name), self.receipt("one"))
            shards = [w["shards"] for w in result["workers"]]
            self.assertEqual(len(shards), workers)
            for number, count in enumerate(shards):
                self.assertEqual(count > 0, workers != 5 or number != 3, shards)
            threads = "2 threads" if workers == 3 else "1 thread" if workers > 1 else ""
            self.assertIn(f"; {workers} worker{'s' if workers > 1 else ''} of {threads}", errors)
            self.assertFalse([w for w in result["workers"] if alive(w["pid"])])

    HOSTS = ("--host-launch", "env HOST={host}", "--hosts")

    def test_receipts_are_the_same_on_several_hosts(self):
        self.train("one")
        out, errors = self.train("far", *self.HOSTS, "localhost:1,127.0.0.2:2", "--json")
        result = json.loads(out.splitlines()[-1])
        self.assertEqual(self.receipt("far"), self.receipt("one"))
        self.assertEqual([w["shards"] > 0 for w in result["workers"]], [True] * 3)
        self.assertIn("; 3 workers on 2 hosts of 1 thread", errors)
        self.assertFalse([w for w in result["workers"] if alive(w["pid"])])
        self.train("loaded", *self.HOSTS, "127.0.0.2:2", "--worker-load", "1,3")
        self.assertEqual(self.receipt("loaded"), self.receipt("one"))

    def test_a_host_that_is_lost_while_it_starts_is_replaced(self):
        """As one that is lost later."""
        self.train("one")
        for number, first in enumerate(("kill -KILL $$", "exec timeout -s KILL 0.15 \"$@\"", "exit 255")):
            starts = os.path.join(self.folder.name, f"starts{number}")
            launch = os.path.join(self.folder.name, f"launch{number}")
            with open(launch, "w") as file:
                file.write(f"host=$1; shift\necho >> {starts}\n[ $(wc -l < {starts}) -gt 2 ] || {first}\n"
                           "exec env HOST=$host \"$@\"\n")
            name = f"lost{number}"
            self.train(name, "--host-launch", f"sh {launch} {{host}}", "--hosts", "localhost:1,127.0.0.2:2")
            self.assertEqual(self.receipt(name), self.receipt("one"))
            with open(starts) as file:
                self.assertGreaterEqual(len(file.readlines()), 3, first)

    def test_a_host_that_cannot_be_reached_is_told(self):
        _, errors = self.train("far", "--host-launch", "sh -c true", "--hosts", "127.0.0.2", code=1)
        self.assertIn("host 127.0.0.2 is lost", errors)
        _, errors = self.train("nobody", *self.HOSTS, "nobody.invalid:2", code=1)
        self.assertIn("nobody.invalid", errors)
        self.assertIn("host_address", errors)
        _, errors = self.train("none", *self.HOSTS, "127.0.0.2:0", code=1)
        self.assertIn("hosts must name each host once, received `127.0.0.2:0`", errors)

    def test_a_killed_client_leaves_nothing_on_other_hosts(self):
        child = self.start("far", *self.HOSTS, "localhost:1,127.0.0.2:2", *ENDLESS)
        self.await_checkpoint("far", child)
        agents = [pid for pid in children_of(child.pid) if children_of(pid)]
        self.assertEqual(len(agents), 1)
        there = agents + children_of(agents[0])
        self.assertEqual(len(there), 3)
        os.kill(child.pid, signal.SIGKILL)
        child.communicate(timeout=LIMIT)
        for _ in range(500):
            if not any(alive(pid) for pid in there):
                break
            time.sleep(0.01)
        self.assertFalse([pid for pid in there if alive(pid)])

    def test_a_killed_worker_is_told_and_replaced(self):
        child = self.start("killed", "--workers", "3", *ENDLESS)
        self.await_checkpoint("killed", child)
        victim = children_of(child.pid)[-1]
        os.kill(victim, signal.SIGKILL)
        self.until(lambda: len(self.events("killed", "worker joined")) == 4, child)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=LIMIT)
        self.assertEqual(child.returncode, 130, errors)
        self.assertRegex(errors, rf"worker \d \(process {victim}\) was killed by signal 9 \(SIGKILL\) "
                                 r"after iteration \d+: 2 workers continued after \d+ ms")
        self.assertRegex(errors, r"worker \d \(process \d+\) joined after iteration \d+: 3 workers now")
        self.assertEqual([(e["pid"], e["members"]) for e in self.events("killed", "worker lost")], [(victim, 2)])
        self.assertEqual(len(self.events("killed", "worker joined")), 4)
        self.is_that_of_one("killed")

    def test_a_killed_client_leaves_nothing_and_is_resumed_on_another_number(self):
        child = self.start("again", "--workers", "4", *ENDLESS)
        self.await_checkpoint("again", child)
        workers = children_of(child.pid)
        self.assertEqual(len(workers), 4)
        os.kill(workers[0], signal.SIGSTOP)
        child.kill()
        child.communicate(timeout=LIMIT)
        for _ in range(400):
            if not any(alive(w) for w in workers):
                break
            time.sleep(0.005)
        self.assertFalse([w for w in workers if alive(w)])
        self.train("again", "--workers", "3", "--resume", *ENDLESS, "--set", "training.max_time=0.2", code=130)
        self.is_that_of_one("again")

    def test_signals_for_all_stop_them_with_a_checkpoint(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                self.stop_by(number, f"stopped{number}")

    def stop_by(self, number, name):
        child = self.start(name, "--workers", "2", *ENDLESS)
        self.await_checkpoint(name, child)
        workers = children_of(child.pid)
        for pid in workers + [child.pid]:  # as a terminal does, or a user who ends a job
            os.kill(pid, number)
        _, errors = child.communicate(timeout=LIMIT)
        self.assertEqual(child.returncode, 130, errors)
        self.assertRegex(errors, r"hint: continue with: lockstep train --out \S+ --resume\n")
        self.assertFalse([w for w in workers if alive(w)])
        self.assertNotIn("worker lost", str(self.log(name)))

    def test_a_training_that_waits_for_workers_is_ended_by_one_signal(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            name = f"waiting{number}"
            child = self.start(name, "--workers", "2")
            begun = time.monotonic()
            asked = waits = None
            while child.poll() is None and time.monotonic() < begun + 30:
                for worker in children_of(child.pid):  # so that no worker gets ready
                    try:
                        with open(f"/proc/{worker}/comm") as file:
                            begun_there = file.read().strip() == "lockstep-worker"
                        # The client waits for it before that.
                        if begun_there:
                            os.kill(worker, signal.SIGSTOP)
                            waits = waits or time.monotonic()
                    except (FileNotFoundError, ProcessLookupError):
                        pass
                if asked is None and waits and time.monotonic() > waits + 1:
                    asked = time.monotonic()
                    child.send_signal(number)
                time.sleep(0.002)
            ended = time.monotonic()
            child.kill()
            _, errors = child.communicate(timeout=LIMIT)
            self.assertEqual(child.returncode, 130, errors)
            self.assertIn("stopped before its workers were ready", errors)
            self.assertLess(ended - asked, 5, errors)
            self.assertNotIn("without a key", errors)

    def test_workers_that_die_while_they_start_are_not_strangers(self):
        child = self.start("deaths", "--workers", "3")
        killed = 0
        while child.poll() is None and killed < 15:
            for worker in children_of(child.pid):
                time.sleep(0.001 * (killed % 8))
                try:
                    os.kill(worker, signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass
        _, errors = child.communicate(timeout=LIMIT)
        self.assertEqual(child.returncode, 0, errors)
        self.assertGreaterEqual(killed, 15, "it did not wait for workers")
        self.assertNotIn("without a key", errors)
        self.assertEqual([e for e in self.log("deaths") if "without a key" in e.get("text", "")], [])

    def test_more_than_useful_is_told(self):
        _, errors = self.train("many", "--workers", "4", "--set", "mini_batch_size=14",
                               "--set", "max_epochs=1", "--set", "validation_frequency=\"epoch\"")
        self.assertIn("note: only 2 of the 4 workers are useful: a mini-batch has 2 shards", errors)

    def test_a_shard_size_for_all_threads_is_advised(self):
        wide = self.out("wide.toml")
        with open(wide, "w") as file:
            file.write("""
[data]
train = "builtin:digits"
[network]
layers = [
  { type = "image_input", height = 28, width = 28, channels = 1 },
  { type = "convolution2d", filters = 40, kernel = [3, 3], padding = "same" },
  { type = "batch_normalization" },
  { type = "relu" },
  { type = "fully_connected", units = 10 },
  { type = "softmax" },
]
[training]
mini_batch_size = 16
max_iterations = 2
threads = 2
""")
        note = ("note: only 1 of the 2 threads is useful: a mini-batch has 1 shard; shard_size = 8 would use "
                "2 threads (normalization is then over at most 8 observations, so results differ)\n")
        self.assertIn(note, self.command("train", wide, "--check"))
        self.assertIn(note, self.command("train", wide, "--out", self.out("wide")))
        for more in (["--set", "shard_size=8"], ["--threads", "1"]):
            self.assertNotIn("useful", self.command("train", wide, "--check", *more))
        # Who continues a run cannot change its shards.
        continued = self.command("train", wide, "--out", self.out("wide"), "--resume", "--set", "max_iterations=3")
        self.assertIn("threads is useful: a mini-batch has 1 shard\n", continued)

    def test_loads_that_cannot_be_are_refused(self):
        text = self.command("train", self.job, "--workers", "2", "--worker-load", "1,2,3",
                            "--out", self.out("x"), code=1)
        self.assertIn("worker_load must have a load for each of the 2 workers", text)
        text = self.command("train", self.job, "--workers", "2", "--profile", "--out",
                            self.out("x"), code=1)
        self.assertIn("profiles are supported only without worker processes", text)

    def test_verify(self):
        self.train("run", "--workers", "2")
        for iteration, origin in ((10, "the beginning"), (255, "the checkpoint after iteration 240")):
            text = self.command("verify", self.out("run"), "--iteration", str(iteration))
            self.assertIn(f"computed from  {origin}\n", text)
            self.assertRegex(text, r"digest +[0-9a-f]{32}, as in the receipt")
        text = self.command("verify", self.out("run"), "--iteration", "100000", code=1)
        self.assertIn("has iterations 1 to 270, not 100000", text)
        text = self.command("verify", self.folder.name, "--iteration", "1", code=1)
        self.assertIn("is not a run folder", text)

    def test_verify_finds_what_was_changed(self):
        self.train("run")
        path = os.path.join(self.out("run"), "receipt.jsonl")
        with open(path) as file:
            lines = file.read().splitlines()
        changed = json.loads(lines[99])
        changed["loss"] += 1
        with open(path, "w") as file:
            file.write("\n".join(lines[:99] + [json.dumps(changed, separators=(",", ":"))] + lines[100:]) + "\n")
        text = self.command("verify", self.out("run"), "--iteration", "120", code=1)
        self.assertIn("line 100: it does not match its chain", text)
        self.assertEqual(len(os.listdir(os.path.join(self.out("run"), "checkpoints"))), 3)

    def test_diff(self):
        self.train("a", "--workers", "2")
        self.train("b")
        self.train("momentum", "--set", "momentum=0.8")
        self.train("seed", "--set", "seed=1")
        text = self.command("diff", self.out("a"), self.out("b"))
        self.assertEqual(text, "equal in all 270 common iterations\n")
        text = self.command("diff", self.out("a"), self.out("momentum"), code=1)
        self.assertRegex(text, r"first difference +iteration 2, epoch 1\nwhat +digest\n"
                               r"why +the jobs differ in training.momentum: 0.8 there, 0.9 here\n"
                               r"convolution2d_1.weights +\d+ of 200 elements, by up to \S+\n"
                               r"convolution2d_1.weights.velocity +\d+ of 200 elements, by up to ")
        text = self.command("diff", self.out("a"), self.out("seed"), code=1)
        self.assertRegex(text, r"first difference +iteration 1, epoch 1\nwhat +observations\n")


if __name__ == "__main__":
    unittest.main()
