#!/usr/bin/env python3
"""Tests of `lockstep submit` and `lockstep jobs`.

usage: batch_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from batch_support import LONG, BatchTest
from support import COMMAND

SWEEP = """
[sweep]
method = "successive-halving"
trials = 4
seed = 5

[sweep.parameters]
initial_learning_rate = { low = 0.001, high = 1.0, scale = "log" }
"""
SECRET = "secret-1b7e33c9"

class BatchJobs(BatchTest):
    def test_a_job_has_the_receipt_of_a_training(self):
        self.works("train", "job.toml", "--out", "usual", "--quiet")
        number = self.submit()
        second = self.submit("--workers", "2")
        self.assertEqual(self.wait(number), "finished\n")
        self.assertEqual(self.wait(second), "finished\n")
        for out in ("a", "b"):  # as often as wanted
            self.works("jobs", "fetch", number, "--out", out)
            self.assertEqual(self.receipt(out), self.receipt("usual"))
        self.works("jobs", "fetch", second, "--out", "workers")
        self.assertEqual(self.receipt("workers"), self.receipt("usual"))
        self.works("evaluate", "a", "digits")
        self.assertIn("epoch 3/3", self.works("jobs", "diary", number).stdout)
        progress = json.loads(self.works("jobs", "progress", number, "--json").stdout)
        self.assertEqual((progress["iteration"]["epoch"], progress["max_epochs"]), (3, 3))
        self.assertIn("epoch                3 of 3\n", self.works("jobs", "progress", number).stdout)
        self.works("jobs", "rm", number)
        self.assertFalse((self.home / "jobs" / number).exists())
        self.assertEqual([str(job["number"]) for job in self.jobs()], [second])

    def test_jobs_run_one_after_another(self):
        first, second = self.submit(*LONG), self.submit()
        third = self.submit("--at-once")
        self.wait(third)
        self.assertEqual([job["state"] for job in self.jobs()], ["running", "queued", "finished"])
        done = self.run_command("jobs", "wait", second, "--timeout", "0.3")
        self.assertEqual((done.returncode, done.stderr),
                         (1, f"error: [jobs] job {second} is still queued after 0.3 seconds\n"))
        self.works("jobs", "cancel", first)
        self.assertEqual(self.wait(first, 130), "cancelled\n")
        self.assertEqual(self.wait(second), "finished\n")

    def test_a_queued_job_is_cancelled(self):
        first, second = self.submit(*LONG), self.submit()
        self.works("jobs", "cancel", second)
        self.assertEqual(self.wait(second, 130), "cancelled\n")
        self.assertEqual(self.state(first)["state"], "running")
        done = self.run_command("jobs", "fetch", second, "--out", "a")
        self.assertIn(f"job {second} has no run: it ended before it began to train", done.stderr)

    def test_the_job_is_fixed_at_submission(self):
        first = self.submit(*LONG)
        second = self.submit()
        self.write("damaged")
        self.works("jobs", "cancel", first)
        self.assertEqual(self.wait(second), "finished\n")

    def test_it_outlives_its_terminal(self):
        """Submitted by a shell in a session whose processes are then all killed."""
        shell = subprocess.Popen(["sh", "-c", f"{COMMAND} submit job.toml --set max_epochs=20; sleep 60"],
                                 cwd=self.folder, start_new_session=True, stdout=subprocess.PIPE,
                                 env={**os.environ, "LOCKSTEP_HOME": str(self.home)}, text=True)
        number = shell.stdout.readline().strip()
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        shell.stdout.close()
        self.assertEqual(self.wait(number), "finished\n")

    # ---- sweeps ----

    def trials(self, number):
        return json.loads(self.works("jobs", "progress", number, "--json").stdout)["trials"]

    def test_a_sweep_has_the_trials_of_the_command(self):
        with open(self.folder / "job.toml", "a", encoding="utf-8") as job:
            job.write('validation_frequency = "epoch"\n' + SWEEP)
        self.works("sweep", "job.toml", "--out", "usual", "--quiet", "--workers", "2")
        number = self.submit("--workers", "2")
        self.assertEqual(self.wait(number), "finished\n")
        second = self.submit("--workers", "1")
        for _ in range(600):  # until it has a result
            if any(trial["value"] is not None for trial in self.trials(second)):
                break
            time.sleep(0.02)
        self.works("jobs", "cancel", second)
        ended = self.run_command("jobs", "wait", second, "--timeout", "120").stdout
        if ended == "cancelled\n":
            self.works("jobs", "resume", second)
        self.assertEqual(self.wait(second), "finished\n")
        for each in (number, second):
            self.works("jobs", "fetch", each, "--out", each)
            self.assertEqual((self.folder / each / "trials.csv").read_bytes(),
                             (self.folder / "usual" / "trials.csv").read_bytes())
        self.assertEqual(len(self.trials(number)), 4)
        shown = self.works("jobs", "progress", number).stdout
        self.assertRegex(shown, r"trials +\d finished, \d pruned\n")
        self.assertRegex(shown, r"trial 4 +\w+ +\d of 3 epochs +validation.accuracy [0-9.]+ % +initial_le")
        self.assertIn("sweep     finished", self.works("jobs", "list").stdout)
        done = self.run_command("submit", "job.toml", "--set", "data.validation_fraction=0")
        self.assertIn("a sweep needs validation data", done.stderr)
        done = self.run_command("submit", "job.toml", "--initial-model", "usual")
        self.assertEqual(done.returncode, 2)

    # ---- what is fixed at submission ----

    def test_attached_data_are_those_of_the_submission(self):
        self.works("train", "job.toml", "--out", "usual", "--quiet")
        (self.folder / "digits").unlink()
        shutil.copytree(self.shared / "digits", self.folder / "digits")
        (self.folder / "notes.txt").write_text("notes")
        first = self.submit(*LONG)
        number = self.submit("--attach", "digits", "--attach", "notes.txt")
        shutil.rmtree(self.folder / "digits")
        self.works("jobs", "cancel", first)
        self.assertEqual(self.wait(number), "finished\n")
        self.works("jobs", "fetch", number, "--out", "a")
        self.assertEqual(self.receipt("a"), self.receipt("usual"))
        self.assertEqual((self.home / "jobs" / number / "attached" / "notes.txt").read_text(), "notes")
        for arguments, error in ((("--attach", "none"), "none cannot be attached"),
                                 (("--attach", "job.toml", "--attach", "./job.toml"),
                                  "two attached files have the name job.toml")):
            (self.folder / "digits").exists() or (self.folder / "digits").symlink_to(self.shared / "digits")
            done = self.run_command("submit", "job.toml", *arguments)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(error, done.stderr)
        self.assertEqual(len(self.jobs()), 2)

    def environment_of(self, number):
        process = self.processes_of(number).pop()
        return pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")

    def test_executable_and_environment_are_those_of_the_submission(self):
        command = self.folder / "lockstep"
        shutil.copy(COMMAND, command)
        environment = {**os.environ, "LOCKSTEP_HOME": str(self.home)}

        def run(*arguments, **more):
            done = subprocess.run([command, *arguments], cwd=self.folder, capture_output=True,
                                  text=True, env={**environment, **more})
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.strip()

        number = run("submit", "job.toml", *LONG, BATCH_TEST="first", AWS_SECRET_ACCESS_KEY=SECRET,
                     PROXY=f"http://user:{SECRET}@host", GITHUB_PAT=SECRET, my_dsn=SECRET,
                     PLAIN=f"ghp_{SECRET}_0123", KEYS_FILE="/a/file")
        self.assertIn(b"KEYS_FILE", (self.home / "jobs" / number / "environment.json").read_bytes())
        self.begins(number)
        self.assertIn(b"BATCH_TEST=first", self.environment_of(number))
        self.assertIn(f"AWS_SECRET_ACCESS_KEY={SECRET}".encode(), self.environment_of(number))
        for file in (self.home / "jobs" / number).rglob("*"):
            if file.is_file():
                self.assertFalse(SECRET.encode() in file.read_bytes(), file)
        second = run("submit", "job.toml", *LONG)
        copies = list((self.home / "jobs" / "executables").iterdir())
        self.assertEqual(len(copies), 1)
        self.assertEqual(copies[0].stat().st_nlink, 3)
        os.kill(self.processes_of(number).pop(), signal.SIGKILL)
        self.wait(number, 1)
        # The executable is damaged in place. The job resumes with its copy.
        with open(command, "r+b") as file:
            file.write(b"nothing")
        done = self.run_command("jobs", "resume", number, BATCH_TEST="second",
                                AWS_SECRET_ACCESS_KEY="newer")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.works("jobs", "cancel", second)
        self.wait(second, 130)
        self.begins(number)
        self.assertIn(b"BATCH_TEST=first", self.environment_of(number))
        self.assertIn(b"AWS_SECRET_ACCESS_KEY=newer", self.environment_of(number))
        self.works("jobs", "cancel", number)
        self.wait(number, 130)
        # A copy that was changed is refused, and the last job takes the copy with it.
        (self.home / "jobs" / second / "executable").unlink()
        shutil.copy(COMMAND, self.home / "jobs" / second / "executable")
        with open(self.home / "jobs" / second / "executable", "ab") as file:
            file.write(b"more")
        done = self.run_command("jobs", "resume", second)
        self.assertIn("has changed since the job was submitted", done.stderr)
        self.assertEqual(self.state(second)["state"], "failed")
        self.works("jobs", "rm", number, second)
        self.assertEqual(list((self.home / "jobs" / "executables").iterdir()), [])

    def test_the_local_machine_as_a_profile(self):
        self.works("cluster", "add", "here", "--scheduler", "local", "--workers", "2", "--threads", "1")
        with open(self.home / "clusters" / "here.toml", "a", encoding="utf-8") as profile:
            profile.write('environment = ["BATCH_TEST=profile"]\n')
        self.works("train", "job.toml", "--out", "usual", "--quiet")
        first = self.submit("--cluster", "here", *LONG)
        self.begins(first)
        self.assertIn(b"BATCH_TEST=profile", self.environment_of(first))
        second = self.submit("--cluster", "here")
        self.assertEqual(self.state(second)["state"], "queued")
        self.works("jobs", "cancel", first)
        self.assertEqual(self.wait(second), "finished\n")
        self.works("jobs", "fetch", second, "--out", "a")
        self.assertEqual(self.receipt("a"), self.receipt("usual"))
        self.assertIn("2 workers", self.works("jobs", "diary", second).stdout)
        self.works("cluster", "default", "here")
        third = self.submit()
        self.assertEqual(self.state(third)["cluster"], "here")
        done = self.run_command("submit", "job.toml", "--at-once")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("the default profile is here", done.stderr)
        self.assertEqual(self.wait(self.submit("--cluster", "local")), "finished\n")

    # ---- ends of another kind ----

    def test_a_killed_job_has_failed_and_resumes(self):
        short = ("--set", "max_epochs=200", "--set", "checkpoint_frequency=10")
        self.works("train", "job.toml", "--out", "usual", "--quiet", *short)
        number = self.submit(*short)
        self.begins(number)
        processes = self.processes_of(number)
        self.assertEqual(len(processes), 1)
        os.kill(processes.pop(), signal.SIGKILL)
        self.assertEqual(self.wait(number, 1),
                         "failed: its process was killed, or the machine was restarted\n")
        self.works("jobs", "resume", number)
        self.assertEqual(self.wait(number), "finished\n")
        self.works("jobs", "fetch", number, "--out", "a")
        self.assertEqual(self.receipt("a"), self.receipt("usual"))
        done = self.run_command("jobs", "resume", number)
        self.assertIn(f"job {number} is finished", done.stderr)

    def test_a_cancelled_job_resumes(self):
        self.works("train", "job.toml", "--out", "usual", "--quiet", "--set", "max_epochs=200")
        number = self.submit("--set", "max_epochs=200")
        self.begins(number)
        self.works("jobs", "cancel", number)
        self.assertEqual(self.wait(number, 130), "cancelled\n")
        self.assertIn("stopped after iteration", self.works("jobs", "diary", number).stdout)
        self.works("jobs", "resume", number)
        self.assertEqual(self.wait(number), "finished\n")
        self.works("jobs", "fetch", number, "--out", "a")
        self.assertEqual(self.receipt("a"), self.receipt("usual"))

    def test_an_error_of_the_training_is_the_reason(self):
        number = self.submit("--set", "initial_learning_rate=1e30")
        self.assertRegex(self.wait(number, 1), r"\Afailed: .*(loss|finite)")

    def test_a_job_that_cannot_be_trained_is_refused_at_once(self):
        done = self.run_command("submit", "job.toml", "--set", "data.train=missing")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("missing", done.stderr)
        self.assertEqual(self.jobs(), [])


if __name__ == "__main__":
    unittest.main()
