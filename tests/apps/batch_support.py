"""What the tests of batch jobs have in common."""

import glob
import json
import os
import pathlib
import shutil
import tempfile
import time

from support import CommandTest

LONG = ("--set", "max_epochs=100000", "--set", "checkpoint_frequency=100")


class BatchTest(CommandTest):
    """With a folder of jobs of the test's own."""

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
        """The processes that have a job's lock open. Each thread may have its own descriptors."""
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
