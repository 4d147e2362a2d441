#!/usr/bin/env python3
"""Functions of a user's program as batch jobs (lockstep/runs/batch/batch.h).

usage: batch_function_test.py PATH_OF_LOCKSTEP PATH_OF_BATCH_PROGRAM [unittest options]
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

COMMAND, PROGRAM = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
LIMIT = 120


class BatchFunctions(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.program = self.folder / "program"
        shutil.copy(PROGRAM, self.program)
        self.addCleanup(self.end_jobs)

    def end_jobs(self):
        self.run_in("rm", COMMAND, "jobs", "list")
        for job in sorted((self.folder / "home" / "jobs").glob("[0-9]*")):
            self.run_in("end", COMMAND, "jobs", "cancel", job.name)
            self.run_in("end", COMMAND, "jobs", "wait", job.name, "--timeout", "60")

    def run_in(self, _, *command, **environment):
        return subprocess.run([str(word) for word in command], cwd=self.folder, capture_output=True,
                              text=True, timeout=LIMIT,
                              env={**os.environ, "LOCKSTEP_HOME": str(self.folder / "home"),
                                   **environment})

    def works(self, *arguments, **environment):
        done = self.run_in("works", self.program, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def fails(self, *arguments):
        done = self.run_in("fails", self.program, *arguments)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        return done.stdout

    def submit(self, *arguments, **environment):
        number = self.works("submit", *arguments, **environment)
        self.assertRegex(number, r"\A[0-9]+\n\Z")
        return number.strip()

    def test_results_from_another_process(self):
        job, lambdas, maps = self.submit("sum"), self.submit("lambda"), self.submit("twice")
        for each in (job, lambdas, maps):
            self.assertEqual(self.works("wait", each), "finished \n")
        for _ in range(2):
            self.assertEqual(self.works("sum", job), "42.5\n")
        self.assertEqual(self.works("text", lambdas), "n7\n")
        self.assertEqual(self.works("twice", maps), "a 2\nb 42\n")
        self.assertEqual(self.works("diary", job), "adding 3 numbers\n")
        self.assertIn("returns another type", self.fails("text", job))
        # `lockstep jobs` works for these jobs, too.
        listed = self.run_in("list", COMMAND, "jobs", "list")
        self.assertIn("function  finished", listed.stdout)
        self.works("remove", job)
        self.assertIn(f"there is no job {job}", self.fails("sum", job))

    def test_jobs_in_the_folder_of_a_profile(self):
        for name, words in (("own", ("--scheduler", "local", "--folder", self.folder / "own")),
                            ("far", ("--login", "far.invalid", "--folder", "/far"))):
            self.run_in("add", COMMAND, "cluster", "add", name, *words)
        job = self.submit("sum", "--cluster", "own")
        self.assertEqual(self.works("wait", job, "--cluster", "own"), "finished \n")
        self.assertEqual(self.works("sum", job, "--cluster", "own"), "42.5\n")
        self.assertIn("there is no job 1 in", self.fails("sum", job))
        self.assertTrue((self.folder / "own" / "jobs" / job / "result").exists())
        for action in (("submit", "sum"), ("state", "1")):
            self.assertIn("the jobs of the profile far are on far.invalid",
                          self.fails(*action, "--cluster", "far"))

    def test_errors(self):
        failed, crashed = self.submit("fail"), self.submit("crash")
        self.assertEqual(self.works("wait", failed), "failed [user] the file is damaged\n")
        self.assertEqual(self.fails("void", failed),
                         f"DataError: job {failed}: [user] the file is damaged (make it again)\n")
        self.assertIn("failed its process was killed", self.works("wait", crashed))
        self.assertIn("Error: [batch] job 2 failed: its process was killed",
                      self.fails("void", crashed))

    def test_files_workers_and_surroundings(self):
        (self.folder / "notes.txt").write_text("before\n")
        job = self.submit("surroundings", "--attach", "notes.txt", BATCH_TEST="at submission")
        (self.folder / "notes.txt").write_text("after\n")
        pool = self.submit("pool")
        self.works("wait", job)
        self.assertEqual(self.works("text", job), "before at submission\n")
        self.works("wait", pool)
        self.assertEqual(self.works("int", pool), "385\n")
        self.assertIn("cannot be attached", self.fails("submit", "surroundings", "--attach", "none"))

    def counted(self, job, least):
        path = self.folder / "home" / "jobs" / job / "run" / "count"
        for _ in range(LIMIT * 50):
            if path.exists() and int(path.read_text() or "0") >= least:
                return
            time.sleep(0.02)
        self.fail("the function does not advance")

    def test_cancelled_and_resumed_with_the_old_executable(self):
        job = self.submit("count", "100", BATCH_TEST="kept")
        self.counted(job, 3)
        self.assertIn("is running", self.fails("int", job))
        self.works("cancel", job)
        self.assertEqual(self.works("wait", job), "cancelled \n")
        self.assertEqual(self.fails("int", job), f"Cancelled: [batch] job {job} was cancelled\n")
        # The program is replaced in place, so that a link to it would change too.
        with open(self.program, "r+b") as program:
            program.write(b"this is not a program")
        resumed = self.run_in("resume", COMMAND, "jobs", "resume", job)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        done = self.run_in("wait", COMMAND, "jobs", "wait", job, "--timeout", str(LIMIT))
        self.assertEqual(done.stdout, "finished\n")
        fetched = self.run_in("fetch", COMMAND, "jobs", "fetch", job, "--out", "out")
        self.assertEqual(fetched.returncode, 0, fetched.stderr)
        self.assertEqual((self.folder / "out" / "count").read_text(), "100")

    def test_a_killed_function_is_resumed(self):
        job = self.submit("count", "60")
        self.counted(job, 3)
        lock = os.stat(self.folder / "home" / "jobs" / job / "lock")
        for entry in pathlib.Path("/proc").glob("[0-9]*/task/*/fd/*"):
            try:
                if os.stat(entry).st_ino == lock.st_ino and os.stat(entry).st_dev == lock.st_dev:
                    os.kill(int(entry.parts[2]), signal.SIGKILL)
                    break
            except OSError:
                continue
        self.assertIn("failed its process was killed", self.works("wait", job))
        self.works("resume", job)
        self.works("wait", job)
        self.assertEqual(self.works("int", job), "60\n")
        self.assertIn("is finished", self.fails("resume", job))


if __name__ == "__main__":
    unittest.main()
