#!/usr/bin/env python3
"""Trainings, sweeps and pools whose workers a real Slurm starts, on a machine of three nodes.

usage: slurm_hosts_test.py PATH_OF_LOCKSTEP [--in-full] [unittest options]

With --in-full at least 50 disturbances of one training, else a few. Exit code 77 if Slurm is not
installed.
"""

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import unittest

from join_test import family_of, listening
from slurm_cluster import missing_tools
from support import COMMAND, JOB
from slurm_support import LONG, SECRET, SlurmTest

SWEEP = JOB + """
[sweep]
trials = 2
method = "random"

[sweep.parameters]
width = [2, 4]
"""

IN_FULL = "--in-full" in sys.argv
if IN_FULL:
    sys.argv.remove("--in-full")


class SlurmHosts(SlurmTest):
    NODES = 3

    def train(self, out, *more):
        return self.begin("train", "job.toml", "--cluster", "lab", "--out", out, *more)

    def iterations(self, out):
        log = self.folder / out / "log.jsonl"
        return log.read_text().count('"seconds"') if log.exists() else 0

    def advances(self, out, process, by=3):
        before = self.iterations(out)
        self.until(lambda: self.iterations(out) >= before + by or process.poll() is not None,
                   "the training does not advance")

    def jobs(self):
        """Slurm's jobs: (id, state, node)."""
        text = self.slurm.run("squeue", "-h", "--array", "-o", "%i|%T|%N", check=False)
        return [tuple(line.split("|")) for line in text.splitlines()]

    def jobs_end(self, seconds=30):
        self.until(lambda: not self.jobs(), "jobs are left in Slurm", seconds)

    def finishes(self, process, code=0, limit=300):
        text, _ = process.communicate(timeout=limit)
        self.assertEqual(process.returncode, code, text)
        return text

    def test_the_receipt_is_that_of_one_process(self):
        self.works("train", "job.toml", "--out", "usual", "--quiet")
        said = self.works("train", "job.toml", "--cluster", "lab", "--out", "a").stderr
        self.assertIn("4 workers on 2 hosts", said)
        self.assertEqual(self.receipt("a"), self.receipt("usual"))
        self.jobs_end(5)
        self.assertEqual(list((self.home / "hosts").iterdir()), [])

    def test_the_script_is_shown(self):
        script = self.works("train", "job.toml", "--cluster", "lab", "--dry-run").stdout
        for line in ("#SBATCH --array=0,1", "#SBATCH --requeue", "#SBATCH --open-mode=append",
                     "#SBATCH --signal=USR2@120", "#SBATCH --no-kill", "#SBATCH --cpus-per-task=2"):
            self.assertIn(line + "\n", script)
        self.assertIn("srun --kill-on-bad-exit=0 ", script)
        self.assertEqual(self.jobs(), [])
        self.assertFalse((self.home / "hosts").exists())

    def test_no_secret_is_shown_and_nothing_listens_beyond_the_loopback(self):
        training = self.train("a", *LONG)
        self.advances("a", training)
        key, = (self.home / "hosts").glob("*/key")
        self.assertEqual(key.stat().st_mode & 0o777, 0o600)
        words = [line.split()[1] for line in key.read_text().splitlines() if "secret" in line]
        self.assertEqual(len(words), 1)
        secrets = [word.encode() for word in words] + [SECRET.encode()]
        self.assertEqual(self.files_with(*secrets), [key])
        # Of the client, of Slurm's daemons and of all that these have started.
        daemons = [daemon.pid for daemon in self.slurm.daemons.values()]
        steps = subprocess.run(["pgrep", "slurmstepd"], capture_output=True, text=True).stdout
        family = [p for pid in [training.pid, *daemons, *map(int, steps.split())]
                  for p in family_of(pid)]
        self.assertGreater(len(family), 10)
        mine = set(family_of(training.pid))
        for pid in family:
            for name in ("cmdline", "environ"):
                try:
                    content = pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
                except OSError:
                    continue
                self.assertNotIn(secrets[0], content)
                # The client has its user's environment.
                if pid not in mine:
                    self.assertFalse(name == "environ" and b"LOCKSTEP_HOME" in content
                                     and SECRET.encode() in content, content)
        for address, _ in listening(family_of(training.pid)):
            self.assertEqual(address, "0100007F")
        training.send_signal(signal.SIGINT)
        self.assertIn("stopped after iteration", self.finishes(training, 130))
        self.jobs_end(5)
        self.assertTrue(list((self.folder / "a").glob("checkpoint*")))

    def test_what_a_profile_may_not_contain(self):
        for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "MY_PASSWORD", "hf_token"):
            self.run_command("cluster", "add", "bad", "--workers", "2", "--nodes", "2", "--address",
                             "127.0.0.1")
            profile = self.home / "clusters" / "bad.toml"
            if profile.exists():
                profile.write_text(profile.read_text() + f'environment = ["{name}=x"]\n')
            done = self.run_command("train", "job.toml", "--cluster", "bad", "--out", name)
            self.assertEqual(done.returncode, 1)
            self.assertIn(name, done.stderr)
            profile.unlink()

    def test_what_slurm_refuses(self):
        self.works("cluster", "add", "nowhere", "--partition", "none", "--workers", "2",
                   "--nodes", "2")
        done = self.run_command("train", "job.toml", "--cluster", "nowhere", "--out", "a")
        self.assertEqual(done.returncode, 1)
        self.assertIn("sbatch failed: sbatch: error: invalid partition specified: none", done.stderr)
        self.assertEqual(list((self.home / "hosts").iterdir()), [])

    def test_hosts_that_cannot_work_end_the_training_with_the_reason(self):
        profile = self.home / "clusters" / "lab.toml"
        profile.write_text(profile.read_text() + 'executable = "/bin/false"\n')
        done = self.run_command("train", "job.toml", "--cluster", "lab", "--out", "a")
        self.assertEqual(done.returncode, 1)
        self.assertIn("its jobs in Slurm end before it joins", done.stderr)
        self.jobs_end(10)

    def test_it_waits_for_nodes_and_stops_at_once(self):
        for node in self.slurm.names()[:2]:
            self.slurm.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
        try:
            self.works("cluster", "add", "whole", "--workers", "2", "--nodes", "2", "--threads", "4",
                       "--address", "127.0.0.1")
            (self.folder / "sweep.toml").write_text(SWEEP)
            for command, job in (("train", "job.toml"), ("sweep", "sweep.toml")):
                process = self.begin(command, job, "--cluster", "whole", "--out", command, *LONG)
                said = ""
                while "waits for Slurm: 1 of 2 hosts have joined (Resources)" not in said:
                    line = process.stdout.readline()
                    self.assertNotEqual(line, "", said)
                    said += line
                process.send_signal(signal.SIGINT)
                self.assertIn("stopped", self.finishes(process, 130))
                self.jobs_end(5)
        finally:
            for node in self.slurm.names()[:2]:
                self.slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def test_hosts_that_a_node_could_not_launch_are_replaced(self):
        self.works("train", "job.toml", "--out", "usual", "--quiet")
        self.addCleanup(self.slurm.let_launches_fail, False)
        self.slurm.let_launches_fail(True)
        training = self.train("a")
        self.until(lambda: "launch failed" in self.slurm.run("squeue", "-h", "-o", "%r"),
                   "no job is held")
        self.slurm.let_launches_fail(False)
        self.finishes(training)
        self.assertEqual(self.receipt("a"), self.receipt("usual"))
        self.jobs_end(5)

    def test_a_pool_of_a_program(self):
        program = pathlib.Path(COMMAND).parent.parent / "tests" / "cluster_test"
        done = subprocess.run([program, "--gtest_filter=ClusterPool.*"], cwd=self.folder, text=True,
                              env={**self.environment(), "LOCKSTEP_TEST_CLUSTER": "lab"},
                              capture_output=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("[  PASSED  ] 2 tests", done.stdout)
        self.jobs_end(5)

    def test_a_sweep(self):
        (self.folder / "sweep.toml").write_text(SWEEP)
        self.works("sweep", "sweep.toml", "--out", "usual", "--workers", "1", "--quiet")
        said = self.works("sweep", "sweep.toml", "--out", "s", "--cluster", "lab").stderr
        self.assertIn("on 2 hosts", said)
        for name in ("trials.csv", "model.safetensors"):
            self.assertEqual((self.folder / "s" / name).read_bytes(),
                             (self.folder / "usual" / name).read_bytes())
        self.jobs_end(5)

    def test_a_killed_client_leaves_nothing(self):
        training = self.train("a", *LONG)
        self.advances("a", training, 60)
        training.kill()
        training.wait()
        self.jobs_end(30)  # hosts end after ten seconds without a client
        # The next one removes what it has left, and continues.
        more = ("--set", f"max_epochs={self.iterations('a') // 2 + 10}", *LONG[2:])
        self.works("train", "job.toml", "--out", "usual", "--quiet", *more)
        self.assertEqual(len(list((self.home / "hosts").iterdir())), 1)
        self.finishes(self.train("a", "--resume", *more))
        self.assertEqual(self.receipt("a"), self.receipt("usual"))
        self.assertEqual(list((self.home / "hosts").iterdir()), [])

    # ---- disturbances ----

    def a_host(self, dice):
        running = [job for job in self.jobs() if job[1] == "RUNNING"]
        return dice.choice(running) if running else None

    def requeue(self, dice):
        if job := self.a_host(dice):
            self.slurm.run("scontrol", "requeue", job[0], check=False)

    def cancel(self, dice):
        if job := self.a_host(dice):
            self.slurm.run("scancel", job[0], check=False)

    def put_a_node_down(self, dice):
        job = self.a_host(dice)
        node = job[2] if job else dice.choice(self.slurm.names())
        self.slurm.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test",
                       check=False)
        time.sleep(0.5)
        self.slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)

    def drain_a_node(self, dice):
        if job := self.a_host(dice):
            self.slurm.run("scontrol", "update", f"NodeName={job[2]}", "State=DRAIN", "Reason=test",
                           check=False)
            self.slurm.run("scontrol", "requeue", job[0], check=False)
            self.slurm.run("scontrol", "update", f"NodeName={job[2]}", "State=RESUME", check=False)

    def ask_a_host_to_leave(self, dice):
        if job := self.a_host(dice):
            self.slurm.run("scancel", "--signal=USR2", job[0], check=False)

    def silence_a_node(self, dice):
        """Its slurmd and its host stand still, as if the network were cut."""
        job = self.a_host(dice)
        if not job:
            return
        index = job[0].split("_")[1]
        hosts = subprocess.run(["pgrep", "-f", f"--lockstep-host 127.0.0.1:.* {index} 2$"], text=True,
                               capture_output=True).stdout.split()
        mine = [pid for pid in map(int, hosts) if self.is_host(pid)]
        daemon = self.slurm.daemons[job[2]]
        for pid in mine:
            try:
                os.kill(pid, signal.SIGSTOP)
            except ProcessLookupError:
                pass
        daemon.send_signal(signal.SIGSTOP)
        time.sleep(7)
        daemon.send_signal(signal.SIGCONT)
        for pid in mine:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

    def is_host(self, pid):
        try:
            text = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        return str(self.home).encode() in text and not text.startswith(b"srun")

    def test_disturbances_change_no_bit(self):
        count = 56 if IN_FULL else int(os.environ.get("LOCKSTEP_DISTURBANCES", "4"))
        seed = int(os.environ.get("LOCKSTEP_SEED", "1"))
        frequency = ("--set", "checkpoint_frequency=50", "--not-recorded", "--quiet")
        epochs = ("--set", "max_epochs=100000", *frequency)
        kinds = [self.kill_a_step, self.put_a_node_down, self.ask_a_host_to_leave,
                 self.kill_a_node, "kill the client", self.requeue, self.kill_a_worker,
                 self.restart_the_controller, self.cancel, self.drain_a_node, self.silence_a_node,
                 "stop the client"]
        dice = random.Random(seed)
        training, resumed, done, text = self.train("a", *epochs), 0, 0, ""
        counts = {}
        for i in range(count):
            self.advances("a", training)
            kind = kinds[i % len(kinds)] if i < 2 * len(kinds) else dice.choice(kinds)
            name = kind if isinstance(kind, str) else kind.__name__
            counts[name] = counts.get(name, 0) + 1
            done += 1
            if isinstance(kind, str):
                training.send_signal(signal.SIGKILL if kind == "kill the client" else signal.SIGINT)
                training.communicate(timeout=60)
                training = self.train("a", "--resume", *epochs)
                resumed += 1
            else:
                kind(dice)
        self.advances("a", training)
        training.send_signal(signal.SIGINT)
        self.finishes(training, 130)
        self.assertEqual(done, count)
        end = ("--set", f"max_epochs={self.iterations('a') // 2 + 3}", *frequency)
        self.finishes(self.train("a", "--resume", *end))
        self.finishes(self.begin("train", "job.toml", "--out", "usual", *end), limit=1200)
        self.assertTrue(self.receipt("a") == self.receipt("usual"))
        self.jobs_end(30)
        print(f"{done} disturbances within {self.iterations('a')} iterations, {resumed} of them of the client: {counts}", file=sys.stderr)


if __name__ == "__main__":
    if missing_tools():
        print("Slurm is not installed: " + ", ".join(missing_tools()), file=sys.stderr)
        sys.exit(77)
    unittest.main()
