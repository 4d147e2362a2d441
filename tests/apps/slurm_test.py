#!/usr/bin/env python3
"""Batch jobs on a real Slurm of two nodes, which this test starts on this machine.

usage: slurm_test.py PATH_OF_LOCKSTEP [unittest options]

LOCKSTEP_DISTURBANCES is the number of disturbances of a training (default: 3). Exit code 77 if
Slurm is not installed.
"""

import json
import os
import random
import sys
import time
import unittest

from slurm_cluster import missing_tools
from slurm_support import LONG, SECRET, SlurmTest


class Slurm(SlurmTest):
    def submit(self, *arguments):
        return self.works("submit", "job.toml", "--cluster", "lab", *arguments).stdout.strip()

    def state(self, number):
        return json.loads(self.works("jobs", "show", number, "--json").stdout)

    def comes_to(self, number, state):
        for _ in range(300):
            if self.state(number)["state"] == state:
                return
            time.sleep(0.1)
        self.fail(f"job {number} does not become {state}: {self.state(number)}")

    def iterations(self, number):
        log = self.home / "jobs" / number / "run" / "log.jsonl"
        return log.read_text().count("\n") if log.exists() else 0

    def advances(self, number, by=3):
        """Waits until the job has finished more iterations, or has ended."""
        before = self.iterations(number)
        for _ in range(900):
            if self.iterations(number) >= before + by:
                return
            if self.state(number)["state"] not in ("queued", "running"):
                return
            time.sleep(0.1)
        self.fail(f"job {number} does not advance: {self.state(number)}\n"
                  + self.works("jobs", "diary", number).stdout)

    def finishes(self, number, limit=600):
        done = self.run_command("jobs", "wait", number, "--timeout", str(limit))
        diary = self.works("jobs", "diary", number).stdout
        self.assertEqual((done.returncode, done.stdout), (0, "finished\n"), done.stderr + diary)

    def ends_and_compares(self, number):
        """Cancels a long job, finishes its training here, and compares it with one that nothing disturbed."""
        self.works("jobs", "cancel", number)
        done = self.run_command("jobs", "wait", number, "--timeout", "120")
        diary = self.works("jobs", "diary", number).stdout
        self.assertEqual((done.returncode, done.stdout), (130, "cancelled\n"), done.stderr + diary)
        self.works("jobs", "fetch", number, "--out", "a")
        epochs = self.iterations(number) // 2 + 3  # an epoch has two iterations
        until_there = (*LONG, "--set", f"max_epochs={epochs}", "--quiet")
        self.works("train", "job.toml", "--out", "a", "--resume", *until_there)
        self.works("train", "job.toml", "--out", "usual", *until_there)
        self.assertTrue(self.receipt("a") == self.receipt("usual"))

    def slurm_job(self, number):
        return (self.home / "jobs" / number / "slurm_job").read_text()

    # ---- what a job gives ----

    def test_the_receipt_is_that_of_one_process(self):
        self.works("train", "job.toml", "--out", "usual", "--quiet")
        self.works("cluster", "validate", "lab")
        number = self.submit()
        self.finishes(number)
        self.works("jobs", "fetch", number, "--out", "a")
        self.assertEqual(self.receipt("a"), self.receipt("usual"))
        self.assertIn("4 workers on 2 hosts", self.works("jobs", "diary", number).stdout)
        self.assertIn("LOCKSTEP_KEY_FOLDER", (self.home / "jobs" / number / "slurm.sh").read_text())
        self.assertEqual(list((self.home / "jobs" / number).glob("lockstep-key-*")), [])
        self.assertEqual(self.files_with(SECRET.encode()), [])

    def test_jobs_lie_in_the_folder_of_the_profile(self):
        folder = self.folder / "shared"
        self.works("cluster", "add", "own", "--workers", "2", "--nodes", "2", "--address", "127.0.0.1",
                   "--folder", folder)
        script = self.works("submit", "job.toml", "--cluster", "own", "--dry-run").stdout
        self.assertIn(f"#SBATCH --output={folder}/jobs/NUMBER/diary.txt\n", script)
        self.assertEqual(self.submit(), "1")
        number = self.works("submit", "job.toml", "--cluster", "own").stdout.strip()
        self.assertEqual(number, "1", "each folder has numbers of its own")
        there = ("--cluster", "own")
        done = self.run_command("jobs", "wait", number, *there, "--timeout", "120")
        self.assertEqual((done.returncode, done.stdout), (0, "finished\n"), done.stderr)
        listed = json.loads(self.works("jobs", "list", "--json", *there).stdout)
        self.assertEqual([(job["cluster"], job["folder"]) for job in listed],
                         [("own", str(folder / "jobs" / "1"))])
        self.assertIn("3 of 3", self.works("jobs", "progress", number, *there).stdout)
        self.works("cluster", "default", "own")
        self.assertEqual(json.loads(self.works("jobs", "show", number, "--json").stdout), listed[0])
        self.works("cluster", "default", "local")
        self.works("jobs", "fetch", number, *there, "--out", "a")
        self.finishes("1")
        self.works("jobs", "fetch", "1", "--out", "usual")
        self.assertEqual(self.receipt("a"), self.receipt("usual"))
        self.works("jobs", "rm", number, *there)
        done = self.run_command("jobs", "show", number, *there)
        self.assertIn(f"there is no job 1 in {folder}/jobs\n", done.stderr)
        self.assertEqual(self.state("1")["state"], "finished")
        # The validation looks at the same folder, and so do trainings of this terminal.
        self.assertIn(f"{folder}/jobs/validate-", self.works("cluster", "validate", "own").stdout)
        self.works("train", "job.toml", *there, "--out", "b", "--quiet")
        self.assertEqual(self.receipt("b"), self.receipt("usual"))
        self.assertEqual(list((folder / "hosts").iterdir()), [])
        self.assertFalse((self.home / "hosts").exists())

    def test_disturbances_change_no_bit(self):
        count = int(os.environ.get("LOCKSTEP_DISTURBANCES", "3"))
        number = self.submit(*LONG)
        dice = random.Random(int(os.environ.get("LOCKSTEP_SEED", "1")))
        kinds = [self.requeue, self.kill_a_step, self.kill_a_worker, self.restart_the_controller,
                 self.kill_a_node, self.kill_the_batch_process]
        of_a_job = (self.requeue, self.kill_the_batch_process)
        for i in range(count):
            self.advances(number)
            # Each kind once, then by chance.
            kind = kinds[i] if i < len(kinds) else dice.choice(kinds)
            kind(number) if kind in of_a_job else kind(dice)
        self.assertGreater(self.killed_workers, 0)
        if self.state(number)["state"] == "failed":
            self.works("jobs", "resume", number)
        self.advances(number)
        self.ends_and_compares(number)
        print(f"{count} disturbances within {self.iterations(number)} iterations", file=sys.stderr)

    def test_signals_and_another_number_of_nodes_change_no_bit(self):
        number = self.submit(*LONG)
        self.advances(number)
        # As two minutes before the end of its time: a checkpoint.
        job = self.slurm_job(number)
        self.slurm.run("scancel", "--batch", "--signal=USR2", job)
        self.until(lambda: "stopped after iteration" in self.works("jobs", "diary", number).stdout,
                   "the job does not stop")
        self.until(lambda: self.state(number)["state"] != "running", "the job does not end")
        # Again, with one node.
        self.slurm.run("scontrol", "requeuehold", job)
        self.slurm.run("scontrol", "update", f"JobId={job}", "NumNodes=1-1", "NumTasks=1")
        self.slurm.run("scontrol", "release", job)
        self.until(lambda: "on 1 host" in self.works("jobs", "diary", number).stdout, "the job does not continue", 200)
        self.advances(number)
        diary = self.works("jobs", "diary", number).stdout
        self.assertEqual([line.split("; ")[2].split(" of ")[0] for line in diary.splitlines()
                          if "training images" in line],
                         ["4 workers on 2 hosts", "2 workers on 1 host"])
        self.ends_and_compares(number)

    # ---- disturbances ----

    def requeue(self, number):
        self.slurm.run("scontrol", "requeue", self.slurm_job(number), check=False)

    def kill_the_batch_process(self, number):
        """As if it ran out of memory: the job fails, and is resumed."""
        self.slurm.run("scancel", "--batch", "--signal=KILL", self.slurm_job(number), check=False)
        for _ in range(300):
            state = self.state(number)["state"]
            if state in ("failed", "finished"):
                break
            time.sleep(0.1)
        if state == "failed":
            self.works("jobs", "resume", number)

    # ---- ends of another kind ----

    def test_cancelled_jobs(self):
        running = self.submit(*LONG)
        self.advances(running)
        self.works("cluster", "add", "whole", "--workers", "2", "--nodes", "2", "--threads", "4", "--address",
                   "127.0.0.1")
        waiting = self.works("submit", "job.toml", "--cluster", "whole").stdout.strip()
        self.assertEqual(self.state(waiting)["state"], "queued")
        self.assertIn("is PENDING", self.state(waiting)["reason"])
        self.works("jobs", "cancel", waiting)
        self.assertEqual(self.state(waiting)["state"], "cancelled")
        self.assertEqual(self.state(running)["state"], "running")
        self.works("jobs", "cancel", running)
        done = self.run_command("jobs", "wait", running, "--timeout", "60")
        self.assertEqual((done.returncode, done.stdout), (130, "cancelled\n"))
        self.assertIn("stopped after iteration", self.works("jobs", "diary", running).stdout)

    def test_a_job_that_slurm_ended_has_failed_and_resumes(self):
        number = self.submit(*LONG)
        self.advances(number)
        slurm_job = self.slurm_job(number)
        self.slurm.run("scancel", slurm_job)
        self.comes_to(number, "failed")
        self.assertIn(f"Slurm's job {slurm_job} ended", self.state(number)["reason"])
        self.works("jobs", "resume", number)
        self.comes_to(number, "running")
        self.advances(number)
        self.ends_and_compares(number)

    def test_a_job_that_no_node_could_launch_is_released(self):
        self.works("cluster", "add", "one", "--workers", "2", "--address", "127.0.0.1")

        def submit_held():
            self.slurm.let_launches_fail(True)
            number = self.works("submit", "job.toml", "--cluster", "one").stdout.strip()
            self.until(lambda: "launch failed" in self.slurm.run("squeue", "-h", "-o", "%r"),
                       "the job is not held")
            self.slurm.let_launches_fail(False)
            return number, f"Slurm's job {self.slurm_job(number)} is PENDING (launch failed requeued held)"

        self.addCleanup(self.slurm.let_launches_fail, False)
        number, held = submit_held()
        state = self.state(number)
        self.assertEqual((state["state"], state["reason"]), ("queued", held + ": it was released"))
        self.finishes(number)
        # Not again and again.
        number, held = submit_held()
        (self.home / "jobs" / number / "releases").write_text("3")
        self.assertEqual(self.state(number)["reason"], held + " after 3 releases: `lockstep jobs cancel` "
                         "and `lockstep jobs resume` submit it again")
        self.works("jobs", "cancel", number)
        self.assertEqual(self.state(number)["state"], "cancelled")
        self.works("jobs", "resume", number)
        self.finishes(number)

    # ---- wrong use ----

    def test_what_slurm_refuses(self):
        self.works("cluster", "add", "nowhere", "--partition", "none")
        done = self.run_command("submit", "job.toml", "--cluster", "nowhere")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("sbatch failed: sbatch: error: invalid partition specified: none", done.stderr)
        self.assertEqual(self.works("jobs", "list", "--json").stdout, "[]\n")

    def test_a_folder_that_slurm_cannot_use(self):
        folder = self.folder / "my folder"
        self.works("cluster", "add", "own", "--workers", "2", "--address", "127.0.0.1", "--folder", folder)
        for command in (("submit", "job.toml", "--cluster", "own"), ("cluster", "validate", "own"),
                        ("train", "job.toml", "--cluster", "own", "--out", "a")):
            done = self.run_command(*command)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"Slurm cannot use the path {folder}/", done.stderr)
            self.assertIn("give the profile a folder without blanks", done.stderr)
        self.assertEqual(self.works("jobs", "list", "--cluster", "own", "--json").stdout, "[]\n")

    def test_a_dry_run_submits_nothing(self):
        script = self.works("submit", "job.toml", "--cluster", "lab", "--dry-run").stdout
        for line in ("#!/bin/sh\n", "#SBATCH --nodes=2\n", "#SBATCH --requeue\n",
                     "#SBATCH --signal=B:USR2@120\n", "jobs/NUMBER/executable"):
            self.assertIn(line, script)
        self.assertNotIn(SECRET, script)
        self.assertEqual(self.works("jobs", "list", "--json").stdout, "[]\n")
        self.assertEqual(self.slurm.run("squeue", "-h").strip(), "")
        done = self.run_command("submit", "job.toml", "--dry-run")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("the job would run on this machine", done.stderr)


if __name__ == "__main__":
    if missing_tools():
        print("Slurm is not installed: " + ", ".join(missing_tools()), file=sys.stderr)
        sys.exit(77)
    unittest.main()
