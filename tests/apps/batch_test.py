#!/usr/bin/env python3
"""Tests of `lockstep submit` and `lockstep jobs`.

usage: batch_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import glob
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from support import COMMAND, CommandTest

SWEEP = """
[sweep]
method = "successive-halving"
trials = 4
seed = 5

[sweep.parameters]
initial_learning_rate = { low = 0.001, high = 1.0, scale = "log" }
"""
SECRET = "secret-1b7e33c9"
LONG = ("--set", "max_epochs=100000", "--set", "checkpoint_frequency=100")


class BatchJobs(CommandTest):
    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_home_"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        self.addCleanup(self.end_processes)

    def end_processes(self):
        """No process of a job outlives its test."""
        for job in self.jobs():
            self.run_command("jobs", "cancel", job["number"])
        for job in self.jobs():
            self.run_command("jobs", "wait", job["number"], "--timeout", "60")

    def run_command(self, *arguments, **more):
        more.setdefault("LOCKSTEP_HOME", str(self.home))
        return super().run_command(*arguments, **more)

    def submit(self, *arguments):
        number = self.works("submit", "job.toml", *arguments).stdout
        self.assertRegex(number, r"\A[0-9]+\n\Z")
        return number.strip()

    def jobs(self):
        return json.loads(self.works("jobs", "list", "--json").stdout)

    def state(self, number):
        return json.loads(self.works("jobs", "show", number, "--json").stdout)

    def comes_to(self, number, state):
        for _ in range(600):
            if self.state(number)["state"] == state:
                return
            time.sleep(0.05)
        self.fail(f"job {number} does not become {state}: {self.state(number)}")

    def wait(self, number, code=0):
        done = self.run_command("jobs", "wait", number, "--timeout", "120")
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def processes_of(self, number):
        """The processes that have the lock of a job open, each in a thread with descriptors of its own."""
        lock = str(self.home / "jobs" / number / "lock")
        found = set()
        for link in glob.glob("/proc/[0-9]*/task/*/fd/*"):
            try:
                if os.readlink(link) == lock:
                    found.add(int(link.split("/")[2]))
            except OSError:
                pass
        return found

    def begins(self, number):
        """Waits until the job has finished some iterations."""
        self.comes_to(number, "running")
        log = self.home / "jobs" / number / "run" / "log.jsonl"
        for _ in range(600):
            if log.exists() and log.read_text().count("\n") > 3:
                return
            time.sleep(0.05)
        self.fail(f"job {number} does not begin")

    def receipt(self, folder):
        return (self.folder / folder / "receipt.jsonl").read_bytes()

    # ---- a job from its submission to its end ----

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

    # ---- wrong use, damage ----

    def test_what_has_not_ended_stays(self):
        number = self.submit(*LONG)
        for action in (("rm", number), ("resume", number), ("fetch", number, "--out", "a")):
            done = self.run_command("jobs", *action)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rf"\Aerror: \[batch\] job {number} is (queued|running)\n"
                                          rf"hint: wait for it: lockstep jobs wait {number}")
        done = self.run_command("jobs", "run", number)
        self.assertIn(f"another process works on job {number}", done.stderr)

    def test_numbers_are_not_given_again(self):
        first = self.submit()
        self.wait(first)
        self.works("jobs", "rm", first)
        self.assertEqual(int(self.submit()), int(first) + 1)

    def test_many_submissions_at_once(self):
        environment = {**os.environ, "LOCKSTEP_HOME": str(self.home)}
        processes = [subprocess.Popen([COMMAND, "submit", "job.toml", "--set", "max_epochs=1"],
                                      cwd=self.folder, stdout=subprocess.PIPE, text=True,
                                      env=environment) for _ in range(6)]
        numbers = sorted(int(process.communicate(timeout=120)[0]) for process in processes)
        self.assertEqual(numbers, [1, 2, 3, 4, 5, 6])
        for number in numbers:
            self.assertEqual(self.wait(str(number)), "finished\n")

    def test_a_submission_that_was_killed_is_listed_and_removed(self):
        big = self.folder / "big"
        with open(big, "wb") as file:
            file.truncate(2 << 30)  # copying it takes a while
        submitting = subprocess.Popen([COMMAND, "submit", "job.toml", "--attach", "big"], cwd=self.folder,
                                      env={**os.environ, "LOCKSTEP_HOME": str(self.home)})
        attached = self.home / "jobs" / "1" / "attached"
        while not attached.exists() and submitting.poll() is None:
            # While its process lives, it is not listed.
            self.assertEqual(self.works("jobs", "list").stderr, "")
        submitting.kill()
        self.assertEqual(submitting.wait(), -signal.SIGKILL)
        self.assertFalse((self.home / "jobs" / "1" / "batch.json").exists())
        listed = self.works("jobs", "list")
        self.assertRegex(listed.stderr, r"\Anote: job 1: .*is incomplete: the process that submitted .*"
                                        r"lockstep jobs rm 1 removes")
        for action in ("show", "diary", "wait"):
            done = self.run_command("jobs", action, "1")
            self.assertIn("is incomplete", done.stderr)
            self.assertIn("lockstep jobs rm 1", done.stderr)
        # So does a copy of the executable that was never finished, when it is old.
        (self.home / "jobs" / "executables").mkdir(exist_ok=True)
        unfinished = [self.home / "jobs" / "executables" / f"x.making-{i}" for i in (1, 2)]
        for path in unfinished:
            path.touch()
        os.utime(unfinished[0], (1e9, 1e9))
        self.works("jobs", "rm", "1")
        self.assertEqual([path.exists() for path in unfinished], [False, True])
        self.assertFalse((self.home / "jobs" / "1").exists())
        self.assertEqual(self.works("jobs", "list").stderr, "")
        # Killed before it had its lock: a while later it is listed, too.
        (self.home / "jobs" / "5").mkdir()
        self.assertEqual(self.works("jobs", "list").stderr, "")
        os.utime(self.home / "jobs" / "5", (1e9, 1e9))
        self.assertIn("job 5", self.works("jobs", "list").stderr)
        self.works("jobs", "rm", "5")

    def test_what_a_killed_fetch_leaves_is_removed_by_the_next(self):
        number, other = self.submit(), self.submit()
        self.wait(number)
        self.wait(other)
        with open(self.home / "jobs" / number / "run" / "big", "wb") as file:
            file.truncate(2 << 30)  # copying it takes a while
        hidden = self.folder / ".lockstep-fetch-a"
        fetching = subprocess.Popen([COMMAND, "jobs", "fetch", number, "--out", "a/"], cwd=self.folder,
                                    env={**os.environ, "LOCKSTEP_HOME": str(self.home)}, stderr=subprocess.PIPE,
                                    text=True)
        self.addCleanup(fetching.kill)
        while not (hidden / "copy" / "run" / "big").exists() and fetching.poll() is None:
            time.sleep(0.001)
        fetching.send_signal(signal.SIGSTOP)
        done = self.run_command("jobs", "fetch", other, "--out", "a")
        self.assertIn("another process fetches to a", done.stderr)
        fetching.kill()
        fetching.communicate()
        self.assertEqual(fetching.returncode, -signal.SIGKILL)
        self.assertTrue(hidden.exists())
        self.assertFalse((self.folder / "a").exists())
        os.truncate(self.home / "jobs" / number / "run" / "big", 1)
        said = self.works("jobs", "fetch", number, "--out", "a").stderr
        self.assertIn("what an interrupted fetch to a had left was removed", said)
        self.assertFalse(hidden.exists())
        self.assertEqual(self.receipt("a"), self.receipt(self.home / "jobs" / number / "run"))
        self.assertEqual(self.works("jobs", "fetch", number, "--out", "b").stderr, "")

    def test_a_damaged_job(self):
        number = self.submit()
        self.wait(number)
        for text in ("", "{", "[]", '{"lockstep.batch": "2"}', '{"lockstep.batch": 1}',
                     '{"lockstep.batch": "1"}', '{"lockstep.batch": "1", "name": 3}'):
            (self.home / "jobs" / number / "batch.json").write_text(text)
            done = self.run_command("jobs", "show", number)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"\Aerror: \[batch\] .*batch.json is damaged")
            listed = self.works("jobs", "list", "--json")
            self.assertEqual(listed.stdout, "[]\n")
            self.assertRegex(listed.stderr, rf"\Anote: job {number}: .*batch.json is damaged")
        self.works("jobs", "rm", number)
        self.assertFalse((self.home / "jobs" / number).exists())
        # What a killed client has left behind is not a job, and can be removed.
        (self.home / "jobs" / "7").mkdir()
        self.assertEqual(self.jobs(), [])
        self.works("jobs", "rm", "7")
        self.assertEqual(self.submit(), "8")
        self.wait("8")
        (self.home / "jobs" / "8" / "state.json").write_text("{")
        done = self.run_command("jobs", "wait", "8")
        self.assertRegex(done.stderr, r"state.json is damaged.*\n.*jobs rm removes it")

    def test_folders_that_cannot_be_used(self):
        (self.home / "jobs").write_text("a file")
        done = self.run_command("submit", "job.toml")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"\Aerror: .*/jobs.*(Not a directory|exists)")
        done = self.run_command("jobs", "list")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        (self.home / "jobs").unlink()

    def test_a_full_disk(self):
        """Files may have at most 2 MB, too little for the copy of the executable."""
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
        done = self.run_command("submit", "job.toml", preexec_fn=limit)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"cannot write .*File too large")
        self.assertEqual(self.jobs(), [])
        left = [path for path in (self.home / "jobs").rglob("*") if path.is_file()]
        self.assertEqual([path for path in left if path.name != "last"], [])

    def test_two_clients_at_once(self):
        number = self.submit(*LONG)
        self.begins(number)
        os.kill(self.processes_of(number).pop(), signal.SIGKILL)
        self.wait(number, 1)
        environment = {**os.environ, "LOCKSTEP_HOME": str(self.home)}
        clients = [subprocess.Popen([COMMAND, "jobs", "resume", number], cwd=self.folder, text=True,
                                    stderr=subprocess.PIPE, env=environment) for _ in range(4)]
        said = [client.communicate(timeout=120)[1] for client in clients]
        self.assertEqual(sorted(client.returncode for client in clients), [0, 1, 1, 1])
        for client, text in zip(clients, said):
            if client.returncode == 1:
                self.assertRegex(text, rf"job {number} is (queued|running)")
        self.assertEqual(len(self.processes_of(number)), 1)
        self.begins(number)

    def test_many_jobs(self):
        number = self.submit("--set", "max_epochs=1")
        self.wait(number)
        job = self.home / "jobs" / number
        for other in range(2, 501):
            folder = self.home / "jobs" / str(other)
            folder.mkdir()
            for name in ("batch.json", "state.json"):
                shutil.copy(job / name, folder / name)
        begin = time.monotonic()
        self.assertEqual(len(self.jobs()), 500)
        self.assertLess(time.monotonic() - begin, 10)
        done = self.works("jobs", "wait", number, "7-9", "--timeout", "10")
        self.assertEqual(done.stdout, f"{number}: finished\n7: finished\n8: finished\n9: finished\n")
        self.fails(1, "error: [batch] there is no job 600 in " + str(self.home / "jobs")
                   + "\nhint: lockstep jobs list shows all jobs; --cluster NAME those of a cluster\n",
                   "jobs", "rm", "2-400", "600", "401-500")
        self.assertEqual([job["number"] for job in self.jobs()], [1])

    def test_progress_is_followed(self):
        number = self.submit("--set", "max_epochs=40")
        lines = self.works("jobs", "progress", number, "--follow").stdout.splitlines()
        self.assertRegex(lines[-1], r"\Afinished, epoch 40 of 40, iteration \d+, loss ")
        self.assertRegex(lines[0], r"\A(queued|running)")

    def test_wrong_arguments(self):
        self.fails(1, f"error: [batch] there is no job 7 in {self.home}/jobs\n"
                      "hint: lockstep jobs list shows all jobs; --cluster NAME those of a cluster\n",
                   "jobs", "show", "7")
        for arguments, error in (
                (("jobs", "nothing"), 'action: "nothing" is not an action of `lockstep jobs`'),
                (("jobs", "show"), "`lockstep jobs show` needs the number of a job"),
                (("jobs", "list", "1"), "`lockstep jobs list` takes no number"),
                (("jobs", "show", "one"), '"one" is not the number of a job'),
                (("jobs", "show", "-1"), ""),
                (("jobs", "fetch", "1"), "--out and `lockstep jobs fetch` need each other"),
                (("jobs", "rm", "3-1"), '"3-1" is not a range of numbers of jobs'),
                (("jobs", "show", "1", "--follow"), "--follow is for `lockstep jobs progress`"),
                (("jobs", "show", "1", "--timeout", "3"), "--timeout is for `lockstep jobs wait`")):
            done = self.run_command(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(error, done.stderr)

    def test_places(self):
        """Without LOCKSTEP_HOME the job lies in the user's state folder, readable by the user alone."""
        state = self.folder / "state"
        done = self.run_command("submit", "job.toml", LOCKSTEP_HOME="", XDG_STATE_HOME=str(state))
        number = done.stdout.strip()
        done = self.run_command("jobs", "wait", number, LOCKSTEP_HOME="", XDG_STATE_HOME=str(state))
        self.assertEqual(done.stdout, "finished\n")
        folder = state / "lockstep" / "jobs" / number
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        self.assertEqual(folder.parent.stat().st_mode & 0o777, 0o700)


if __name__ == "__main__":
    unittest.main()
